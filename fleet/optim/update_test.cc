// SPDX-License-Identifier: Apache-2.0
//
// Each rule against a second implementation in double that is written from the
// textbook form (bias-corrected moments and so on), over several steps.

#include "fleet/optim/update.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/optim/cpu_targets.h"

namespace fleet::optim {
namespace {

using Vector = std::vector<double>;

double Norm(const Vector& x) {
  double sum = 0.0;
  for (double v : x) sum += v * v;
  return std::sqrt(sum);
}

// One parameter in double; Step is the rule's textbook.
struct Textbook {
  Vector p;
  Vector a, b, c;  // the rule's state, in the order of its names
  int t = 0;

  explicit Textbook(Vector values)
      : p(std::move(values)), a(p.size()), b(p.size()), c(p.size()) {}

  void Step(const Sgd&, const Vector& g, double lr, double keep) {
    for (size_t i = 0; i < p.size(); ++i) p[i] = p[i] * keep - lr * g[i];
  }
  void Step(const Momentum& r, const Vector& g, double lr, double keep) {
    for (size_t i = 0; i < p.size(); ++i) {
      a[i] = r.mu * a[i] + g[i];
      p[i] = p[i] * keep - lr * (r.nesterov ? g[i] + r.mu * a[i] : a[i]);
    }
  }
  void Step(const Adam& r, const Vector& g, double lr, double keep) {
    for (size_t i = 0; i < p.size(); ++i) {
      a[i] += (1 - r.beta1) * (g[i] - a[i]);
      b[i] += (1 - r.beta2) * (g[i] * g[i] - b[i]);
      const double m_hat = a[i] / (1 - std::pow(r.beta1, t));
      const double v_hat = b[i] / (1 - std::pow(r.beta2, t));
      p[i] = p[i] * keep - lr * m_hat / (std::sqrt(v_hat) + r.epsilon);
    }
  }
  void Step(const Adagrad& r, const Vector& g, double lr, double keep) {
    for (size_t i = 0; i < p.size(); ++i) {
      if (t == 1) a[i] = r.initial;
      a[i] += g[i] * g[i];
      p[i] = p[i] * keep - lr / (std::sqrt(a[i]) + r.epsilon) * g[i];
    }
  }
  void Step(const Adamax& r, const Vector& g, double lr, double keep) {
    for (size_t i = 0; i < p.size(); ++i) {
      a[i] += (1 - r.beta1) * (g[i] - a[i]);
      b[i] = std::max(std::fabs(g[i]), r.beta2 * b[i] + r.epsilon);
      p[i] = p[i] * keep - lr * a[i] / (1 - std::pow(r.beta1, t)) / b[i];
    }
  }
  void Step(const RmsProp& r, const Vector& g, double lr, double keep) {
    for (size_t i = 0; i < p.size(); ++i) {
      b[i] += (1 - r.rho) * (g[i] * g[i] - b[i]);
      if (r.centered) c[i] += (1 - r.rho) * (g[i] - c[i]);
      a[i] = r.momentum * a[i] +
             lr * g[i] / std::sqrt(b[i] - c[i] * c[i] + r.epsilon);
      p[i] = p[i] * keep - a[i];
    }
  }
  void Step(const Adadelta& r, const Vector& g, double lr, double keep) {
    for (size_t i = 0; i < p.size(); ++i) {
      a[i] += (1 - r.rho) * (g[i] * g[i] - a[i]);
      const double d =
          g[i] * std::sqrt(b[i] + r.epsilon) / std::sqrt(a[i] + r.epsilon);
      b[i] += (1 - r.rho) * (d * d - b[i]);
      p[i] = p[i] * keep - lr * d;
    }
  }
  void Step(const Lamb& r, const Vector& g, double lr, double decay) {
    Vector d(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      a[i] += (1 - r.beta1) * (g[i] - a[i]);
      b[i] += (1 - r.beta2) * (g[i] * g[i] - b[i]);
      const double m_hat = a[i] / (1 - std::pow(r.beta1, t));
      const double v_hat = b[i] / (1 - std::pow(r.beta2, t));
      d[i] = m_hat / (std::sqrt(v_hat) + r.epsilon) + decay * p[i];
    }
    const bool adapt = decay > 0 || r.always_adapt;
    const double trust =
        adapt && Norm(p) > 0 && Norm(d) > 0 ? Norm(p) / Norm(d) : 1.0;
    for (size_t i = 0; i < p.size(); ++i) p[i] -= lr * trust * d[i];
  }
  void Step(const Lars& r, const Vector& g, double lr, double decay) {
    double local = lr;
    if (decay > 0 && Norm(p) > 0 && Norm(g) > 0) {
      local = lr * r.coefficient * Norm(p) /
              (Norm(g) + decay * Norm(p) + r.epsilon);
    }
    for (size_t i = 0; i < p.size(); ++i) {
      a[i] = r.mu * a[i] + local * (g[i] + decay * p[i]);
      p[i] -= a[i];
    }
  }
  void Step(const Ftrl& r, const Vector& g, double lr, double keep) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double before = std::pow(a[i], -r.power);
      a[i] += g[i] * g[i];
      const double after = std::pow(a[i], -r.power);
      b[i] += g[i] - (after - before) / lr * p[i] * keep;
      const double l1 = r.l1 + 1e-10;
      const double l2 = r.l2 + 1e-10;
      p[i] = std::fabs(b[i]) > l1
                 ? (std::copysign(l1, b[i]) - b[i]) / (after / lr + 2 * l2)
                 : 0.0;
    }
  }
};

