// SPDX-License-Identifier: Apache-2.0

#include "fleet/ops/update/optimizer.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include "fleet/ops/gpu_kernels.h"
#include "fleet/ops/update/foreach_update.h"
#include "fleet/ops/update/merged_rows.h"

namespace fleet::ops {
namespace {

using program::Attrs;
using program::OpDef;

// ---- reading

// The definition and attributes of one op, by name.
class Reader {
 public:
  Reader(const OpDef& def, const Attrs& attrs) : def_(def), attrs_(attrs) {}

  template <class T = double>
  const T& attr(std::string_view name) const {
    return std::get<T>(attrs_[def_.AttrIndex(name)]);
  }

  // An op of `rule` with these slots; `outputs` says whether powers come back.
  OptimizerOp Op(optim::UpdateRule rule,
                 std::initializer_list<std::string_view> state,
                 std::initializer_list<std::string_view> powers = {}) const {
    OptimizerOp op;
    op.rule = rule;
    op.decay.resize(1);
    op.param = def_.InputSlot("Param");
    op.gradient = def_.InputSlot("Grad");
    op.learning_rate = def_.InputSlot("LearningRate");
    op.skip = def_.InputSlot("SkipUpdate");
    size_t i = 0;
    for (std::string_view slot : state) op.state[i++] = def_.InputSlot(slot);
    i = 0;
    for (std::string_view slot : powers) {
      op.powers[i++] = def_.InputSlot(slot);
      op.advances_powers = def_.OutputSlot(std::string(slot) + "Out") >= 0;
    }
    return op;
  }

