// SPDX-License-Identifier: Apache-2.0

// The arithmetic of the update rules, for one element and every device: what
// update_rule.h has as formulas stands here once as code. update.cc compiles it
// for CPUs. GPUs get this file as a text (ops/gpu_source.h), so it is C++17 and
// includes nothing there. Lamb and Lars, which look at a whole parameter, are
// in update.cc.
//
// A step is made once for a parameter; its scalars are worked out in double and
// rounded once. It is given the value after decoupled decay, the gradient after
// clip and decay, and the element of each of the rule's states, which it
// changes; it gives the new value.

#ifndef FLEET_OPTIM_RULE_STEPS_H_
#define FLEET_OPTIM_RULE_STEPS_H_

#ifdef __CUDACC_RTC__
#define FLEET_OPTIM_STEP __device__ __forceinline__
#else
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <variant>

#include "fleet/optim/update_rule.h"

#define FLEET_OPTIM_STEP inline __attribute__((always_inline))
#endif

namespace fleet {
namespace optim {

// Rules by number: their places in UpdateRule.
enum RuleNumber {
  kSgd,
  kMomentum,
  kAdam,
  kAdagrad,
  kAdamax,
  kRmsProp,
  kAdadelta,
  kLamb,
  kLars,
  kFtrl
};

// What a step is made from.
struct StepInput {
  double number[4];  // what CopyNumbers() gives
  double rate;
  double power[2];  // before this step; 1 where the rule keeps none
};

#ifdef __CUDACC_RTC__
FLEET_OPTIM_STEP float Root(float x) { return sqrtf(x); }
FLEET_OPTIM_STEP double Root(double x) { return sqrt(x); }
FLEET_OPTIM_STEP float Size(float x) { return fabsf(x); }
FLEET_OPTIM_STEP float Power(float x, float y) { return powf(x, y); }
#else
template <class T>
FLEET_OPTIM_STEP T Root(T x) {
  return std::sqrt(x);
}
template <class T>
FLEET_OPTIM_STEP T Size(T x) {
  return std::abs(x);
}
template <class T>
FLEET_OPTIM_STEP T Power(T x, T y) {
  return std::pow(x, y);
}
#endif

#ifndef __CUDACC_RTC__
// The hyper-parameters of a rule in the order in which its step reads them.
struct CopyNumbers {
  double* to;

  void operator()(const Sgd&) const {}
  void operator()(const Momentum& r) const { Copy({r.mu, Flag(r.nesterov)}); }
  void operator()(const Adam& r) const { Copy({r.beta1, r.beta2, r.epsilon}); }
  void operator()(const Adagrad& r) const { Copy({r.epsilon}); }
  void operator()(const Adamax& r) const {
    Copy({r.beta1, r.beta2, r.epsilon});
  }
  void operator()(const RmsProp& r) const {
    Copy({r.rho, r.epsilon, r.momentum, Flag(r.centered)});
  }
  void operator()(const Adadelta& r) const { Copy({r.rho, r.epsilon}); }
  void operator()(const Lamb&) const {}
  void operator()(const Lars&) const {}
  void operator()(const Ftrl& r) const { Copy({r.l1, r.l2, r.power}); }

 private:
  static double Flag(bool on) { return on ? 1.0 : 0.0; }
  void Copy(std::initializer_list<double> numbers) const {
    std::copy(numbers.begin(), numbers.end(), to);
  }
};
#endif

// The gradient after clip and decay, in Paddle's order.
template <class T>
struct Adjusted {
  T scale, min, max, l1, l2;

  FLEET_OPTIM_STEP T operator()(T gradient, T value) const {
    T g = gradient * scale;
    // Written so that NaN passes through.
    g = g < min ? min : g;
    g = g > max ? max : g;
    const T sign = static_cast<T>((value > T(0)) - (value < T(0)));
    // Zero times a value that is infinite would be NaN.
    const T pull = l2 == T(0) ? T(0) : l2 * value;
    return g + l1 * sign + pull;
  }
};

template <class T>
struct SgdStep {
  static constexpr int kStates = 0;
  T lr;