struct Case {
  std::string name;
  UpdateRule rule;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> Cases() {
  return {
      {"Sgd", Sgd{}},
      {"Momentum", Momentum{.mu = 0.8}},
      {"Nesterov", Momentum{.mu = 0.8, .nesterov = true}},
      {"Adam", Adam{}},
      {"AdamLargeEpsilon", Adam{.beta1 = 0.7, .beta2 = 0.9, .epsilon = 0.1}},
      {"Adagrad", Adagrad{.epsilon = 0.01, .initial = 0.2}},
      {"Adamax", Adamax{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3}},
      {"RmsProp", RmsProp{.rho = 0.9, .epsilon = 0.01}},
      {"RmsPropMomentum", RmsProp{.rho = 0.9, .momentum = 0.5}},
      {"RmsPropCentered",
       RmsProp{.rho = 0.9, .epsilon = 0.1, .momentum = 0.5, .centered = true}},
      {"Adadelta", Adadelta{.rho = 0.9, .epsilon = 0.01}},
      {"Lamb", Lamb{}},
      {"LambAlwaysAdapting", Lamb{.always_adapt = true}},
      {"Lars", Lars{.mu = 0.8, .coefficient = 0.3, .epsilon = 0.1}},
      {"Ftrl", Ftrl{.l1 = 0.05, .l2 = 0.1}},
      {"FtrlPower", Ftrl{.l1 = 0.05, .l2 = 0.1, .power = -0.7}},
  };
}

// A parameter of type T with the rule's state; `cuts` are the sizes of its
// slices.
template <class T>
struct Parameter {
  Parameter(const UpdateRule& rule, const Vector& start, Vector cuts)
      : values(start.begin(), start.end()), gradient(start.size()) {
    for (std::vector<T>& s : state) {
      s.assign(start.size(), static_cast<T>(InitialState(rule)));
    }
    for (size_t i = 0; i < kMaxPowers; ++i) {
      powers[i] = static_cast<T>(PowerBase(rule, i));
    }
    int64_t begin = 0;
    for (double cut : cuts) {
      const int64_t size = static_cast<int64_t>(cut);
      Slice<T> slice{values.data() + begin, gradient.data() + begin, {}, size};
      for (size_t k = 0; k < kMaxState; ++k) {
        slice.state[k] = state[k].data() + begin;
      }
      slices.push_back(slice);
      begin += size;
    }
  }

  Update<T> MakeUpdate(double lr) {
    return {.slices = slices,
            .powers = {&powers[0], &powers[1]},
            .learning_rate = lr};
  }

  // In place: the slices point into `gradient`.
  void SetGradient(const Vector& g) {
    std::copy(g.begin(), g.end(), gradient.begin());
  }

  std::vector<T> values;
  std::vector<T> gradient;
  std::array<std::vector<T>, kMaxState> state;
  std::array<T, kMaxPowers> powers;
  std::vector<Slice<T>> slices;
};

Vector Start(int64_t n) {
  Vector p(n);
  for (int64_t i = 0; i < n; ++i) p[i] = std::sin(1.0 + 3.0 * i);
  return p;
}

Vector GradientOfStep(int64_t n, int t) {
  Vector g(n);
  for (int64_t i = 0; i < n; ++i) {
    g[i] = std::cos(0.7 * i * t) * (i % 5 == 0 ? 0.01 : 2.0);
  }
  return g;
}

bool OwnDecay(const UpdateRule& rule) {
  return std::holds_alternative<Lamb>(rule) ||
         std::holds_alternative<Lars>(rule);
}

class UpdateTest : public testing::TestWithParam<Case> {
 protected:
  // Runs six steps in T beside the textbook; both must agree after each.
  template <class T>
  void Compare(int64_t n, Decay decay, Transform transform, double tolerance) {
    const UpdateRule& rule = GetParam().rule;
    Textbook textbook(Start(n));
    Parameter<T> parameter(rule, Start(n), {static_cast<double>(n)});
    for (int t = 1; t <= 6; ++t) {
      const double lr = 0.1 / t;
      Vector g = GradientOfStep(n, t);
      parameter.SetGradient(g);
      Update<T> update = parameter.MakeUpdate(lr);
      update.decay = decay;
      update.transform = transform;
      Apply<T>(rule, {&update, 1});

      for (int64_t i = 0; i < n; ++i) {
        g[i] = std::fmin(std::fmax(g[i] * transform.scale, transform.min),
                         transform.max);
        g[i] += decay.l2 * textbook.p[i];
        if (textbook.p[i] != 0) g[i] += std::copysign(decay.l1, textbook.p[i]);
      }
      const double decoupled = decay.decoupled;
      textbook.t = t;
      std::visit(
          [&](const auto& r) {
            textbook.Step(r, g, lr,
                          OwnDecay(rule) ? decoupled : 1 - lr * decoupled);
          },
          rule);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_NEAR(parameter.values[i], textbook.p[i], tolerance)
            << "element " << i << " of " << n << ", step " << t;
      }
    }
  }

