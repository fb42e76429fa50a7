// SPDX-License-Identifier: Apache-2.0
//
// The update rules: how a gradient changes a parameter. A rule is a plain
// value that holds its hyper-parameters; what it remembers between steps
// belongs to whoever owns the parameter (an eager optimizer, a program's scope,
// a row of a table) and is described by the tables of names below.
//
// Formulas, initial values, names and the place of epsilon are Paddle's. In
// them p is the value, g the gradient after clipping and decay, lr the learning
// rate of the step.

#ifndef FLEET_OPTIM_UPDATE_RULE_H_
#define FLEET_OPTIM_UPDATE_RULE_H_

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <variant>

namespace fleet::optim {

// No rule keeps more than this many values per element, or more than this many
// scalars per parameter.
inline constexpr size_t kMaxState = 3;
inline constexpr size_t kMaxPowers = 2;

// p -= lr * g
struct Sgd {
  static constexpr std::array<std::string_view, 0> kState = {};
  static constexpr std::array<std::string_view, 0> kPowers = {};

  friend bool operator==(const Sgd&, const Sgd&) = default;
};

// v = mu * v + g;  p -= lr * v, or with nesterov p -= lr * (g + mu * v)
struct Momentum {
  double mu = 0.9;
  bool nesterov = false;

  static constexpr std::array<std::string_view, 1> kState = {"velocity"};
  static constexpr std::array<std::string_view, 0> kPowers = {};

  friend bool operator==(const Momentum&, const Momentum&) = default;
};

// m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
// p -= lr * sqrt(1 - beta2^t) / (1 - beta1^t)
//         * m / (sqrt(v) + epsilon * sqrt(1 - beta2^t))
// AdamW is this rule with Decay::decoupled.
struct Adam {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // Rows that a sparse gradient does not name stay as they are. Otherwise they
  // are updated as if their gradient were zero.
  bool lazy = false;

  static constexpr std::array<std::string_view, 2> kState = {"moment1",
                                                             "moment2"};
  static constexpr std::array<std::string_view, 2> kPowers = {"beta1_pow_acc",
                                                              "beta2_pow_acc"};

  friend bool operator==(const Adam&, const Adam&) = default;
};

// s += g * g;  p -= lr * g / (sqrt(s) + epsilon)
struct Adagrad {
  double epsilon = 1e-6;
  double initial = 0.0;  // of s

  static constexpr std::array<std::string_view, 1> kState = {"moment"};
  static constexpr std::array<std::string_view, 0> kPowers = {};

  friend bool operator==(const Adagrad&, const Adagrad&) = default;
};

// m = beta1 * m + (1 - beta1) * g;  u = max(|g|, beta2 * u + epsilon)
// p -= lr / (1 - beta1^t) * m / u
struct Adamax {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;

  static constexpr std::array<std::string_view, 2> kState = {"moment",
                                                             "inf_norm"};
  static constexpr std::array<std::string_view, 1> kPowers = {"beta1_pow_acc"};

  friend bool operator==(const Adamax&, const Adamax&) = default;
};

// s = rho * s + (1 - rho) * g * g;  a = rho * a + (1 - rho) * g if centered
// b = momentum * b + lr * g / sqrt(s - a * a + epsilon);  p -= b
// "mean_grad" (a) stays zero unless centered.
struct RmsProp {
  double rho = 0.95;
  double epsilon = 1e-6;
  double momentum = 0.0;
  bool centered = false;

  static constexpr std::array<std::string_view, 3> kState = {
      "momentum", "mean_square", "mean_grad"};
  static constexpr std::array<std::string_view, 0> kPowers = {};

  friend bool operator==(const RmsProp&, const RmsProp&) = default;
};

// s = rho * s + (1 - rho) * g * g;  d = g * sqrt((u + epsilon) / (s + epsilon))
// u = rho * u + (1 - rho) * d * d;  p -= lr * d
struct Adadelta {
  double rho = 0.95;
  double epsilon = 1e-6;

  static constexpr std::array<std::string_view, 2> kState = {
      "_avg_squared_grad", "_avg_squared_update"};
  static constexpr std::array<std::string_view, 0> kPowers = {};

  friend bool operator==(const Adadelta&, const Adadelta&) = default;
};

// m, v as in Adam;  d = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) +
// epsilon) + decay * p;  p -= lr * |p| / |d| * d, with norms over the whole
// parameter. The ratio is 1 where one of them is zero, and for a parameter
// without decay unless always_adapt. The decay is the parameter's
// Decay::decoupled.
struct Lamb {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  bool always_adapt = false;

  static constexpr std::array<std::string_view, 2> kState = {"moment1",
                                                             "moment2"};
  static constexpr std::array<std::string_view, 2> kPowers = {"beta1_pow_acc",
                                                              "beta2_pow_acc"};

  friend bool operator==(const Lamb&, const Lamb&) = default;
};

// r = lr * coefficient * |p| / (|g| + decay * |p| + epsilon), with norms over
// the whole parameter; r = lr where there is no decay or a norm is zero.
// v = mu * v + r * (g + decay * p);  p -= v
// The decay is the parameter's Decay::decoupled.
struct Lars {
  double mu = 0.9;
  double coefficient = 0.001;
  double epsilon = 0.0;

  static constexpr std::array<std::string_view, 1> kState = {"velocity"};
  static constexpr std::array<std::string_view, 0> kPowers = {};

  friend bool operator==(const Lars&, const Lars&) = default;
};

// n' = n + g * g;  z += g - (n'^-power - n^-power) / lr * p;  n = n'
// p = (l1 * sign(z) - z) / (n^-power / lr + 2 * l2) if |z| > l1, otherwise 0
// l1 and l2 are taken 1e-10 larger than given, as Paddle does.
struct Ftrl {
  double l1 = 0.0;
  double l2 = 0.0;
  double power = -0.5;

  static constexpr std::array<std::string_view, 2> kState = {"squared",
                                                             "linear"};
  static constexpr std::array<std::string_view, 0> kPowers = {};

  friend bool operator==(const Ftrl&, const Ftrl&) = default;
};

using UpdateRule = std::variant<Sgd, Momentum, Adam, Adagrad, Adamax, RmsProp,
                                Adadelta, Lamb, Lars, Ftrl>;

// What the rule keeps for every element, by Paddle's names, in the order of
// Slice::state; each begins at InitialState. The names live as long as the
// program.
std::span<const std::string_view> StateNames(const UpdateRule& rule);
double InitialState(const UpdateRule& rule);

// What the rule keeps once per parameter, in the order of Update::powers: the
// powers beta^t of step t. Each begins at its PowerBase (t = 1) and is
// multiplied by it after every step.
std::span<const std::string_view> PowerNames(const UpdateRule& rule);
double PowerBase(const UpdateRule& rule, size_t power);

// Whether rows without a gradient are left alone, so that a sparse gradient
// costs only the rows that it names. For the other rules a missing row counts
// as a gradient of zero.
bool UpdatesOnlyGivenRows(const UpdateRule& rule);

}  // namespace fleet::optim

#endif  // FLEET_OPTIM_UPDATE_RULE_H_
