// SPDX-License-Identifier: Apache-2.0

#include "fleet/ops/update/foreach_update.h"

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_pow.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace fleet::ops {
namespace {

using Tensors = std::vector<at::Tensor>;
using Scalars = std::vector<at::Scalar>;

// All updates of a step, turned from rows into columns.
struct Columns {
  Tensors p;
  Tensors g;  // after clip and decay
  std::array<Tensors, optim::kMaxState> state;
  std::span<const TensorUpdate> updates;

  // One number per parameter.
  template <class F>
  Scalars Each(F number) const {
    Scalars column;
    column.reserve(updates.size());
    for (const TensorUpdate& u : updates) column.emplace_back(number(u));
    return column;
  }

  template <class F>
  bool Any(F predicate) const {
    return std::any_of(updates.begin(), updates.end(), predicate);
  }
};

double Power(const TensorUpdate& u, size_t i) {
  const at::Tensor& power = u.powers[i];
  return power.scalar_type() == at::kFloat ? *power.const_data_ptr<float>()
                                           : *power.const_data_ptr<double>();
}

void MultiplyPower(const TensorUpdate& u, size_t i, double factor) {
  const at::Tensor& power = u.powers[i];
  if (power.scalar_type() == at::kFloat) {
    float* value = power.mutable_data_ptr<float>();
    *value = static_cast<float>(*value * factor);
  } else {
    *power.mutable_data_ptr<double>() *= factor;
  }
}

// Adds l2 * p to the gradients of those that decay: for the others, zero times
// a value that is infinite would be NaN.
void AddL2(Columns& c) {
  std::vector<size_t> decaying;
  Tensors p;
  Scalars l2;
  for (size_t i = 0; i < c.updates.size(); ++i) {
    if (c.updates[i].decay.l2 == 0.0) continue;
    decaying.push_back(i);
    p.push_back(c.p[i]);
    l2.emplace_back(c.updates[i].decay.l2);
  }
  if (decaying.empty()) return;
  const Tensors terms = at::_foreach_mul(p, l2);
  Tensors g;
  for (const size_t i : decaying) g.push_back(c.g[i]);
  g = at::_foreach_add(g, terms);
  for (size_t k = 0; k < decaying.size(); ++k) c.g[decaying[k]] = g[k];
}

// The gradients after clip and decay, as new tensors where anything changes.
void Adjust(Columns& c) {
  const std::span<const TensorUpdate> updates = c.updates;
  const at::Tensor& shared = updates[0].scale;
  if (shared.defined() &&
      !c.Any([&](const auto& u) { return !u.scale.is_same(shared); })) {
    c.g = at::_foreach_mul(c.g, shared);
  } else {
    for (size_t i = 0; i < updates.size(); ++i) {
      if (updates[i].scale.defined()) c.g[i] = c.g[i] * updates[i].scale;
    }
  }
  if (c.Any([](const auto& u) { return u.transform.scale != 1.0; })) {
    c.g = at::_foreach_mul(
        c.g, c.Each([](const auto& u) { return u.transform.scale; }));
  }
  if (c.Any([](const auto& u) {
        return std::isfinite(u.transform.min) || std::isfinite(u.transform.max);
      })) {
    c.g = at::_foreach_clamp_min(
        c.g, c.Each([](const auto& u) { return u.transform.min; }));
    at::_foreach_clamp_max_(
        c.g, c.Each([](const auto& u) { return u.transform.max; }));
  }
  AddL2(c);
  if (c.Any([](const auto& u) { return u.decay.l1 != 0.0; })) {
    c.g = at::_foreach_add(
        c.g, at::_foreach_mul(at::_foreach_sign(c.p), c.Each([](const auto& u) {
          return u.decay.l1;
        })));
  }
}

// Decoupled decay of the rules that have none of their own.
void Shrink(const Columns& c) {
  if (!c.Any([](const auto& u) { return u.decay.decoupled != 0.0; })) return;
  at::_foreach_mul_(c.p, c.Each([](const auto& u) {
    return 1.0 - u.learning_rate * u.decay.decoupled;
  }));
}

// p -= lr * direction
void Descend(const Columns& c, Tensors direction) {
  at::_foreach_sub_(c.p, at::_foreach_mul(direction, c.Each([](const auto& u) {
                      return u.learning_rate;
                    })));
}

// average = rate * average + (1 - rate) * g, and the same of g * g.
void MoveAverage(const Tensors& average, const Tensors& g, double rate) {
  at::_foreach_mul_(average, rate);
  at::_foreach_add_(average, g, 1.0 - rate);
}

void MoveSquareAverage(const Tensors& average, const Tensors& g, double rate) {
  at::_foreach_mul_(average, rate);
  at::_foreach_addcmul_(average, g, g, 1.0 - rate);
}

// The 2-norms of the tensors as one vector.
at::Tensor Norms(const Tensors& tensors) {
  return at::stack(at::_foreach_norm(tensors));
}

at::Tensor Vector(const Scalars& numbers, const at::Tensor& like) {
  std::vector<double> values;
  for (const at::Scalar& x : numbers) values.push_back(x.toDouble());
  return at::tensor(values, like.options());
}

void Run(const optim::Sgd&, const Columns& c) {
  Shrink(c);
  Descend(c, c.g);
}

void Run(const optim::Momentum& rule, const Columns& c) {
  const Tensors& velocity = c.state[0];
  Shrink(c);
  at::_foreach_mul_(velocity, rule.mu);
  at::_foreach_add_(velocity, c.g);
  Descend(c,
          rule.nesterov ? at::_foreach_add(c.g, velocity, rule.mu) : velocity);
}

void Run(const optim::Adam& rule, const Columns& c) {
  Shrink(c);
  MoveAverage(c.state[0], c.g, rule.beta1);
  MoveSquareAverage(c.state[1], c.g, rule.beta2);
  Tensors divisor = at::_foreach_sqrt(c.state[1]);
  at::_foreach_add_(divisor, c.Each([&](const auto& u) {
    return rule.epsilon * std::sqrt(1.0 - Power(u, 1));
  }));
  at::_foreach_addcdiv_(c.p, c.state[0], divisor, c.Each([](const auto& u) {
    return -u.learning_rate * std::sqrt(1.0 - Power(u, 1)) /
           (1.0 - Power(u, 0));
  }));
}

void Run(const optim::Adagrad& rule, const Columns& c) {
  Shrink(c);
  at::_foreach_addcmul_(c.state[0], c.g, c.g);
  Tensors divisor = at::_foreach_sqrt(c.state[0]);
  at::_foreach_add_(divisor, rule.epsilon);
  at::_foreach_addcdiv_(c.p, c.g, divisor,
                        c.Each([](const auto& u) { return -u.learning_rate; }));
}

void Run(const optim::Adamax& rule, const Columns& c) {
  const Tensors& inf_norm = c.state[1];
  Shrink(c);
  MoveAverage(c.state[0], c.g, rule.beta1);
  at::_foreach_mul_(inf_norm, rule.beta2);
  at::_foreach_add_(inf_norm, rule.epsilon);
  at::_foreach_maximum_(inf_norm, at::_foreach_abs(c.g));
  at::_foreach_addcdiv_(c.p, c.state[0], inf_norm, c.Each([](const auto& u) {
    return -u.learning_rate / (1.0 - Power(u, 0));
  }));
}

void Run(const optim::RmsProp& rule, const Columns& c) {
  const Tensors& step = c.state[0];
  const Tensors& mean_square = c.state[1];
  const Tensors& mean_grad = c.state[2];
  Shrink(c);
  MoveSquareAverage(mean_square, c.g, rule.rho);
  Tensors divisor = at::_foreach_add(mean_square, rule.epsilon);
  if (rule.centered) {
    MoveAverage(mean_grad, c.g, rule.rho);
    at::_foreach_addcmul_(divisor, mean_grad, mean_grad, -1);
  }
  at::_foreach_sqrt_(divisor);
  at::_foreach_mul_(step, rule.momentum);
  at::_foreach_addcdiv_(step, c.g, divisor,
                        c.Each([](const auto& u) { return u.learning_rate; }));
  at::_foreach_sub_(c.p, step);
}

void Run(const optim::Adadelta& rule, const Columns& c) {
  Shrink(c);
  MoveSquareAverage(c.state[0], c.g, rule.rho);
  Tensors direction = at::_foreach_add(c.state[1], rule.epsilon);
  at::_foreach_div_(direction, at::_foreach_add(c.state[0], rule.epsilon));
  at::_foreach_sqrt_(direction);
  at::_foreach_mul_(direction, c.g);
  MoveSquareAverage(c.state[1], direction, rule.rho);
  Descend(c, direction);
}

void Run(const optim::Lamb& rule, const Columns& c) {
  MoveAverage(c.state[0], c.g, rule.beta1);
  MoveSquareAverage(c.state[1], c.g, rule.beta2);
  Tensors divisor = at::_foreach_mul(c.state[1], c.Each([](const auto& u) {
    return 1.0 / (1.0 - Power(u, 1));
  }));
  at::_foreach_sqrt_(divisor);
  at::_foreach_add_(divisor, rule.epsilon);
  Tensors direction = at::_foreach_mul(c.state[0], c.Each([](const auto& u) {
    return 1.0 / (1.0 - Power(u, 0));
  }));
  at::_foreach_div_(direction, divisor);
  at::_foreach_add_(direction, at::_foreach_mul(c.p, c.Each([](const auto& u) {
                      return u.decay.decoupled;
                    })));

  at::Tensor values = Norms(c.p);
  at::Tensor directions = Norms(direction);
  at::Tensor adapt = Vector(c.Each([&](const auto& u) {
    return rule.always_adapt || u.decay.decoupled > 0.0 ? 1.0 : 0.0;
  }),
                            values);
  at::Tensor trust =
      at::where((adapt > 0).logical_and(values > 0).logical_and(directions > 0),
                values / directions, at::ones_like(values));
  trust *= Vector(c.Each([](const auto& u) { return u.learning_rate; }), trust);
  at::_foreach_mul_(direction, trust.unbind());
  at::_foreach_sub_(c.p, direction);
}

void Run(const optim::Lars& rule, const Columns& c) {
  const Tensors& velocity = c.state[0];
  const Scalars decay = c.Each([](const auto& u) { return u.decay.decoupled; });
  at::Tensor values = Norms(c.p);
  at::Tensor gradients = Norms(c.g);
  at::Tensor decays = Vector(decay, values);
  at::Tensor adapted =
      values * rule.coefficient / (gradients + decays * values + rule.epsilon);
  at::Tensor rate =
      at::where((values > 0).logical_and(gradients > 0).logical_and(decays > 0),
                adapted, at::ones_like(values));
  rate *= Vector(c.Each([](const auto& u) { return u.learning_rate; }), rate);

  Tensors step = at::_foreach_mul(c.p, decay);
  at::_foreach_add_(step, c.g);
  at::_foreach_mul_(step, rate.unbind());
  at::_foreach_mul_(velocity, rule.mu);
  at::_foreach_add_(velocity, step);
  at::_foreach_sub_(c.p, velocity);
}

void Run(const optim::Ftrl& rule, const Columns& c) {
  const Tensors& squared = c.state[0];
  const Tensors& linear = c.state[1];
  const double l1 = rule.l1 + 1e-10;
  const double l2 = rule.l2 + 1e-10;
  const Scalars inverse_lr =
      c.Each([](const auto& u) { return 1.0 / u.learning_rate; });
  auto root = [&](const Tensors& x) {
    return rule.power == -0.5 ? at::_foreach_sqrt(x)
                              : at::_foreach_pow(x, -rule.power);
  };
  Shrink(c);
  Tensors before = root(squared);
  at::_foreach_addcmul_(squared, c.g, c.g);
  Tensors after = root(squared);

  Tensors growth = at::_foreach_sub(after, before);
  at::_foreach_mul_(growth, inverse_lr);
  at::_foreach_add_(linear, c.g);
  at::_foreach_addcmul_(linear, growth, c.p, -1);

  at::_foreach_mul_(after, inverse_lr);
  at::_foreach_add_(after, 2 * l2);
  for (size_t i = 0; i < c.p.size(); ++i) {
    at::Tensor moved = (linear[i].sign() * l1 - linear[i]) / after[i];
    c.p[i].copy_(
        at::where(linear[i].abs() <= l1, at::zeros_like(moved), moved));
  }
}

template <class Rule>
void AdvancePowers(const Rule& rule, std::span<const TensorUpdate> updates) {
  for (const TensorUpdate& u : updates) {
    if constexpr (Rule::kPowers.size() > 0) MultiplyPower(u, 0, rule.beta1);
    if constexpr (Rule::kPowers.size() > 1) MultiplyPower(u, 1, rule.beta2);
  }
}

}  // namespace

void ApplyForeach(const optim::UpdateRule& rule,
                  std::span<const TensorUpdate> updates) {
  auto rests = [&](const TensorUpdate& u) {
    return std::holds_alternative<optim::Ftrl>(rule) && u.learning_rate == 0.0;
  };
  if (std::ranges::any_of(updates, rests)) {
    std::vector<TensorUpdate> others(updates.begin(), updates.end());
    std::erase_if(others, rests);
    return ApplyForeach(rule, others);
  }
  if (updates.empty()) return;
  Columns columns;
  columns.updates = updates;
  const size_t num_state = optim::StateNames(rule).size();
  for (const TensorUpdate& u : updates) {
    columns.p.push_back(u.values);
    columns.g.push_back(u.gradient);
    for (size_t k = 0; k < num_state; ++k) {
      columns.state[k].push_back(u.state[k]);
    }
  }
  Adjust(columns);
  std::visit(
      [&](const auto& r) {
        Run(r, columns);
        AdvancePowers(r, updates);
      },
      rule);
}

}  // namespace fleet::ops