  template <class T>
  void CompareAll(double tolerance) {
    for (int64_t n : {1, 7, 16, 67}) Compare<T>(n, {}, {}, tolerance);
    Compare<T>(67, {.l2 = 0.1}, {}, tolerance);
    Compare<T>(67, {.l1 = 0.1}, {}, tolerance);
    Compare<T>(67, {.decoupled = 0.1}, {}, tolerance);
    Compare<T>(67, {.l1 = 0.05, .l2 = 0.05, .decoupled = 0.1}, {}, tolerance);
    Compare<T>(67, {}, {.scale = 0.25}, tolerance);
    Compare<T>(67, {}, {.min = -0.5, .max = 0.25}, tolerance);
    Compare<T>(67, {.l2 = 0.1}, {.scale = 0.25, .max = 0.25}, tolerance);
  }
};

TEST_P(UpdateTest, ARateOfZeroLeavesTheFirstValues) {
  const UpdateRule& rule = GetParam().rule;
  Parameter<float> parameter(rule, Start(19), {19});
  const std::vector<float> before = parameter.values;
  parameter.SetGradient(GradientOfStep(19, 1));
  Update<float> update = parameter.MakeUpdate(0.0);
  Apply<float>(rule, {&update, 1});
  EXPECT_EQ(parameter.values, before);
}

TEST_P(UpdateTest, FollowsTheTextbookInDouble) { CompareAll<double>(1e-12); }

TEST_P(UpdateTest, FollowsTheTextbookInFloat) { CompareAll<float>(2e-5); }

TEST_P(UpdateTest, DoesNotDependOnHowAParameterIsCut) {
  const UpdateRule& rule = GetParam().rule;
  const int64_t n = 67;
  Parameter<double> whole(rule, Start(n), {67});
  Parameter<double> cut(rule, Start(n), {1, 30, 0, 36});
  for (int t = 1; t <= 3; ++t) {
    whole.SetGradient(GradientOfStep(n, t));
    cut.SetGradient(GradientOfStep(n, t));
    std::vector<Update<double>> updates = {whole.MakeUpdate(0.1),
                                           cut.MakeUpdate(0.1)};
    Apply<double>(rule, updates);
    EXPECT_EQ(whole.powers, cut.powers);
    for (int64_t i = 0; i < n; ++i) {
      if (OwnDecay(rule)) {
        EXPECT_NEAR(whole.values[i], cut.values[i], 1e-14);
      } else {
        EXPECT_EQ(whole.values[i], cut.values[i]);
      }
    }
  }
}

TEST_P(UpdateTest, ComputesTheSameBitsWithEveryInstructionSet) {
  const UpdateRule& rule = GetParam().rule;
  const int64_t n = 67;
  auto train = [&](CpuTarget target) {
    Parameter<float> parameter(rule, Start(n), {67});
    for (int t = 1; t <= 3; ++t) {
      parameter.SetGradient(GradientOfStep(n, t));
      Update<float> update = parameter.MakeUpdate(0.1);
      update.decay = {.l2 = 0.1, .decoupled = 0.1};
      update.transform = {.scale = 0.7, .max = 0.5};
      ApplyOn<float>(target, rule, {&update, 1});
    }
    return parameter.values;
  };
  const std::vector<float> expected = train(CpuTarget::kBaseline);
  for (CpuTarget target : {CpuTarget::kAvx2, CpuTarget::kAvx512}) {
    if (target > BestCpuTarget()) continue;
    EXPECT_EQ(train(target), expected);
  }
}