  FLEET_OPTIM_STEP explicit SgdStep(const StepInput& in)
      : lr(static_cast<T>(in.rate)) {}
  FLEET_OPTIM_STEP T operator()(T value, T g) const { return value - lr * g; }
};

template <class T>
struct MomentumStep {
  static constexpr int kStates = 1;
  T lr, mu;
  // The step is g * direct + v * along.
  T direct, along;

  FLEET_OPTIM_STEP explicit MomentumStep(const StepInput& in)
      : lr(static_cast<T>(in.rate)),
        mu(static_cast<T>(in.number[0])),
        direct(in.number[1] != 0 ? T(1) : T(0)),
        along(in.number[1] != 0 ? mu : T(1)) {}
  FLEET_OPTIM_STEP T operator()(T value, T g, T& velocity) const {
    velocity = mu * velocity + g;
    return value - lr * (g * direct + velocity * along);
  }
};

template <class T>
struct AdamStep {
  static constexpr int kStates = 2;
  T beta1, beta2, rest1, rest2, lr, epsilon;

  FLEET_OPTIM_STEP explicit AdamStep(const StepInput& in)
      : beta1(static_cast<T>(in.number[0])),
        beta2(static_cast<T>(in.number[1])),
        rest1(static_cast<T>(1.0 - in.number[0])),
        rest2(static_cast<T>(1.0 - in.number[1])) {
    const double correction = Root(1.0 - in.power[1]);
    lr = static_cast<T>(in.rate * correction / (1.0 - in.power[0]));
    epsilon = static_cast<T>(in.number[2] * correction);
  }
  FLEET_OPTIM_STEP T operator()(T value, T g, T& m, T& v) const {
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    return value - lr * (m / (Root(v) + epsilon));
  }
};

template <class T>
struct AdagradStep {
  static constexpr int kStates = 1;
  T lr, epsilon;

  FLEET_OPTIM_STEP explicit AdagradStep(const StepInput& in)
      : lr(static_cast<T>(in.rate)), epsilon(static_cast<T>(in.number[0])) {}
  FLEET_OPTIM_STEP T operator()(T value, T g, T& moment) const {
    moment = moment + g * g;
    return value - lr * g / (Root(moment) + epsilon);
  }
};

template <class T>
struct AdamaxStep {
  static constexpr int kStates = 2;
  T lr, beta1, beta2, rest1, epsilon;

  FLEET_OPTIM_STEP explicit AdamaxStep(const StepInput& in)
      : lr(static_cast<T>(in.rate / (1.0 - in.power[0]))),
        beta1(static_cast<T>(in.number[0])),
        beta2(static_cast<T>(in.number[1])),
        rest1(static_cast<T>(1.0 - in.number[0])),
        epsilon(static_cast<T>(in.number[2])) {}
  FLEET_OPTIM_STEP T operator()(T value, T g, T& m, T& norm) const {
    m = beta1 * m + rest1 * g;
    const T size = Size(g);
    const T shrunk = beta2 * norm + epsilon;
    norm = size > shrunk ? size : shrunk;
    return value - lr * (m / norm);
  }
};

template <class T>
struct RmsPropStep {
  static constexpr int kStates = 3;
  T lr, rho, rest, epsilon, momentum;
  // Not centered, the mean gradient is zero and stays so.
  T rest_mean;

