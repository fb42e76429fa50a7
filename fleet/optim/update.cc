// SPDX-License-Identifier: Apache-2.0

#include "fleet/optim/update.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <variant>

#include "fleet/optim/cpu_targets.h"
#include "fleet/optim/rule_steps.h"

namespace fleet::optim {
namespace {

// The gradient as it is: no clip, no decay.
template <class T>
struct Plain {
  FLEET_OPTIM_INLINE T operator()(T gradient, T) const { return gradient; }
};

template <class T>
Adjusted<T> AdjustedBy(const Update<T>& update) {
  return {static_cast<T>(update.transform.scale),
          static_cast<T>(update.transform.min),
          static_cast<T>(update.transform.max), static_cast<T>(update.decay.l1),
          static_cast<T>(update.decay.l2)};
}

template <class T>
bool IsPlain(const Update<T>& update) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return update.decay.l1 == 0.0 && update.decay.l2 == 0.0 &&
         update.transform.scale == 1.0 && update.transform.min == -kInfinity &&
         update.transform.max == kInfinity;
}

// What is left of a value after decoupled decay.
template <class T>
T Keep(const Update<T>& update) {
  return static_cast<T>(1.0 - update.learning_rate * update.decay.decoupled);
}

// Steps find their rule by its place.
template <RuleNumber kNumber, class Rule>
constexpr bool kIsAt =
    std::is_same_v<std::variant_alternative_t<kNumber, UpdateRule>, Rule>;
static_assert(kIsAt<kSgd, Sgd> && kIsAt<kMomentum, Momentum> &&
              kIsAt<kAdam, Adam> && kIsAt<kAdagrad, Adagrad> &&
              kIsAt<kAdamax, Adamax> && kIsAt<kRmsProp, RmsProp> &&
              kIsAt<kAdadelta, Adadelta> && kIsAt<kLamb, Lamb> &&
              kIsAt<kLars, Lars> && kIsAt<kFtrl, Ftrl> &&
              std::variant_size_v<UpdateRule> == kFtrl + 1);

// What the steps of rule_steps.h are made from.
template <class T>
StepInput InputOf(const UpdateRule& rule, const Update<T>& update) {
  StepInput in{{}, update.learning_rate, {1.0, 1.0}};
  std::visit(CopyNumbers{in.number}, rule);
  for (size_t k = 0; k < PowerNames(rule).size(); ++k) {
    in.power[k] = *update.powers[k];
  }
  return in;
}

// The values of all slices of a parameter become what `step` says. `gradient`
// is Plain or Adjusted.
template <class T, class Gradient, class Step>
FLEET_OPTIM_INLINE void ForEach(const Update<T>& update, Gradient gradient,
                                Step step) {
  static_assert(Step::kStates <= kMaxState);
  const T keep = Keep(update);
  for (const Slice<T>& slice : update.slices) {
    T* __restrict p = slice.values;
    const T* __restrict raw = slice.gradient;
    // Pointers of their own, because the compiler believes that they differ.
    T* __restrict s0 = slice.state[0];
    T* __restrict s1 = slice.state[1];
    T* __restrict s2 = slice.state[2];
    for (int64_t i = 0; i < slice.size; ++i) {
      const T value = p[i] * keep;
      const T g = gradient(raw[i], p[i]);
      if constexpr (Step::kStates == 0) p[i] = step(value, g);
      if constexpr (Step::kStates == 1) p[i] = step(value, g, s0[i]);
      if constexpr (Step::kStates == 2) p[i] = step(value, g, s0[i], s1[i]);
      if constexpr (Step::kStates == 3) {
        p[i] = step(value, g, s0[i], s1[i], s2[i]);
      }
    }
  }
}

// Two passes: the first moves the moments and takes the norms, the second works
// the direction out again instead of keeping it.
template <class T, class Gradient>
FLEET_OPTIM_INLINE void Run(const Lamb& rule, const Update<T>& update,
                            Gradient gradient) {
  const T unbias1 = static_cast<T>(1.0 / (1.0 - double{*update.powers[0]}));
  const T unbias2 = static_cast<T>(1.0 / (1.0 - double{*update.powers[1]}));
  const T epsilon = static_cast<T>(rule.epsilon);
  const T decay = static_cast<T>(update.decay.decoupled);
  const T beta1 = static_cast<T>(rule.beta1);
  const T beta2 = static_cast<T>(rule.beta2);
  const T rest1 = static_cast<T>(1.0 - rule.beta1);
  const T rest2 = static_cast<T>(1.0 - rule.beta2);
  auto direction = [=](T value, T m, T v) __attribute__((always_inline)) {
    return m * unbias1 / (std::sqrt(v * unbias2) + epsilon) + decay * value;
  };

  double value_squares = 0.0;
  double direction_squares = 0.0;
  for (const Slice<T>& slice : update.slices) {
    const T* __restrict p = slice.values;
    const T* __restrict raw = slice.gradient;
    T* __restrict moment1 = slice.state[0];
    T* __restrict moment2 = slice.state[1];
    value_squares +=
        SumSquares(slice.size, [=](int64_t i) __attribute__((always_inline)) {
          return static_cast<double>(p[i]);
        });
    direction_squares +=
        SumSquares(slice.size, [=](int64_t i) __attribute__((always_inline)) {
          const T g = gradient(raw[i], p[i]);
          const T m = beta1 * moment1[i] + rest1 * g;
          const T v = beta2 * moment2[i] + rest2 * g * g;
          moment1[i] = m;
          moment2[i] = v;
          return static_cast<double>(direction(p[i], m, v));
        });
  }

  const bool adapt = rule.always_adapt || update.decay.decoupled > 0.0;
  const double ratio = adapt && value_squares > 0.0 && direction_squares > 0.0
                           ? std::sqrt(value_squares / direction_squares)
                           : 1.0;
  const T lr = static_cast<T>(update.learning_rate * ratio);
  for (const Slice<T>& slice : update.slices) {
    T* __restrict p = slice.values;
    const T* __restrict moment1 = slice.state[0];
    const T* __restrict moment2 = slice.state[1];
    for (int64_t i = 0; i < slice.size; ++i) {
      p[i] -= lr * direction(p[i], moment1[i], moment2[i]);
    }
  }
}

template <class T, class Gradient>
FLEET_OPTIM_INLINE void Run(const Lars& rule, const Update<T>& update,
                            Gradient gradient) {
  const double decay = update.decay.decoupled;
  double value_squares = 0.0;
  double gradient_squares = 0.0;
  for (const Slice<T>& slice : update.slices) {
    const T* __restrict p = slice.values;
    const T* __restrict raw = slice.gradient;
    value_squares +=
        SumSquares(slice.size, [=](int64_t i) __attribute__((always_inline)) {
          return static_cast<double>(p[i]);
        });
    gradient_squares +=
        SumSquares(slice.size, [=](int64_t i) __attribute__((always_inline)) {
          return static_cast<double>(gradient(raw[i], p[i]));
        });
  }

  double rate = update.learning_rate;
  if (decay > 0.0 && value_squares > 0.0 && gradient_squares > 0.0) {
    const double value_norm = std::sqrt(value_squares);
    rate *= rule.coefficient * value_norm /
            (std::sqrt(gradient_squares) + decay * value_norm + rule.epsilon);
  }
  const T lr = static_cast<T>(rate);
  const T shrink = static_cast<T>(decay);
  const T mu = static_cast<T>(rule.mu);
  for (const Slice<T>& slice : update.slices) {
    T* __restrict p = slice.values;
    const T* __restrict raw = slice.gradient;
    T* __restrict velocity = slice.state[0];
    for (int64_t i = 0; i < slice.size; ++i) {
      const T g = gradient(raw[i], p[i]) + shrink * p[i];
      const T v = mu * velocity[i] + lr * g;
      velocity[i] = v;
      p[i] -= v;
    }
  }
}

template <class T, class Gradient>
FLEET_OPTIM_INLINE void Run(const UpdateRule& rule, const Update<T>& update,
                            Gradient gradient) {
  if (const Lamb* lamb = std::get_if<Lamb>(&rule)) {
    return Run(*lamb, update, gradient);
  }
  if (const Lars* lars = std::get_if<Lars>(&rule)) {
    return Run(*lars, update, gradient);
  }
  WithStep<T>(static_cast<int>(rule.index()), InputOf(rule, update),
              [&](const auto& step) __attribute__((always_inline)) {
                ForEach(update, gradient, step);
              });
}

template <class T>
FLEET_OPTIM_INLINE void RunAll(const UpdateRule& rule,
                               std::span<const Update<T>> updates) {
  for (const Update<T>& update : updates) {
    if (IsPlain(update)) {
      Run(rule, update, Plain<T>());
    } else {
      Run(rule, update, AdjustedBy(update));
    }
    for (size_t k = 0; k < PowerNames(rule).size(); ++k) {
      T& power = *update.powers[k];
      power = AdvancedPower(static_cast<int>(rule.index()), power,
                            PowerBase(rule, k));
    }
  }
}

template <class T>
void RunBaseline(const UpdateRule& rule, std::span<const Update<T>> updates) {
  RunAll(rule, updates);
}

template <class T>
FLEET_OPTIM_AVX2 void RunAvx2(const UpdateRule& rule,
                              std::span<const Update<T>> updates) {
  RunAll(rule, updates);
}

template <class T>
FLEET_OPTIM_AVX512 void RunAvx512(const UpdateRule& rule,
                                  std::span<const Update<T>> updates) {
  RunAll(rule, updates);
}

}  // namespace

template <class T>
void ApplyOn(CpuTarget target, const UpdateRule& rule,
             std::span<const Update<T>> updates) {
  switch (target) {
    case CpuTarget::kAvx512:
      return RunAvx512(rule, updates);
    case CpuTarget::kAvx2:
      return RunAvx2(rule, updates);
    case CpuTarget::kBaseline:
      return RunBaseline(rule, updates);
  }
}

template <class T>
void Apply(const UpdateRule& rule, std::span<const Update<T>> updates) {
  ApplyOn(BestCpuTarget(), rule, updates);
}

template void ApplyOn(CpuTarget, const UpdateRule&,
                      std::span<const Update<float>>);
template void ApplyOn(CpuTarget, const UpdateRule&,
                      std::span<const Update<double>>);
template void Apply(const UpdateRule&, std::span<const Update<float>>);
template void Apply(const UpdateRule&, std::span<const Update<double>>);

}  // namespace fleet::optim