 private:
  const OpDef& def_;
  const Attrs& attrs_;
};

OptimizerOp ReadMomentum(const Reader& r) {
  OptimizerOp op =
      r.Op(optim::Momentum{.mu = r.attr("mu"),
                           .nesterov = r.attr<bool>("use_nesterov")},
           {"Velocity"});
  if (r.attr<std::string>("regularization_method") == "l2_decay") {
    op.decay[0].l2 = r.attr("regularization_coeff");
  }
  return op;
}

OptimizerOp ReadAdam(const Reader& r) {
  return r.Op(optim::Adam{.beta1 = r.attr("beta1"),
                          .beta2 = r.attr("beta2"),
                          .epsilon = r.attr("epsilon"),
                          .lazy = r.attr<bool>("lazy_mode")},
              {"Moment1", "Moment2"}, {"Beta1Pow", "Beta2Pow"});
}

OptimizerOp ReadAdamW(const Reader& r) {
  OptimizerOp op = ReadAdam(r);
  if (r.attr<bool>("with_decay")) op.decay[0].decoupled = r.attr("coeff");
  op.rate_factor = r.attr("lr_ratio");
  return op;
}

OptimizerOp ReadLamb(const Reader& r) {
  OptimizerOp op =
      r.Op(optim::Lamb{.beta1 = r.attr("beta1"),
                       .beta2 = r.attr("beta2"),
                       .epsilon = r.attr("epsilon"),
                       .always_adapt = r.attr<bool>("always_adapt")},
           {"Moment1", "Moment2"}, {"Beta1Pow", "Beta2Pow"});
  op.decay[0].decoupled = r.attr("weight_decay");
  return op;
}

OptimizerOp ReadRmsProp(const Reader& r) {
  return r.Op(optim::RmsProp{.rho = r.attr("decay"),
                             .epsilon = r.attr("epsilon"),
                             .momentum = r.attr("momentum"),
                             .centered = r.attr<bool>("centered")},
              {"Moment", "MeanSquare", "MeanGrad"});
}

OptimizerOp ReadLars(const Reader& r) {
  OptimizerOp op = r.Op(optim::Lars{.mu = r.attr("mu"),
                                    .coefficient = r.attr("lars_coeff"),
                                    .epsilon = r.attr("epsilon")},
                        {"Velocity"});
  op.decay.clear();
  for (double decay : r.attr<std::vector<double>>("lars_weight_decay")) {
    op.decay.push_back({.decoupled = decay});
  }
  if (op.decay.empty()) op.decay.resize(1);
  op.transform.scale = r.attr("rescale_grad");
  return op;
}

// ---- applying

double Number(const at::Tensor& t) {
  TORCH_CHECK(t.numel() == 1,
              "the learning rate and the powers of beta are "
              "one number each, not ",
              t.sizes());
  if (!t.device().is_cpu()) return t.item<double>();
  return t.scalar_type() == at::kFloat ? *t.const_data_ptr<float>()
                                       : t.item<double>();
}

// An update made ready: dense memory of one type, or some of its rows.
struct Work {
  const OptimizerUpdate* update;
  at::Tensor values;
  at::Tensor gradient;
  at::Tensor rows;  // undefined: all
  std::array<at::Tensor, optim::kMaxState> state;
  std::array<double, optim::kMaxPowers> powers = {};
  double learning_rate = 1.0;
  bool on_gpu = false;  // by GpuApply: the numbers above stay unread
};

// Whether a kernel of our own takes it, which reads learning rate and powers
// where they are.
bool TakesGpuPath(const optim::UpdateRule& rule,
                  const OptimizerUpdate& update) {
  const at::Device device = update.values.device();
  auto is_number = [&](const at::Tensor& t) {
    return t.defined() && t.device() == device &&
           t.scalar_type() == at::kFloat && t.numel() == 1;
  };
  if (!device.is_cuda() || update.values.scalar_type() == at::kDouble ||
      update.gradient.layout() != at::kStrided ||
      (update.learning_rate.defined() && !is_number(update.learning_rate))) {
    return false;
  }
  for (size_t k = 0; k < optim::PowerNames(rule).size(); ++k) {
    if (!is_number(update.powers[k])) return false;
  }
  return GpuUpdates(rule) && HasGpuKernels(device);
}

// `t` as contiguous memory of `type`: itself where possible.
at::Tensor Dense(const at::Tensor& t, at::ScalarType type) {
  return (t.scalar_type() == type ? t : t.to(type)).contiguous();
}

Work Prepare(const optim::UpdateRule& rule, const OptimizerUpdate& update) {
  TORCH_CHECK(update.values.is_floating_point(),
              "a parameter must be floating point");
  TORCH_CHECK(update.gradient.defined(), "the gradient has no value");
  TORCH_CHECK(update.gradient.sizes() == update.values.sizes(),
              "the gradient has shape ", update.gradient.sizes(),
              ", the parameter ", update.values.sizes());
  Work work{.update = &update};
  const at::ScalarType given = update.values.scalar_type();
  const at::ScalarType type = given == at::kDouble ? at::kDouble : at::kFloat;
  work.values = Dense(update.values, type);
  at::Tensor gradient = update.gradient;
  if (gradient.layout() == at::kSparse) {
    if (gradient.sparse_dim() == 1 && update.decay.l1 == 0.0 &&
        update.decay.l2 == 0.0 && optim::UpdatesOnlyGivenRows(rule)) {
      MergedRows merged = MergeRows(gradient);
      work.rows = std::move(merged.rows);
      gradient = std::move(merged.values);
    } else {
      gradient = gradient.to_dense();
    }
  }
  work.gradient = Dense(gradient, type);
  const size_t num_state = optim::StateNames(rule).size();
  for (size_t k = 0; k < num_state; ++k) {
    const at::Tensor& state = update.state[k];
    if (!state.defined()) {  // rmsprop without mean: never read
      work.state[k] = at::zeros_like(work.values);
      continue;
    }
    TORCH_CHECK(state.sizes() == update.values.sizes(),
                "the optimizer's state has shape ", state.sizes(),
                ", the parameter ", update.values.sizes());
    work.state[k] = Dense(state, type);
  }
  work.on_gpu = TakesGpuPath(rule, update);
  if (work.on_gpu) return work;
  const size_t num_powers = optim::PowerNames(rule).size();
  for (size_t k = 0; k < num_powers; ++k) {
    work.powers[k] = Number(update.powers[k]);
  }
  if (update.learning_rate.defined()) {
    work.learning_rate = Number(update.learning_rate);
    // A rate of a program with parameters of doubles, too, is one of floats
    // here.
    if (type == at::kFloat) {
      work.learning_rate = static_cast<float>(work.learning_rate);
    }
  }
  work.learning_rate *= update.rate_factor;
  return work;
}

template <class T>
void ApplyOnMemory(const optim::UpdateRule& rule, std::span<Work> works) {
  size_t num_slices = 0;
  for (const Work& work : works) {
    num_slices += work.rows.defined() ? work.rows.numel() : 1;
  }
  std::vector<optim::Slice<T>> slices;
  slices.reserve(num_slices);  // the updates point into it
  std::vector<std::array<T, optim::kMaxPowers>> powers(works.size());
  std::vector<optim::Update<T>> updates(works.size());
  const size_t num_state = optim::StateNames(rule).size();
  for (size_t i = 0; i < works.size(); ++i) {
    Work& work = works[i];
    optim::Slice<T> whole{work.values.mutable_data_ptr<T>(),
                          work.gradient.const_data_ptr<T>(),
                          {},
                          work.values.numel()};
    for (size_t k = 0; k < num_state; ++k) {
      whole.state[k] = work.state[k].mutable_data_ptr<T>();
    }
    const size_t begin = slices.size();
    if (!work.rows.defined()) {
      slices.push_back(whole);
    } else {
      const int64_t width = whole.size / work.values.size(0);
      const int64_t* rows = work.rows.const_data_ptr<int64_t>();
      for (int64_t r = 0; r < work.rows.numel(); ++r) {
        optim::Slice<T> row{whole.values + rows[r] * width,
                            whole.gradient + r * width,
                            {},
                            width};
        for (size_t k = 0; k < num_state; ++k) {
          row.state[k] = whole.state[k] + rows[r] * width;
        }
        slices.push_back(row);
      }
    }
    optim::Update<T>& update = updates[i];
    update.slices = {slices.data() + begin, slices.size() - begin};
    for (size_t k = 0; k < optim::kMaxPowers; ++k) {
      powers[i][k] = static_cast<T>(work.powers[k]);
      update.powers[k] = &powers[i][k];
    }
    update.learning_rate = work.learning_rate;
    update.decay = work.update->decay;
    update.transform = work.update->transform;
  }
  optim::Apply<T>(rule, updates);
}

void ApplyOnTensors(const optim::UpdateRule& rule, std::span<Work> works) {
  const size_t num_state = optim::StateNames(rule).size();
  const size_t num_powers = optim::PowerNames(rule).size();
  std::vector<TensorUpdate> updates;
  for (const Work& work : works) {
    auto part = [&](const at::Tensor& whole) {
      return work.rows.defined() ? whole.index_select(0, work.rows) : whole;
    };
    TensorUpdate& update = updates.emplace_back();
    update.values = part(work.values);
    update.gradient = work.gradient;
    for (size_t k = 0; k < num_state; ++k) {
      update.state[k] = part(work.state[k]);
    }
    for (size_t k = 0; k < num_powers; ++k) {
      update.powers[k] = at::scalar_tensor(work.powers[k], at::kDouble);
    }
    update.learning_rate = work.learning_rate;
    update.decay = work.update->decay;
    update.transform = work.update->transform;
  }
  ApplyForeach(rule, updates);
  for (size_t i = 0; i < works.size(); ++i) {
    Work& work = works[i];
    if (!work.rows.defined()) continue;
    work.values.index_copy_(0, work.rows, updates[i].values);
    for (size_t k = 0; k < num_state; ++k) {
      work.state[k].index_copy_(0, work.rows, updates[i].state[k]);
    }
  }
}

void ApplyOnGpu(const optim::UpdateRule& rule, std::span<Work> works) {
  std::vector<GpuUpdate> updates;
  updates.reserve(works.size());
  for (const Work& work : works) {
    const OptimizerUpdate& from = *work.update;
    updates.push_back({.values = work.values,
                       .gradient = work.gradient,
                       .state = work.state,
                       .learning_rate = from.learning_rate,
                       .powers = from.powers,
                       .decay = from.decay,
                       .transform = from.transform,
                       .rate_factor = from.rate_factor,
                       .advances_powers = from.advances_powers});
  }
  GpuApply(rule, updates);
}

// What was changed in a copy goes back; the powers move on.
void Finish(const optim::UpdateRule& rule, const Work& work) {
  auto put_back = [](const at::Tensor& to, const at::Tensor& from) {
    if (to.defined() && !to.is_same(from)) to.copy_(from);
  };
  const OptimizerUpdate& update = *work.update;
  put_back(update.values, work.values);
  for (size_t k = 0; k < optim::StateNames(rule).size(); ++k) {
    put_back(update.state[k], work.state[k]);
  }
  if (!update.advances_powers || work.on_gpu) return;
  for (size_t k = 0; k < optim::PowerNames(rule).size(); ++k) {
    update.powers[k].fill_(work.powers[k] * optim::PowerBase(rule, k));
  }
}

}  // namespace

std::optional<OptimizerOp> ReadOptimizerOp(const OpDef& def,
                                           const Attrs& attrs) {
  const Reader r(def, attrs);
  const std::string_view name = def.name;
  if (name == "sgd") return r.Op(optim::Sgd{}, {});
  if (name == "momentum") return ReadMomentum(r);
  if (name == "adam") return ReadAdam(r);
  if (name == "adamw") return ReadAdamW(r);
  if (name == "lamb") return ReadLamb(r);
  if (name == "rmsprop") return ReadRmsProp(r);
  if (name == "lars_momentum") return ReadLars(r);
  if (name == "adagrad") {
    return r.Op(optim::Adagrad{.epsilon = r.attr("epsilon")}, {"Moment"});
  }
  if (name == "adamax") {
    return r.Op(optim::Adamax{.beta1 = r.attr("beta1"),
                              .beta2 = r.attr("beta2"),
                              .epsilon = r.attr("epsilon")},
                {"Moment", "InfNorm"}, {"Beta1Pow"});
  }
  if (name == "adadelta") {
    return r.Op(
        optim::Adadelta{.rho = r.attr("rho"), .epsilon = r.attr("epsilon")},
        {"AvgSquaredGrad", "AvgSquaredUpdate"});
  }
  if (name == "ftrl") {
    return r.Op(optim::Ftrl{.l1 = r.attr("l1"),
                            .l2 = r.attr("l2"),
                            .power = r.attr("lr_power")},
                {"SquaredAccumulator", "LinearAccumulator"});
  }
  return std::nullopt;
}

void ApplyOptimizer(const optim::UpdateRule& rule,
                    std::span<const OptimizerUpdate> updates) {
  std::vector<Work> works;
  works.reserve(updates.size());
  for (const OptimizerUpdate& update : updates) {
    works.push_back(Prepare(rule, update));
  }
  // One pass per kind of memory; nearly always there is just one.
  for (auto begin = works.begin(); begin != works.end();) {
    const at::Tensor first = begin->values;
    const bool on_gpu = begin->on_gpu;
    auto end = std::stable_partition(begin, works.end(), [&](const Work& w) {
      return w.values.device() == first.device() &&
             w.values.scalar_type() == first.scalar_type() &&
             w.on_gpu == on_gpu;
    });
    const std::span<Work> group(&*begin, end - begin);
    if (on_gpu) {
      ApplyOnGpu(rule, group);
    } else if (!first.device().is_cpu()) {
      ApplyOnTensors(rule, group);
    } else if (first.scalar_type() == at::kFloat) {
      ApplyOnMemory<float>(rule, group);
    } else {
      ApplyOnMemory<double>(rule, group);
    }
    begin = end;
  }
  for (const Work& work : works) Finish(rule, work);
}

}  // namespace fleet::ops