  FLEET_OPTIM_STEP explicit RmsPropStep(const StepInput& in)
      : lr(static_cast<T>(in.rate)),
        rho(static_cast<T>(in.number[0])),
        rest(static_cast<T>(1.0 - in.number[0])),
        epsilon(static_cast<T>(in.number[1])),
        momentum(static_cast<T>(in.number[2])),
        rest_mean(in.number[3] != 0 ? rest : T(0)) {}
  FLEET_OPTIM_STEP T operator()(T value, T g, T& step, T& mean_square,
                                T& mean_grad) const {
    mean_square = rho * mean_square + rest * g * g;
    mean_grad = rho * mean_grad + rest_mean * g;
    step = momentum * step +
           lr * g / Root(mean_square - mean_grad * mean_grad + epsilon);
    return value - step;
  }
};

template <class T>
struct AdadeltaStep {
  static constexpr int kStates = 2;
  T lr, rho, rest, epsilon;

  FLEET_OPTIM_STEP explicit AdadeltaStep(const StepInput& in)
      : lr(static_cast<T>(in.rate)),
        rho(static_cast<T>(in.number[0])),
        rest(static_cast<T>(1.0 - in.number[0])),
        epsilon(static_cast<T>(in.number[1])) {}
  FLEET_OPTIM_STEP T operator()(T value, T g, T& squared_grad,
                                T& squared_update) const {
    squared_grad = rho * squared_grad + rest * g * g;
    const T d = Root((squared_update + epsilon) / (squared_grad + epsilon)) * g;
    squared_update = rho * squared_update + rest * d * d;
    return value - lr * d;
  }
};

// `kIsRoot`: the power is -0.5.
template <class T, bool kIsRoot>
struct FtrlStep {
  static constexpr int kStates = 2;
  T inverse_lr, l1, twice_l2, exponent;

  FLEET_OPTIM_STEP explicit FtrlStep(const StepInput& in)
      : inverse_lr(static_cast<T>(1.0 / in.rate)),
        l1(static_cast<T>(in.number[0] + 1e-10)),
        twice_l2(static_cast<T>(2.0 * (in.number[1] + 1e-10))),
        exponent(static_cast<T>(-in.number[2])) {}
  FLEET_OPTIM_STEP T PowerOf(T x) const {
    return kIsRoot ? Root(x) : Power(x, exponent);
  }
  FLEET_OPTIM_STEP T operator()(T value, T g, T& squared, T& linear) const {
    const T n = squared + g * g;
    const T power_n = PowerOf(n);
    const T z = linear + g - (power_n - PowerOf(squared)) * inverse_lr * value;
    squared = n;
    linear = z;
    const T pull = z > T(0) ? l1 : -l1;
    // Asked the other way round, a NaN would become a zero.
    return Size(z) <= l1 ? T(0)
                         : (pull - z) / (power_n * inverse_lr + twice_l2);
  }
};

// Calls `f` with the step of a rule; there is one for all but Lamb and Lars.
template <class T, class F>
FLEET_OPTIM_STEP void WithStep(int rule, const StepInput& in, F f) {
  switch (rule) {
    case kSgd:
      return f(SgdStep<T>(in));
    case kMomentum:
      return f(MomentumStep<T>(in));
    case kAdam:
      return f(AdamStep<T>(in));
    case kAdagrad:
      return f(AdagradStep<T>(in));
    case kAdamax:
      return f(AdamaxStep<T>(in));
    case kRmsProp:
      return f(RmsPropStep<T>(in));
    case kAdadelta:
      return f(AdadeltaStep<T>(in));
    case kFtrl:
      // A warm-up begins with a rate of zero: nothing changes then, as with
      // other rules. The formula would make `linear` infinite.
      if (in.rate == 0) return;
      if (in.number[2] == -0.5) return f(FtrlStep<T, true>(in));
      return f(FtrlStep<T, false>(in));
  }
}

// A power of a rule after the step.
template <class T>
FLEET_OPTIM_STEP T AdvancedPower(int rule, T power, double base) {
  // Adamax: as the operation that does so in programs.
  return rule == kAdamax ? power * static_cast<T>(base)
                         : static_cast<T>(power * base);
}

}  // namespace optim
}  // namespace fleet

#endif  // FLEET_OPTIM_RULE_STEPS_H_
