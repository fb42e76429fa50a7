// SPDX-License-Identifier: Apache-2.0

#include "fleet/optim/update.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <variant>

#include "fleet/optim/cpu_targets.h"

namespace fleet::optim {
namespace {

// The gradient as it is: no clip, no decay.
template <class T>
struct Plain {
  FLEET_OPTIM_INLINE T operator()(T gradient, T) const { return gradient; }
};

// The gradient after clip and decay, in Paddle's order.
template <class T>
struct Adjusted {
  explicit Adjusted(const Update<T>& update)
      : scale(static_cast<T>(update.transform.scale)),
        min(static_cast<T>(update.transform.min)),
        max(static_cast<T>(update.transform.max)),
        l1(static_cast<T>(update.decay.l1)),
        l2(static_cast<T>(update.decay.l2)) {}

  FLEET_OPTIM_INLINE T operator()(T gradient, T value) const {
    T g = gradient * scale;
    // Written so that NaN passes through.
    g = g < min ? min : g;
    g = g > max ? max : g;
    const T sign = static_cast<T>((value > T(0)) - (value < T(0)));
    // Zero times a value that is infinite would be NaN.
    const T pull = l2 == T(0) ? T(0) : l2 * value;
    return g + l1 * sign + pull;
  }

  T scale;
  T min;
  T max;
  T l1;
  T l2;
};

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

// The values of all slices of a parameter become what `step` says. It is given
// the decayed value, the gradient and the element of each of the rule's states,
// which it may change. `gradient` is Plain or Adjusted.
template <size_t kStates, class T, class Gradient, class Step>
FLEET_OPTIM_INLINE void ForEach(const Update<T>& update, Gradient gradient,
                                Step step) {
  static_assert(kStates <= kMaxState);
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
      if constexpr (kStates == 0) p[i] = step(value, g);
      if constexpr (kStates == 1) p[i] = step(value, g, s0[i]);
      if constexpr (kStates == 2) p[i] = step(value, g, s0[i], s1[i]);
      if constexpr (kStates == 3) p[i] = step(value, g, s0[i], s1[i], s2[i]);
    }
  }
}

// Below, one function per rule. Scalars are worked out in double and rounded
// once.

template <class T, class Gradient>
FLEET_OPTIM_INLINE void Run(const Sgd&, const Update<T>& update,
                            Gradient gradient) {
  const T lr = static_cast<T>(update.learning_rate);
  ForEach<0>(update, gradient,
             [=](T value, T g)
                 __attribute__((always_inline)) { return value - lr * g; });
}

template <class T, class Gradient>
FLEET_OPTIM_INLINE void Run(const Momentum& rule, const Update<T>& update,
                            Gradient gradient) {
  const T lr = static_cast<T>(update.learning_rate);
  const T mu = static_cast<T>(rule.mu);
  // The step is g * direct + v * along.
  const T direct = rule.nesterov ? T(1) : T(0);
  const T along = rule.nesterov ? mu : T(1);
  ForEach<1>(update, gradient,
             [=](T value, T g, T& velocity) __attribute__((always_inline)) {
               velocity = mu * velocity + g;
               return value - lr * (g * direct + velocity * along);
             });
}

template <class T, class Gradient>
FLEET_OPTIM_INLINE void Run(const Adam& rule, const Update<T>& update,
                            Gradient gradient) {
  const double correction2 = std::sqrt(1.0 - double{*update.powers[1]});
  const T lr = static_cast<T>(update.learning_rate * correction2 /
                              (1.0 - double{*update.powers[0]}));
  const T epsilon = static_cast<T>(rule.epsilon * correction2);
  const T beta1 = static_cast<T>(rule.beta1);
  const T beta2 = static_cast<T>(rule.beta2);
  const T rest1 = static_cast<T>(1.0 - rule.beta1);
  const T rest2 = static_cast<T>(1.0 - rule.beta2);
  ForEach<2>(update, gradient,
             [=](T value, T g, T& m, T& v) __attribute__((always_inline)) {
               m = beta1 * m + rest1 * g;
               v = beta2 * v + rest2 * g * g;
               return value - lr * (m / (std::sqrt(v) + epsilon));
             });
}

template <class T, class Gradient>
FLEET_OPTIM_INLINE void Run(const Adagrad& rule, const Update<T>& update,
                            Gradient gradient) {
  const T lr = static_cast<T>(update.learning_rate);
  const T epsilon = static_cast<T>(rule.epsilon);
  ForEach<1>(update, gradient,
             [=](T value, T g, T& moment) __attribute__((always_inline)) {
               moment = moment + g * g;
               return value - lr * g / (std::sqrt(moment) + epsilon);
             });
}

template <class T, class Gradient>
FLEET_OPTIM_INLINE void Run(const Adamax& rule, const Update<T>& update,
                            Gradient gradient) {
  const T lr =
      static_cast<T>(update.learning_rate / (1.0 - double{*update.powers[0]}));
  const T epsilon = static_cast<T>(rule.epsilon);
  const T beta1 = static_cast<T>(rule.beta1);
  const T beta2 = static_cast<T>(rule.beta2);
  const T rest1 = static_cast<T>(1.0 - rule.beta1);
  ForEach<2>(update, gradient,
             [=](T value, T g, T& m, T& norm) __attribute__((always_inline)) {
               m = beta1 * m + rest1 * g;
               const T size = std::abs(g);
               const T shrunk = beta2 * norm + epsilon;
               norm = size > shrunk ? size : shrunk;
               return value - lr * (m / norm);
             });
}