TEST_P(UpdateTest, CarriesNanOfAGradientToItsValue) {
  const UpdateRule& rule = GetParam().rule;
  for (Transform transform : {Transform{}, Transform{.min = -1, .max = 1}}) {
    Parameter<float> parameter(rule, {1.0, 2.0}, {2});
    parameter.gradient[1] = std::numeric_limits<float>::quiet_NaN();
    Update<float> update = parameter.MakeUpdate(0.1);
    update.transform = transform;
    Apply<float>(rule, {&update, 1});
    EXPECT_TRUE(std::isnan(parameter.values[1]));
  }
}

TEST_P(UpdateTest, ReadsGradientsWithoutChangingThem) {
  const UpdateRule& rule = GetParam().rule;
  Parameter<double> parameter(rule, Start(9), {9});
  parameter.SetGradient(GradientOfStep(9, 1));
  Update<double> update = parameter.MakeUpdate(0.1);
  update.transform = {.scale = 0.5, .min = -0.1, .max = 0.1};
  update.decay = {.l2 = 0.3};
  Apply<double>(rule, {&update, 1});
  EXPECT_EQ(parameter.gradient, GradientOfStep(9, 1));
}

INSTANTIATE_TEST_SUITE_P(Rules, UpdateTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Update, AdamMovesByTheLearningRateInTheFirstStep) {
  // m_hat = g and v_hat = g * g, so with a tiny epsilon the step is lr * sign.
  const UpdateRule rule = Adam{.epsilon = 1e-12};
  Parameter<double> parameter(rule, {1.0, 1.0, 1.0}, {3});
  parameter.SetGradient({100.0, -0.003, 0.0});
  Update<double> update = parameter.MakeUpdate(0.01);
  Apply<double>(rule, {&update, 1});
  EXPECT_NEAR(parameter.values[0], 0.99, 1e-10);
  EXPECT_NEAR(parameter.values[1], 1.01, 1e-10);
  EXPECT_EQ(parameter.values[2], 1.0);
}

TEST(Update, AdvancesPowersOncePerParameterAndStep) {
  const UpdateRule rule = Adam{.beta1 = 0.5, .beta2 = 0.25};
  Parameter<float> one(rule, Start(8), {8});
  Parameter<float> many(rule, Start(8), {2, 2, 2, 2});
  Parameter<float> none(rule, Start(8), {});
  for (int t = 0; t < 2; ++t) {
    std::vector<Update<float>> updates = {
        one.MakeUpdate(0.1), many.MakeUpdate(0.1), none.MakeUpdate(0.1)};
    Apply<float>(rule, updates);
  }
  for (const Parameter<float>& p : {one, many, none}) {
    EXPECT_EQ(p.powers[0], 0.125f);
    EXPECT_EQ(p.powers[1], 0.015625f);
  }
}

TEST(Update, TouchesNothingOutsideItsSlices) {
  const UpdateRule rule = Adam{.lazy = true};
  Parameter<float> parameter(rule, Start(30), {10, 10, 10});
  for (float& g : parameter.gradient) g = 1.0f;
  Update<float> update = parameter.MakeUpdate(0.1);
  update.slices = update.slices.subspan(1, 1);
  Apply<float>(rule, {&update, 1});
  for (int i = 0; i < 30; ++i) {
    const bool given = i >= 10 && i < 20;
    const float start = static_cast<float>(Start(30)[i]);
    EXPECT_EQ(parameter.values[i] != start, given) << i;
    EXPECT_EQ(parameter.state[0][i] != 0.0f, given) << i;
  }
}

TEST(Update, LambAndLarsMoveAZeroParameter) {
  for (const UpdateRule& rule : {UpdateRule(Lamb{}), UpdateRule(Lars{})}) {
    Parameter<double> parameter(rule, {0.0, 0.0}, {2});
    parameter.SetGradient({1.0, -1.0});
    Update<double> update = parameter.MakeUpdate(0.1);
    update.decay = {.decoupled = 0.5};
    Apply<double>(rule, {&update, 1});
    EXPECT_NEAR(parameter.values[0], -0.1, 1e-6);
    EXPECT_NEAR(parameter.values[1], 0.1, 1e-6);
  }
}

TEST(Update, ADecayThatIsZeroLeavesInfiniteValuesInfinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Parameter<double> parameter(UpdateRule(Sgd{}), {kInfinity, -kInfinity}, {2});
  parameter.SetGradient({1.0, 1.0});
  Update<double> update = parameter.MakeUpdate(0.1);
  update.decay = {.l1 = 0.5};
  Apply<double>(Sgd{}, {&update, 1});
  EXPECT_EQ(parameter.values[0], kInfinity);
  EXPECT_EQ(parameter.values[1], -kInfinity);
}

}  // namespace
}  // namespace fleet::optim