template <class T, class Gradient>
FLEET_OPTIM_INLINE void Run(const RmsProp& rule, const Update<T>& update,
                            Gradient gradient) {
  const T lr = static_cast<T>(update.learning_rate);
  const T epsilon = static_cast<T>(rule.epsilon);
  const T rho = static_cast<T>(rule.rho);
  const T rest = static_cast<T>(1.0 - rule.rho);
  const T momentum = static_cast<T>(rule.momentum);
  // Not centered, the mean gradient is zero and stays so.
  const T rest_mean = rule.centered ? rest : T(0);
  ForEach<3>(
      update, gradient,
      [=](T value, T g, T& step, T& mean_square, T& mean_grad)
          __attribute__((always_inline)) {
            mean_square = rho * mean_square + rest * g * g;
            mean_grad = rho * mean_grad + rest_mean * g;
            step = momentum * step +
                   lr * g /
                       std::sqrt(mean_square - mean_grad * mean_grad + epsilon);
            return value - step;
          });
}

template <class T, class Gradient>
FLEET_OPTIM_INLINE void Run(const Adadelta& rule, const Update<T>& update,
                            Gradient gradient) {
  const T lr = static_cast<T>(update.learning_rate);
  const T epsilon = static_cast<T>(rule.epsilon);
  const T rho = static_cast<T>(rule.rho);
  const T rest = static_cast<T>(1.0 - rule.rho);
  ForEach<2>(update, gradient,
             [=](T value, T g, T& squared_grad, T& squared_update)
                 __attribute__((always_inline)) {
                   squared_grad = rho * squared_grad + rest * g * g;
                   const T d = std::sqrt((squared_update + epsilon) /
                                         (squared_grad + epsilon)) *
                               g;
                   squared_update = rho * squared_update + rest * d * d;
                   return value - lr * d;
                 });
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

template <class T, class Gradient, class Root>
FLEET_OPTIM_INLINE void RunFtrl(const Ftrl& rule, const Update<T>& update,
                                Gradient gradient, Root root) {
  const T inverse_lr = static_cast<T>(1.0 / update.learning_rate);
  const T l1 = static_cast<T>(rule.l1 + 1e-10);
  const T twice_l2 = static_cast<T>(2.0 * (rule.l2 + 1e-10));
  ForEach<2>(
      update, gradient,
      [=](T value, T g, T& squared, T& linear) __attribute__((always_inline)) {
        const T n = squared + g * g;
        const T root_n = root(n);
        const T z = linear + g - (root_n - root(squared)) * inverse_lr * value;
        squared = n;
        linear = z;
        const T pull = z > T(0) ? l1 : -l1;
        // Asked the other way round, a NaN would become a zero.
        return std::abs(z) <= l1
                   ? T(0)
                   : (pull - z) / (root_n * inverse_lr + twice_l2);
      });
}

template <class T, class Gradient>
FLEET_OPTIM_INLINE void Run(const Ftrl& rule, const Update<T>& update,
                            Gradient gradient) {
  // A warm-up begins with a rate of zero: nothing changes then, as with other
  // rules. The formula would make `linear` infinite.
  if (update.learning_rate == 0.0) return;
  if (rule.power == -0.5) {
    RunFtrl(rule, update, gradient,
            [](T x) __attribute__((always_inline)) { return std::sqrt(x); });
  } else {
    const T exponent = static_cast<T>(-rule.power);
    RunFtrl(rule, update, gradient,
            [exponent](T x) __attribute__((always_inline)) {
              return std::pow(x, exponent);
            });
  }
}

template <class T, class Rule>
FLEET_OPTIM_INLINE void AdvancePowers(const Rule& rule,
                                      const Update<T>& update) {
  if constexpr (std::is_same_v<Rule, Adamax>) {
    // As the operation that does so in programs.
    *update.powers[0] *= static_cast<T>(rule.beta1);
  } else if constexpr (Rule::kPowers.size() > 0) {
    *update.powers[0] = static_cast<T>(*update.powers[0] * rule.beta1);
  }
  if constexpr (Rule::kPowers.size() > 1) {
    *update.powers[1] = static_cast<T>(*update.powers[1] * rule.beta2);
  }
}

template <class T, class Rule>
FLEET_OPTIM_INLINE void RunAll(const Rule& rule,
                               std::span<const Update<T>> updates) {
  for (const Update<T>& update : updates) {
    if (IsPlain(update)) {
      Run(rule, update, Plain<T>());
    } else {
      Run(rule, update, Adjusted<T>(update));
    }
    AdvancePowers(rule, update);
  }
}

template <class T, class Rule>
void RunBaseline(const Rule& rule, std::span<const Update<T>> updates) {
  RunAll(rule, updates);
}

template <class T, class Rule>
FLEET_OPTIM_AVX2 void RunAvx2(const Rule& rule,
                              std::span<const Update<T>> updates) {
  RunAll(rule, updates);
}

template <class T, class Rule>
FLEET_OPTIM_AVX512 void RunAvx512(const Rule& rule,
                                  std::span<const Update<T>> updates) {
  RunAll(rule, updates);
}

}  // namespace

template <class T>
void ApplyOn(CpuTarget target, const UpdateRule& rule,
             std::span<const Update<T>> updates) {
  std::visit(
      [target, updates](const auto& r) {
        switch (target) {
          case CpuTarget::kAvx512:
            return RunAvx512(r, updates);
          case CpuTarget::kAvx2:
            return RunAvx2(r, updates);
          case CpuTarget::kBaseline:
            return RunBaseline(r, updates);
        }
      },
      rule);
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
