// SPDX-License-Identifier: Apache-2.0

// What every sparse table must do, wherever its rows are, as tests. A file that
// instantiates the suite gives a change of options:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, SparseTableConformance,
//                            testing::Values(Backend{"memory", ...}));

#ifndef FLEET_TABLE_TABLE_CONFORMANCE_H_
#define FLEET_TABLE_TABLE_CONFORMANCE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/table/sparse_table.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::table {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::TemporaryFolder;
using testing::UnorderedElementsAre;

struct Backend {
  std::string name;
  // Changes options to this backend's; `folder` is the test's own.
  std::function<void(SparseTableOptions&, const base::Path& folder)> apply;
};

inline void PrintTo(const Backend& backend, std::ostream* out) {
  *out << backend.name;
}

class SparseTableConformance : public testing::TestWithParam<Backend> {
 protected:
  // Rows of two, SGD with a rate of 0.5, beginning at 1.
  static SparseTableOptions Options() {
    SparseTableOptions options;
    options.name = "emb";
    options.dim = 2;
    options.initializer = ConstantInit{1.0f};
    options.update.learning_rate.base = 0.5;
    return options;
  }

  std::unique_ptr<SparseTable> Make(SparseTableOptions options) {
    const base::Path folder =
        folder_.path() / ("table" + std::to_string(num_tables_++));
    GetParam().apply(options, folder);
    auto table = SparseTable::Make(options);
    EXPECT_OK(table.status());
    return std::move(table).value();
  }

  static std::vector<float> Pulled(SparseTable& table,
                                   const std::vector<Key>& keys,
                                   bool training = true) {
    std::vector<float> rows(keys.size() * table.dim());
    PullOptions options;
    options.training = training;
    EXPECT_OK(table.Pull(keys, rows, options));
    return rows;
  }

  const base::Path& folder() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  int num_tables_ = 0;
};

TEST_P(SparseTableConformance, MakesRowsOnTheFirstPull) {
  auto table = Make(Options());
  EXPECT_THAT(Pulled(*table, {7, ~Key{0}}), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(table->stats().num_rows, 2u);
  Pulled(*table, {7});
  EXPECT_EQ(table->stats().num_rows, 2u);
}

TEST_P(SparseTableConformance, GivesTheSameRowsWhateverTheOrderAndNumber) {
  SparseTableOptions options = Options();
  options.dim = 5;
  options.initializer = NormalInit{};
  options.seed = 9;
  auto table = Make(options);
  auto other = Make(options);
  std::vector<Key> keys(1000);
  std::iota(keys.begin(), keys.end(), 100);
  const std::vector<float> rows = Pulled(*table, keys);
  for (size_t i = keys.size(); i-- > 0;) {
    EXPECT_EQ(
        Pulled(*other, {keys[i]}),
        std::vector<float>(rows.begin() + static_cast<ptrdiff_t>(i * 5),
                           rows.begin() + static_cast<ptrdiff_t>(i * 5 + 5)));
  }
}

TEST_P(SparseTableConformance, UpdatesRowsThatWerePushed) {
  auto table = Make(Options());
  ASSERT_OK(
      table->Push(std::vector<Key>{3, 4}, std::vector<float>{1, 2, 3, 4}));
  EXPECT_THAT(Pulled(*table, {4, 3, 5}), ElementsAre(-0.5, -1, 0.5, 0, 1, 1));
}

TEST_P(SparseTableConformance, UpdatesAKeyTwiceThatOccursTwice) {
  auto table = Make(Options());
  ASSERT_OK(
      table->Push(std::vector<Key>{3, 3}, std::vector<float>{1, 2, 1, 2}));
  EXPECT_THAT(Pulled(*table, {3, 3}), ElementsAre(0, -1, 0, -1));
}

TEST_P(SparseTableConformance, SaysWhatDoesNotFit) {
  auto table = Make(Options());
  std::vector<float> rows(3);
  EXPECT_THAT(table->Pull(std::vector<Key>{1, 2}, rows),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("table emb: pull of 2 keys with 3 values")));
  EXPECT_THAT(table->Push(std::vector<Key>{1}, rows),
              HasCode(StatusCode::kInvalidArgument));
}

// Every rule, many steps, against its formula in double.
struct RuleCase {
  std::string name;
  optim::UpdateRule rule;
  // One step of one value with `s` as state, t counted from 1.
  std::function<void(double& p, double g, std::array<double, 3>& s, double lr,
                     int t)>
      step;
};

inline std::vector<RuleCase> RuleCases() {
  using State = std::array<double, 3>;
  return {
      {"sgd", optim::Sgd(),
       [](double& p, double g, State&, double lr, int) { p -= lr * g; }},
      {"momentum", optim::Momentum{.mu = 0.8},
       [](double& p, double g, State& s, double lr, int) {
         s[0] = 0.8 * s[0] + g;
         p -= lr * s[0];
       }},
      {"nesterov", optim::Momentum{.mu = 0.8, .nesterov = true},
       [](double& p, double g, State& s, double lr, int) {
         s[0] = 0.8 * s[0] + g;
         p -= lr * (g + 0.8 * s[0]);
       }},
      {"adam", optim::Adam{.beta1 = 0.85, .beta2 = 0.98, .epsilon = 1e-6},
       [](double& p, double g, State& s, double lr, int t) {
         s[0] = 0.85 * s[0] + 0.15 * g;
         s[1] = 0.98 * s[1] + 0.02 * g * g;
         const double c2 = std::sqrt(1 - std::pow(0.98, t));
         p -= lr * c2 / (1 - std::pow(0.85, t)) * s[0] /
              (std::sqrt(s[1]) + 1e-6 * c2);
       }},
      {"adagrad", optim::Adagrad{.epsilon = 1e-5},
       [](double& p, double g, State& s, double lr, int) {
         s[0] += g * g;
         p -= lr * g / (std::sqrt(s[0]) + 1e-5);
       }},
      {"adamax", optim::Adamax{.beta1 = 0.85, .beta2 = 0.98, .epsilon = 1e-6},
       [](double& p, double g, State& s, double lr, int t) {
         s[0] = 0.85 * s[0] + 0.15 * g;
         s[1] = std::max(std::abs(g), 0.98 * s[1] + 1e-6);
         p -= lr / (1 - std::pow(0.85, t)) * s[0] / s[1];
       }},
      {"rmsprop",
       optim::RmsProp{
           .rho = 0.9, .epsilon = 1e-4, .momentum = 0.5, .centered = true},
       [](double& p, double g, State& s, double lr, int) {
         s[1] = 0.9 * s[1] + 0.1 * g * g;
         s[2] = 0.9 * s[2] + 0.1 * g;
         s[0] = 0.5 * s[0] + lr * g / std::sqrt(s[1] - s[2] * s[2] + 1e-4);
         p -= s[0];
       }},
      {"adadelta", optim::Adadelta{.rho = 0.9, .epsilon = 1e-4},
       [](double& p, double g, State& s, double lr, int) {
         s[0] = 0.9 * s[0] + 0.1 * g * g;
         const double d = g * std::sqrt((s[1] + 1e-4) / (s[0] + 1e-4));
         s[1] = 0.9 * s[1] + 0.1 * d * d;
         p -= lr * d;
       }},
      {"ftrl", optim::Ftrl{.l1 = 0.01, .l2 = 0.1},
       [](double& p, double g, State& s, double lr, int) {
         const double n = s[0] + g * g;
         s[1] += g - (std::sqrt(n) - std::sqrt(s[0])) / lr * p;
         s[0] = n;
         p = std::abs(s[1]) <= 0.01 ? 0.0
                                    : ((s[1] > 0 ? 0.01 : -0.01) - s[1]) /
                                          (std::sqrt(n) / lr + 0.2);
       }},
  };
}

TEST_P(SparseTableConformance, FollowsTheFormulaOfEveryRule) {
  constexpr size_t kDim = 3;
  constexpr Key kNumKeys = 300;
  for (const RuleCase& rule : RuleCases()) {
    SCOPED_TRACE(rule.name);
    SparseTableOptions options = Options();
    options.dim = kDim;
    options.update.rule = rule.rule;
    options.update.learning_rate.base = 0.05;
    options.update.learning_rate.factor = 2.0;
    auto table = Make(options);
    struct Row {
      std::array<double, kDim> p = {1, 1, 1};
      std::array<std::array<double, 3>, kDim> s{};
      int t = 0;  // a row counts its own steps
    };
    std::map<Key, Row> reference;
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (int step = 0; step < 12; ++step) {
      std::vector<Key> keys;
      std::vector<float> gradients;
      for (Key key = 0; key < kNumKeys; ++key) {
        if (random() % 2 == 0) continue;
        keys.push_back(key);
        Row& row = reference[key];
        ++row.t;
        for (size_t k = 0; k < kDim; ++k) {
          const float g = normal(random);
          gradients.push_back(g);
          rule.step(row.p[k], g, row.s[k], 0.1, row.t);
        }
      }
      ASSERT_OK(table->Push(keys, gradients));
    }
    for (const auto& [key, row] : reference) {
      const std::vector<float> got = Pulled(*table, {key});
      for (size_t k = 0; k < kDim; ++k) {
        ASSERT_NEAR(got[k], row.p[k], 2e-5 * (1 + std::abs(row.p[k])))
            << "key " << key;
      }
    }
  }
}

TEST_P(SparseTableConformance, TakesNormsOfLambAndLarsOverEachRow) {
  SparseTableOptions options = Options();
  options.update.rule = optim::Lamb{.epsilon = 1e-6};
  options.update.decay.decoupled = 0.1;
  auto table = Make(options);
  const double g[] = {0.5, -2.0};
  ASSERT_OK(table->Push(std::vector<Key>{1, 2},
                        std::vector<float>{0.5f, -2.0f, 0.5f, -2.0f}));
  // First step: m and v without bias are g and g * g.
  double d[2];
  for (int k = 0; k < 2; ++k) {
    d[k] = g[k] / (std::abs(g[k]) + 1e-6) + 0.1 * 1.0;
  }
  const double ratio = std::sqrt(2.0) / std::hypot(d[0], d[1]);
  const std::vector<float> rows = Pulled(*table, {1, 2});
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(rows[i], 1.0 - 0.5 * ratio * d[i % 2], 1e-5);
  }
}

TEST_P(SparseTableConformance, DecaysAndClipsAndFollowsTheSchedule) {
  SparseTableOptions options = Options();
  options.update.decay.l2 = 0.1;
  options.update.transform.max = 1.0;
  options.update.learning_rate.schedule = ExponentialDecay{0.5};
  auto table = Make(options);
  double p[] = {1.0, 1.0};
  for (int step = 0; step < 3; ++step) {
    ASSERT_OK(table->Push(std::vector<Key>{1}, std::vector<float>{0.2f, 9.0f}));
    table->EndStep();
    const double lr = 0.5 * std::pow(0.5, step);
    p[0] -= lr * (0.2 + 0.1 * p[0]);
    p[1] -= lr * (1.0 + 0.1 * p[1]);
  }
  const std::vector<float> row = Pulled(*table, {1});
  EXPECT_NEAR(row[0], p[0], 1e-6);
  EXPECT_NEAR(row[1], p[1], 1e-6);
  EXPECT_EQ(table->stats().step, 3u);
}

TEST_P(SparseTableConformance, StepsThatPassedARowByHadTheRatesOfTheirTime) {
  SparseTableOptions options = Options();
  options.update.rule = optim::Momentum{.mu = 0.9};
  options.count_missed_steps = true;
  options.update.learning_rate.schedule = ToldRate{.name = "lr"};
  auto told = Make(options);
  options.update.learning_rate.schedule =
      PiecewiseDecay{{3, 6}, {0.5, 0.25, 0.125}};
  auto known = Make(options);
  for (int step = 0; step < 9; ++step) {
    if (step == 3 || step == 6) {
      EXPECT_TRUE(told->SetRate("lr", step == 3 ? 0.25 : 0.125));
    }
    EXPECT_FALSE(told->SetRate("another", 9.0));
    EXPECT_FALSE(known->SetRate("lr", 9.0));
    for (SparseTable* table : {told.get(), known.get()}) {
      // Key 1 in the first step only.
      const Key key = step == 0 ? 1 : 2;
      ASSERT_OK(table->Push(std::vector<Key>{key}, std::vector<float>{1, 2}));
      table->EndStep();
    }
  }
  EXPECT_EQ(Pulled(*told, {1, 2}), Pulled(*known, {1, 2}));
  // A save counts steps anew; the rate is the one of now.
  ASSERT_OK(told->Save(folder(), {}));
  EXPECT_TRUE(told->SetRate("lr", 0.5));
  ASSERT_OK(told->Load(folder(), 0, 1));
  const float before = Pulled(*told, {3})[0];
  ASSERT_OK(told->Push(std::vector<Key>{3}, std::vector<float>{1, 1}));
  EXPECT_FLOAT_EQ(Pulled(*told, {3})[0], before - 0.5f);
}

TEST_P(SparseTableConformance, StepsThatPassedARowByLetItDecay) {
  for (const optim::UpdateRule& rule :
       {optim::UpdateRule(optim::Sgd{}), optim::UpdateRule(optim::Adagrad{}),
        optim::UpdateRule(optim::Momentum{.mu = 0.5}),
        optim::UpdateRule(optim::Adam{.lazy = true})}) {
    for (const optim::Decay& decay :
         {optim::Decay{.l1 = 0.02}, optim::Decay{.l2 = 0.3}}) {
      SparseTableOptions options = Options();
      options.update.rule = rule;
      options.update.decay = decay;
      options.update.learning_rate.schedule = PiecewiseDecay{{50}, {0.5, 0.1}};
      options.count_missed_steps = true;
      auto passed = Make(options);
      auto every = Make(options);
      for (int step = 0; step < 200; ++step) {
        for (SparseTable* table : {passed.get(), every.get()}) {
          const float g = step == 0 ? 1.0f : 0.0f;
          if (step == 0 || table == every.get()) {
            ASSERT_OK(
                table->Push(std::vector<Key>{1}, std::vector<float>{g, -g}));
          }
          table->EndStep();
        }
      }
      EXPECT_EQ(Pulled(*passed, {1}), Pulled(*every, {1}));
    }
  }
}

// A row has 32 bits of the number of its step.
TEST_P(SparseTableConformance, StepsThatPassedARowByAreCountedBeyond32Bits) {
  SparseTableOptions options = Options();
  options.update.rule = optim::Momentum{.mu = 0.9};
  options.count_missed_steps = true;
  auto young = Make(options);
  auto old = Make(options);
  old->EndStep((uint64_t{1} << 32) - 2);
  for (SparseTable* table : {young.get(), old.get()}) {
    for (int step = 0; step < 3; ++step) {
      ASSERT_OK(table->Push(std::vector<Key>{1}, std::vector<float>{1, 2}));
      table->EndStep(4);
    }
  }
  EXPECT_EQ(Pulled(*old, {1}), Pulled(*young, {1}));
}

// As one process does that updates every row in every step.
TEST_P(SparseTableConformance, MakesUpForStepsThatPassedARowBy) {
  for (const RuleCase& rule : RuleCases()) {
    if (rule.name == "ftrl" || rule.name == "rmsprop") continue;
    SCOPED_TRACE(rule.name);
    SparseTableOptions options = Options();
    options.update.rule = rule.rule;
    options.update.learning_rate.base = 0.05;
    options.count_missed_steps = true;
    auto table = Make(options);
    double p[2][2] = {{1, 1}, {1, 1}};
    std::array<double, 3> s[2][2] = {};
    Pulled(*table, {0, 1});
    std::mt19937 random(6);
    std::normal_distribution<float> normal;
    for (int step = 0; step < 400; ++step) {
      // Key 0 is pushed now and then, key 1 only in the first steps.
      const bool pushes[] = {step % 7 == 3, step < 3};
      for (Key key = 0; key < 2; ++key) {
        float g[2] = {0, 0};
        if (pushes[key]) {
          for (float& x : g) x = normal(random);
          ASSERT_OK(table->Push(std::vector<Key>{key},
                                std::vector<float>{g[0], g[1]}));
        }
        for (size_t k = 0; k < 2; ++k) {
          rule.step(p[key][k], g[k], s[key][k], 0.05, step + 1);
        }
      }
      table->EndStep();
    }
    const std::vector<float> rows = Pulled(*table, {0, 1});
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(rows[i], p[i / 2][i % 2], 3e-5);
    }
    // The state is right as well: one more push.
    ASSERT_OK(table->Push(std::vector<Key>{1}, std::vector<float>{1, -1}));
    rule.step(p[1][0], 1, s[1][0], 0.05, 401);
    rule.step(p[1][1], -1, s[1][1], 0.05, 401);
    const std::vector<float> row = Pulled(*table, {1});
    EXPECT_NEAR(row[0], p[1][0], 3e-5);
    EXPECT_NEAR(row[1], p[1][1], 3e-5);
  }
}

// As one process does that updates the rows of a gradient only: their moments
// and values rest in other steps, and the powers are those of the step.
TEST_P(SparseTableConformance, LazyRowsHaveThePowersOfTheStep) {
  SparseTableOptions options = Options();
  options.update.rule =
      optim::Adam{.beta1 = 0.7, .beta2 = 0.9, .epsilon = 0.01, .lazy = true};
  options.count_missed_steps = true;
  auto table = Make(options);
  double p = 1, m = 0, v = 0;
  Pulled(*table, {1});
  for (int step = 0; step < 9; ++step) {
    if (step % 4 == 3) {
      ASSERT_OK(table->Push(std::vector<Key>{1}, std::vector<float>{1, 1}));
      m = 0.7 * m + 0.3;
      v = 0.9 * v + 0.1;
      const double correction = std::sqrt(1 - std::pow(0.9, step + 1));
      p -= 0.5 * (m / (1 - std::pow(0.7, step + 1))) /
           (std::sqrt(v) / correction + 0.01);
    }
    table->EndStep();
    EXPECT_NEAR(Pulled(*table, {1})[0], p, 1e-5) << "step " << step;
  }
}

TEST_P(SparseTableConformance, PullsWithoutTrainingChangeNothing) {
  SparseTableOptions options = Options();
  options.initializer = UniformInit{};
  auto table = Make(options);
  const std::vector<float> before = Pulled(*table, {1, 2}, false);
  EXPECT_EQ(table->stats().num_rows, 0u);
  EXPECT_EQ(Pulled(*table, {1, 2}), before);
}

TEST_P(SparseTableConformance, AdmitsKeysThatCameOftenEnough) {
  SparseTableOptions options = Options();
  options.entry = AdmitByCount{3};
  auto table = Make(options);
  EXPECT_THAT(Pulled(*table, {5}), ElementsAre(0, 0));
  ASSERT_OK(table->Push(std::vector<Key>{5}, std::vector<float>{1, 1}));
  EXPECT_THAT(Pulled(*table, {5}, false), ElementsAre(0, 0));
  EXPECT_THAT(Pulled(*table, {5}), ElementsAre(0, 0));
  EXPECT_EQ(table->stats().num_rows, 0u);
  EXPECT_EQ(table->stats().num_candidates, 1u);
  EXPECT_THAT(Pulled(*table, {5}), ElementsAre(1, 1));
  EXPECT_EQ(table->stats().num_rows, 1u);
  EXPECT_EQ(table->stats().num_candidates, 0u);
  // How often a key occurs in the batch counts.
  std::vector<float> row(2);
  const std::vector<uint32_t> counts{3};
  ASSERT_OK(table->Pull(std::vector<Key>{6}, row, {true, counts}));
  EXPECT_THAT(row, ElementsAre(1, 1));
}

TEST_P(SparseTableConformance, AdmitsKeysByChance) {
  SparseTableOptions options = Options();
  options.entry = AdmitByProbability{0.3};
  auto table = Make(options);
  std::vector<Key> keys(10'000);
  std::iota(keys.begin(), keys.end(), 0);
  Pulled(*table, keys);
  EXPECT_NEAR(static_cast<double>(table->stats().num_rows), 3000, 200);
  Pulled(*table, keys);
  EXPECT_NEAR(static_cast<double>(table->stats().num_rows), 5100, 200);
}

TEST_P(SparseTableConformance, ShrinksByUnseenDays) {
  SparseTableOptions options = Options();
  options.count_unseen_days = true;
  auto table = Make(options);
  Pulled(*table, {1, 2, 3});
  ASSERT_OK_AND_ASSIGN(uint64_t erased, table->Shrink(2));
  EXPECT_EQ(erased, 0u);
  ASSERT_OK(table->Push(std::vector<Key>{2}, std::vector<float>{2, 2}));
  ASSERT_OK_AND_ASSIGN(erased, table->Shrink(2));
  EXPECT_EQ(erased, 2u);
  EXPECT_EQ(table->stats().num_rows, 1u);
  EXPECT_THAT(Pulled(*table, {1, 2}), ElementsAre(1, 1, 0, 0));
}

TEST_P(SparseTableConformance, RefusesToShrinkWhereDaysAreNotCounted) {
  EXPECT_THAT(Make(Options())->Shrink(1),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("emb")));
}

// Rows live for 60 s, and the table is looked at every 15. A row that is
// touched between two looks is gone at the fifth after that.
class ExpiryConformance : public SparseTableConformance {
 protected:
  static SparseTableOptions Options() {
    SparseTableOptions options = SparseTableConformance::Options();
    options.time_to_live = std::chrono::seconds(60);
    return options;
  }
  // So many periods with training, of a key of its own. Returns how many rows
  // are erased.
  static uint64_t Train(SparseTable& table, int num_periods) {
    uint64_t all = 0;
    for (int i = 0; i < num_periods; ++i) {
      EXPECT_OK(table.Push(std::vector<Key>{kTrained}, Ones()));
      const Result<uint64_t> erased = table.Expire();
      EXPECT_OK(erased.status());
      if (erased.ok()) all += *erased;
    }
    return all;
  }
  static std::vector<float> Ones() { return {1, 1}; }
  static constexpr Key kTrained = 1'000'000;
};

TEST_P(ExpiryConformance, ForgetsRowsThatTrainingDoesNotTouch) {
  auto table = Make(Options());
  Pulled(*table, {1, 2, 3, 4});
  EXPECT_EQ(Train(*table, 2), 0u);
  Pulled(*table, {2});
  ASSERT_OK(table->Push(std::vector<Key>{3}, Ones()));
  Pulled(*table, {4}, false);  // does not count
  EXPECT_EQ(Train(*table, 2), 0u);
  EXPECT_EQ(Train(*table, 1), 2u);
  EXPECT_EQ(table->stats().num_rows, 3u);
  EXPECT_THAT(Pulled(*table, {3}, false), ElementsAre(0.5, 0.5));
  EXPECT_EQ(Train(*table, 1), 0u);
  EXPECT_EQ(Train(*table, 1), 2u);
  EXPECT_EQ(table->stats().num_rows, 1u);
  EXPECT_EQ(table->stats().num_expired, 4u);
  EXPECT_THAT(Pulled(*table, {3}), ElementsAre(1, 1));  // new
}

TEST_P(ExpiryConformance, LetsTimeStandStillWhileNobodyTrains) {
  auto table = Make(Options());
  Pulled(*table, {1});
  for (int i = 0; i < 20; ++i) {
    Pulled(*table, {2}, false);
    ASSERT_OK_AND_ASSIGN(const uint64_t erased, table->Expire());
    EXPECT_EQ(erased, 0u);
  }
  EXPECT_EQ(table->stats().num_rows, 1u);
  EXPECT_EQ(Train(*table, 5), 1u);
}

TEST_P(ExpiryConformance, CountsTheUpdatesOfAllModesAsTraining) {
  for (int mode = 0; mode < 2; ++mode) {
    SparseTableOptions options = Options();
    options.num_geo_workers = 1;
    auto table = Make(options);
    Pulled(*table, {1});
    uint64_t erased = 0;
    for (int i = 0; i < 5; ++i) {
      if (mode == 0) {
        ASSERT_OK(table->Accumulate(0, std::vector<Key>{2}, Ones()));
        ASSERT_OK(table->ApplyAccumulated(1.0));
      } else {
        ASSERT_OK(table->AddFrom(0, std::vector<Key>{2}, Ones()));
      }
      ASSERT_OK_AND_ASSIGN(const uint64_t now, table->Expire());
      erased += now;
    }
    EXPECT_EQ(erased, 1u) << mode;
    EXPECT_EQ(table->stats().num_rows, 1u) << mode;
  }
}

TEST_P(ExpiryConformance, NeedsRowsWithATimeToLive) {
  SparseTableOptions options = Options();
  options.time_to_live = std::chrono::seconds(0);
  EXPECT_THAT(Make(options)->Expire(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("emb")));
}

TEST_P(ExpiryConformance, LooksAtMostOnceASecond) {
  EXPECT_EQ(ExpiryPeriod(std::chrono::seconds(60)), std::chrono::seconds(15));
  EXPECT_EQ(ExpiryPeriod(std::chrono::seconds(1)), std::chrono::seconds(1));
  SparseTableOptions options = Options();
  options.time_to_live = std::chrono::seconds(1);
  auto table = Make(options);
  Pulled(*table, {1});
  EXPECT_EQ(Train(*table, 1), 0u);
  EXPECT_EQ(Train(*table, 1), 1u);
}

TEST_P(ExpiryConformance, SavesKeepHowLongAgoRowsWereTouched) {
  auto table = Make(Options());
  Train(*table, 3);
  Pulled(*table, {1});
  Train(*table, 2);
  Pulled(*table, {2});
  Train(*table, 1);
  ASSERT_OK(table->Save(folder(), {}));
  auto other = Make(Options());
  Train(*other, 100);
  ASSERT_OK(other->Load(folder(), 0, 1));
  EXPECT_EQ(other->stats().num_rows, 3u);
  EXPECT_EQ(Train(*other, 1), 0u);
  EXPECT_EQ(Train(*other, 1), 1u);
  EXPECT_EQ(Train(*other, 1), 0u);
  EXPECT_EQ(Train(*other, 1), 1u);
  EXPECT_EQ(other->stats().num_rows, 1u);
}

TEST_P(ExpiryConformance, SavesOfServersWithOtherClocksFitTogether) {
  // One of the two was there for longer.
  const std::array<int, 2> before = {0, 50};
  std::array<Key, 2> keys{};
  for (uint32_t server = 0; server < 2; ++server) {
    auto table = Make(Options());
    Train(*table, before[server]);
    Key& key = keys[server];
    while (ServerOfKey(key, 2) != server) ++key;
    Pulled(*table, {key});
    Train(*table, 2);
    ASSERT_OK(table->Save(folder(), {{.server = server, .num_servers = 2}}));
  }
  auto table = Make(Options());
  ASSERT_OK(table->Load(folder(), 0, 1));
  EXPECT_EQ(table->stats().num_rows, 3u);
  EXPECT_EQ(Train(*table, 2), 0u);
  EXPECT_EQ(Train(*table, 1), 2u);
}

TEST_P(ExpiryConformance, RowsOfASaveWithoutTimesAreTouchedWhenTheyAreLoaded) {
  auto without = Make(SparseTableConformance::Options());
  Pulled(*without, {1, 2});
  ASSERT_OK(without->Save(folder(), {}));
  auto table = Make(Options());
  ASSERT_OK(table->Load(folder(), 0, 1));
  EXPECT_EQ(Train(*table, 4), 0u);
  EXPECT_EQ(Train(*table, 1), 2u);
}

TEST_P(ExpiryConformance, DeltasHoldRowsThatWentAndCameBack) {
  auto table = Make(Options());
  std::vector<Key> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  Pulled(*table, keys);
  ASSERT_OK(table->Save(folder(), {{.number = 1}}));
  EXPECT_EQ(Train(*table, 5), 1000u);
  ASSERT_OK(table->Push(std::vector<Key>{7}, Ones()));
  EXPECT_EQ(Train(*table, 5), 1u);
  ASSERT_OK(table->Push(std::vector<Key>{7, 8}, std::vector<float>(4, 1.0f)));
  ASSERT_OK_AND_ASSIGN(
      const SaveStats delta,
      table->Save(folder(), {{.number = 2, .kind = SaveKind::kDelta}}));
  EXPECT_EQ(delta.num_rows, 3u);
  EXPECT_EQ(delta.num_erased, 998u);
  auto other = Make(Options());
  ASSERT_OK_AND_ASSIGN(const LoadStats loaded, other->Load(folder(), 0, 1));
  EXPECT_EQ(loaded.num_rows, 3u);
  EXPECT_THAT(Pulled(*other, {7, 8}, false), ElementsAre(0.5, 0.5, 0.5, 0.5));
  // A delta of the table that was loaded goes on from there.
  EXPECT_EQ(Train(*other, 5), 2u);
  ASSERT_OK(other->Save(folder(), {{.number = 3, .kind = SaveKind::kDelta}}));
  auto last = Make(Options());
  ASSERT_OK(last->Load(folder(), 0, 1));
  EXPECT_EQ(last->stats().num_rows, 1u);
}

// Rows go to disk and come back between, where there is one.
TEST_P(ExpiryConformance, DeltasHoldWhatASaveThatDidNotCountHad) {
  auto table = Make(Options());
  std::vector<Key> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  Pulled(*table, keys);
  ASSERT_OK(table->Save(folder(), {{.number = 1}}));
  ASSERT_OK(table->Push(std::vector<Key>{1, 2}, std::vector<float>(4, 1.0f)));
  for (const SaveKind kind : {SaveKind::kBase, SaveKind::kDelta}) {
    ASSERT_OK(table->WriteSave(folder(), {{.number = 2, .kind = kind}}));
    Pulled(*table, keys);
    ASSERT_OK(table->Push(std::vector<Key>{3}, std::vector<float>(2, 1.0f)));
    Pulled(*table, keys);
    table->EndSave(false);
  }
  ASSERT_OK_AND_ASSIGN(
      const SaveStats delta,
      table->Save(folder(), {{.number = 3, .kind = SaveKind::kDelta}}));
  EXPECT_EQ(delta.num_rows, 3u);
  auto other = Make(Options());
  ASSERT_OK(other->Load(folder(), 0, 1));
  EXPECT_THAT(Pulled(*other, {1, 3, 4}, false),
              ElementsAre(0.5, 0.5, 0, 0, 1, 1));
  // What is erased while a save is written is in the next one.
  ASSERT_OK(table->WriteSave(folder(), {{4, SaveKind::kDelta}}));
  EXPECT_EQ(Train(*table, 5), 1000u);
  table->EndSave(true);
  ASSERT_OK_AND_ASSIGN(const WrittenTable gone,
                       table->WriteSave(folder(), {{5, SaveKind::kDelta}}));
  EXPECT_EQ(gone.stats.num_erased, 1000u);
  table->EndSave(true);
  ASSERT_OK_AND_ASSIGN(const WrittenTable none,
                       table->WriteSave(folder(), {{6, SaveKind::kDelta}}));
  EXPECT_EQ(none.stats.num_erased, 0u);
  EXPECT_EQ(none.stats.num_rows, 0u);
}

TEST_P(ExpiryConformance, TakesWhatWasLoadedApart) {
  auto table = Make(Options());
  Pulled(*table, {1, 2});
  ASSERT_OK(table->Push(std::vector<Key>{1}, Ones()));
  ASSERT_OK(table->Save(folder(), {}));
  ASSERT_OK_AND_ASSIGN(const SavedModel model,
                       FindModel(folder(), CheckFiles::kByChecksum));
  // Twice: what is on disk moves each time.
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(table->Push(std::vector<Key>{1, 9}, std::vector<float>(4, 1.0f)));
    const std::vector<float> before = Pulled(*table, {1, 9}, false);
    {
      ASSERT_OK_AND_ASSIGN(auto apart, table->LoadApart(model, 0, 1));
      EXPECT_EQ(Pulled(*table, {1, 9}, false), before);
      table->Take(*apart);
    }
    EXPECT_EQ(table->stats().num_rows, 2u);
    EXPECT_THAT(Pulled(*table, {1, 2}, false), ElementsAre(0.5, 0.5, 1, 1));
    ASSERT_OK_AND_ASSIGN(const WrittenTable delta,
                         table->WriteSave(folder(), {{7, SaveKind::kDelta}}));
    EXPECT_EQ(delta.stats.num_rows, 0u);
    table->EndSave(false);
  }
}

TEST_P(ExpiryConformance, TellsGeoWorkersThatRowsAreGone) {
  SparseTableOptions options = Options();
  options.num_geo_workers = 2;
  auto table = Make(options);
  ASSERT_OK(table->AddFrom(0, std::vector<Key>{5}, Ones()));
  EXPECT_THAT(*table->TakeChanges(0), ElementsAre());
  EXPECT_THAT(*table->TakeChanges(1), ElementsAre(5));
  EXPECT_EQ(Train(*table, 5), 1u);
  EXPECT_THAT(*table->TakeChanges(0), ElementsAre(5));
  EXPECT_THAT(*table->TakeChanges(1), ElementsAre(5));
  EXPECT_THAT(Pulled(*table, {5}, false), ElementsAre(1, 1));
}

TEST_P(SparseTableConformance, ExtendsRowsThatWereShownAndClicked) {
  SparseTableOptions options = Options();
  options.show_click.emplace();
  auto table = Make(options);
  EXPECT_THAT(Pulled(*table, {1}), ElementsAre(1, 0));
  auto push = [&](float show, float click) {
    const std::vector<float> shows{show};
    const std::vector<float> clicks{click};
    ASSERT_OK(table->Push(std::vector<Key>{1}, std::vector<float>{1, 1},
                          {shows, clicks}));
  };
  push(10, 9);  // a score of 9.1: only the first column is there
  EXPECT_THAT(Pulled(*table, {1}), ElementsAre(0.5, 0));
  push(10, 0);  // 10.1
  EXPECT_THAT(Pulled(*table, {1}), ElementsAre(0, 0.5));
}

TEST_P(SparseTableConformance, ShrinksByScore) {
  SparseTableOptions options = Options();
  options.show_click.emplace();
  auto table = Make(options);
  const std::vector<float> shows{1, 30};
  const std::vector<float> clicks{0, 2};
  ASSERT_OK(table->Push(std::vector<Key>{1, 2}, std::vector<float>{1, 1, 1, 1},
                        {shows, clicks}));
  ASSERT_OK_AND_ASSIGN(const uint64_t erased, table->Shrink(0));
  EXPECT_EQ(erased, 1u);  // 0.1 and 4.8, faded by 2 %
  for (int day = 0; day < 29; ++day) {
    ASSERT_OK_AND_ASSIGN(const uint64_t later, table->Shrink(0));
    EXPECT_EQ(later, 0u) << day;
  }
  ASSERT_OK_AND_ASSIGN(const uint64_t last, table->Shrink(0));
  EXPECT_EQ(last, 1u);  // unseen for 31 days
}

TEST_P(SparseTableConformance, AppliesTheMeanOfWhatWorkersPushed) {
  auto table = Make(Options());
  ASSERT_OK(table->Accumulate(0, std::vector<Key>{1, 2},
                              std::vector<float>{1, 1, 2, 2}));
  ASSERT_OK(table->Accumulate(1, std::vector<Key>{3, 1},
                              std::vector<float>{4, 4, 3, 5}));
  EXPECT_THAT(Pulled(*table, {1, 2, 3}), ElementsAre(1, 1, 1, 1, 1, 1));
  ASSERT_OK(table->ApplyAccumulated(0.5));
  EXPECT_THAT(Pulled(*table, {1, 2, 3}), ElementsAre(0, -0.5, 0.5, 0.5, 0, 0));
  ASSERT_OK(table->ApplyAccumulated(0.5));
  EXPECT_THAT(Pulled(*table, {1}), ElementsAre(0, -0.5));
}

// Whatever the order in which workers come, the bits are the same.
TEST_P(SparseTableConformance, SumsOfWorkersDoNotDependOnWhoCameFirst) {
  constexpr int kWorkers = 4;
  std::mt19937_64 random(5);
  std::vector<std::vector<Key>> keys(kWorkers);
  std::vector<std::vector<float>> gradients(kWorkers);
  std::vector<Key> all;
  for (Key key = 0; key < 300; ++key) all.push_back(key);
  for (int w = 0; w < kWorkers; ++w) {
    for (int i = 0; i < 200; ++i) {
      keys[w].push_back(random() % 300);
      for (int k = 0; k < 2; ++k) {
        const float size = random() % 2 == 0 ? 1e6f : 1e-3f;
        gradients[w].push_back(size * static_cast<float>(random() % 1000));
      }
    }
  }
  std::vector<float> first;
  std::vector<int> order = {0, 1, 2, 3};
  for (int turn = 0; turn < 12; ++turn) {
    auto table = Make(Options());
    for (int step = 0; step < 3; ++step) {
      std::shuffle(order.begin(), order.end(), random);
      for (const int w : order) {
        ASSERT_OK(table->Accumulate(w, keys[w], gradients[w]));
      }
      ASSERT_OK(table->ApplyAccumulated(0.25));
    }
    const std::vector<float> rows = Pulled(*table, all);
    if (turn == 0) first = rows;
    ASSERT_EQ(std::memcmp(rows.data(), first.data(), rows.size() * 4), 0)
        << turn;
  }
}

TEST_P(SparseTableConformance, LeavesOutWhatWaitsOfAWorkerThatIsGone) {
  auto table = Make(Options());
  auto without = Make(Options());
  const std::vector<Key> keys{1, 2};
  const std::vector<float> ones(4, 1.0f);
  ASSERT_OK(table->Accumulate(0, keys, ones));
  ASSERT_OK(table->Accumulate(1, keys, std::vector<float>(4, 3.0f)));
  table->DropAccumulated(1);
  table->DropAccumulated(9);
  ASSERT_OK(table->ApplyAccumulated(1.0));
  ASSERT_OK(without->Accumulate(0, keys, ones));
  ASSERT_OK(without->ApplyAccumulated(1.0));
  EXPECT_EQ(Pulled(*table, keys), Pulled(*without, keys));
}

TEST_P(SparseTableConformance, KeepsWhatIsOfALaterStep) {
  auto table = Make(Options());
  ASSERT_OK(
      table->Accumulate(0, std::vector<Key>{1}, std::vector<float>{1, 1}));
  ASSERT_OK(table->Accumulate(1, std::vector<Key>{1, 2},
                              std::vector<float>{2, 2, 4, 4}));
  ASSERT_OK(table->ApplyAccumulated(1.0, {1}));
  EXPECT_THAT(Pulled(*table, {1, 2}), ElementsAre(0.5, 0.5, 1, 1));
  ASSERT_OK(table->ApplyAccumulated(1.0));
  EXPECT_THAT(Pulled(*table, {1, 2}), ElementsAre(-0.5, -0.5, -1, -1));
}

TEST_P(SparseTableConformance, CountsShowsThatWaitAsOnePushOfTheirSum) {
  SparseTableOptions options = Options();
  options.show_click.emplace();
  options.show_click->delete_threshold = 0.8;
  auto pushed = Make(options);
  auto waited = Make(options);
  ASSERT_EQ(Pulled(*pushed, {1, 2, 3}), Pulled(*waited, {1, 2, 3}));
  const std::vector<float> shows{1, 20};
  const std::vector<float> clicks{0, 2};
  const std::vector<float> more{9, 10};
  const std::vector<float> no_clicks{1, 0};
  ASSERT_OK(
      waited->Accumulate(0, std::vector<Key>{3}, std::vector<float>{2, 2}));
  ASSERT_OK(waited->Accumulate(1, std::vector<Key>{1, 2},
                               std::vector<float>{1, 1, 2, 2},
                               {shows, clicks}));
  ASSERT_OK(waited->Accumulate(0, std::vector<Key>{1, 2},
                               std::vector<float>{3, 3, 0, 2},
                               {more, no_clicks}));
  ASSERT_OK(waited->ApplyAccumulated(0.5));
  const std::vector<float> all_shows{10, 30, 0};
  const std::vector<float> all_clicks{1, 2, 0};
  ASSERT_OK(pushed->Push(std::vector<Key>{1, 2, 3},
                         std::vector<float>{2, 2, 1, 2, 1, 1},
                         {all_shows, all_clicks}));
  EXPECT_EQ(Pulled(*waited, {1, 2, 3}), Pulled(*pushed, {1, 2, 3}));
  // Which of them go by their score is the same on every day; key 3, which
  // nobody was shown, goes at once.
  for (int day = 0; day < 40; ++day) {
    ASSERT_OK_AND_ASSIGN(const uint64_t expected, pushed->Shrink(0));
    ASSERT_OK_AND_ASSIGN(const uint64_t got, waited->Shrink(0));
    EXPECT_EQ(got, expected) << day;
    if (day == 0) {
      EXPECT_EQ(got, 1u);
    }
  }
  // What was counted is not counted again.
  ASSERT_OK(
      waited->Accumulate(0, std::vector<Key>{4}, std::vector<float>{1, 1}));
  ASSERT_OK(waited->ApplyAccumulated(1.0));
}

TEST_P(SparseTableConformance, TellsGeoWorkersWhatOthersChanged) {
  SparseTableOptions options = Options();
  options.num_geo_workers = 3;
  auto table = Make(options);
  ASSERT_OK(table->AddFrom(0, std::vector<Key>{1, 2},
                           std::vector<float>{1, 2, 3, 4}));
  ASSERT_OK(table->AddFrom(1, std::vector<Key>{2}, std::vector<float>{1, 1}));
  EXPECT_THAT(*table->TakeChanges(0), ElementsAre(2));
  ASSERT_OK_AND_ASSIGN(std::vector<Key> some, table->TakeChanges(1, 1));
  ASSERT_EQ(some.size(), 1u);
  ASSERT_OK_AND_ASSIGN(const std::vector<Key> rest, table->TakeChanges(1, 1));
  some.insert(some.end(), rest.begin(), rest.end());
  EXPECT_THAT(some, UnorderedElementsAre(1, 2));
  EXPECT_THAT(*table->TakeChanges(1), ElementsAre());
  EXPECT_THAT(*table->TakeChanges(2), UnorderedElementsAre(1, 2));
  EXPECT_THAT(*table->TakeChanges(2), ElementsAre());
  EXPECT_THAT(Pulled(*table, {1, 2}), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(table->TakeChanges(3), HasCode(StatusCode::kInvalidArgument));
}

TEST_P(SparseTableConformance, CountsGradientsThatAreNoNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  SparseTableOptions options = Options();
  options.update.drop_nonfinite = true;
  auto table = Make(options);
  ASSERT_OK(table->Push(std::vector<Key>{1, 2, 3},
                        std::vector<float>{1, nan, 1, 1, -inf, 1}));
  EXPECT_THAT(Pulled(*table, {1, 2, 3}), ElementsAre(1, 1, 0.5, 0.5, 1, 1));
  EXPECT_EQ(table->stats().num_nonfinite, 2u);
  auto keeps = Make(Options());
  ASSERT_OK(keeps->Push(std::vector<Key>{1}, std::vector<float>{1, nan}));
  EXPECT_TRUE(std::isnan(Pulled(*keeps, {1})[1]));
  EXPECT_EQ(keeps->stats().num_nonfinite, 1u);
}

TEST_P(SparseTableConformance, LoadsWhatItSaved) {
  SparseTableOptions options = Options();
  options.update.rule = optim::Adam();
  options.initializer = NormalInit{};
  auto table = Make(options);
  std::vector<Key> keys(5000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = HashKey(i);
  std::vector<float> gradients(keys.size() * 2, 0.25f);
  ASSERT_OK(table->Push(keys, gradients));
  table->EndStep();
  ASSERT_OK_AND_ASSIGN(const SaveStats saved, table->Save(folder(), {}));
  EXPECT_EQ(saved.num_rows, 5000u);
  auto other = Make(options);
  Pulled(*other, {1, 2, 3});
  ASSERT_OK_AND_ASSIGN(const LoadStats loaded, other->Load(folder(), 0, 1));
  EXPECT_EQ(loaded.num_rows, 5000u);
  EXPECT_FALSE(loaded.values_only);
  EXPECT_EQ(other->stats().step, 1u);
  EXPECT_EQ(other->stats().num_rows, 5000u);
  // The optimizer's state as well: both go on alike.
  ASSERT_OK(table->Push(keys, gradients));
  ASSERT_OK(other->Push(keys, gradients));
  EXPECT_EQ(Pulled(*table, keys), Pulled(*other, keys));
}

TEST_P(SparseTableConformance, LoadsDeltasOnTopOfTheBase) {
  SparseTableOptions options = Options();
  options.count_unseen_days = true;
  auto table = Make(options);
  std::vector<Key> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  Pulled(*table, keys);
  ASSERT_OK(table->Save(folder(), {{.number = 1}}));
  ASSERT_OK(
      table->Push(std::vector<Key>{5, 2000}, std::vector<float>{2, 2, 2, 2}));
  ASSERT_OK_AND_ASSIGN(
      const SaveStats delta,
      table->Save(folder(), {{.number = 2, .kind = SaveKind::kDelta}}));
  EXPECT_EQ(delta.num_rows, 2u);
  ASSERT_OK(table->Shrink(100));
  Pulled(*table, {5, 6, 2000});
  ASSERT_OK(table->Shrink(2));  // leaves the three
  ASSERT_OK_AND_ASSIGN(
      const SaveStats last,
      table->Save(folder(), {{.number = 3, .kind = SaveKind::kDelta}}));
  EXPECT_EQ(last.num_erased, 998u);
  auto other = Make(options);
  ASSERT_OK_AND_ASSIGN(const LoadStats loaded, other->Load(folder(), 0, 1));
  EXPECT_EQ(loaded.number, 3u);
  EXPECT_EQ(loaded.num_rows, 3u);
  EXPECT_THAT(Pulled(*other, {5, 6, 2000}, false),
              ElementsAre(0, 0, 1, 1, 0, 0));
}

TEST_P(SparseTableConformance, IsReadByAnyNumberOfServers) {
  SparseTableOptions options = Options();
  options.initializer = UniformInit{};
  constexpr Key kNumKeys = 3000;
  std::vector<Key> all(kNumKeys);
  std::iota(all.begin(), all.end(), 0);
  auto reference = Make(options);
  const std::vector<float> rows = Pulled(*reference, all);
  // Three servers write.
  for (uint32_t server = 0; server < 3; ++server) {
    auto table = Make(options);
    std::vector<Key> own;
    for (Key key : all) {
      if (ServerOfKey(key, 3) == server) own.push_back(key);
    }
    EXPECT_NEAR(static_cast<double>(own.size()), 1000, 150);
    Pulled(*table, own);
    ASSERT_OK(table->Save(folder(), {{.server = server, .num_servers = 3}}));
  }
  // Two read.
  uint64_t num_rows = 0;
  std::vector<float> merged(kNumKeys * 2);
  for (uint32_t server = 0; server < 2; ++server) {
    options.initializer = ConstantInit{77.0f};
    auto table = Make(options);
    ASSERT_OK_AND_ASSIGN(const LoadStats loaded,
                         table->Load(folder(), server, 2));
    num_rows += loaded.num_rows;
    for (Key key : all) {
      if (ServerOfKey(key, 2) != server) continue;
      const std::vector<float> row = Pulled(*table, {key}, false);
      std::copy(row.begin(), row.end(),
                merged.begin() + static_cast<ptrdiff_t>(2 * key));
    }
  }
  EXPECT_EQ(num_rows, kNumKeys);
  EXPECT_EQ(merged, rows);
}

TEST_P(SparseTableConformance, ReadsOnlyValuesWhereTheStateIsAnothers) {
  auto sgd = Make(Options());
  ASSERT_OK(sgd->Push(std::vector<Key>{1}, std::vector<float>{1, 1}));
  ASSERT_OK(sgd->Save(folder(), {}));
  SparseTableOptions options = Options();
  options.update.rule = optim::Adagrad();
  auto adagrad = Make(options);
  ASSERT_OK_AND_ASSIGN(const LoadStats loaded, adagrad->Load(folder(), 0, 1));
  EXPECT_TRUE(loaded.values_only);
  EXPECT_THAT(Pulled(*adagrad, {1}), ElementsAre(0.5, 0.5));
}

// A save that is written while requests go on, compared with what a save that
// nobody disturbs writes of its moment: the same bytes.
class SaveConformance : public SparseTableConformance {
 protected:
  struct Case {
    std::string name;
    SparseTableOptions options;
  };

  static std::vector<Case> Cases() {
    std::vector<Case> cases;
    for (const RuleCase& rule : RuleCases()) {
      SparseTableOptions options = Options();
      options.update.rule = rule.rule;
      options.initializer = NormalInit{};
      options.num_shards = 1 + static_cast<uint32_t>(cases.size()) % 3;
      cases.push_back({rule.name, options});
    }
    SparseTableOptions options = Options();
    options.update.rule = optim::Adam();
    options.num_shards = 2;
    options.num_geo_workers = 2;
    auto with = [&](const std::string& name, const auto& change) {
      SparseTableOptions changed = options;
      change(changed);
      cases.push_back({name, changed});
    };
    with("entry by count",
         [](SparseTableOptions& o) { o.entry = AdmitByCount{2}; });
    with("entry by chance",
         [](SparseTableOptions& o) { o.entry = AdmitByProbability{0.5}; });
    with("unseen days",
         [](SparseTableOptions& o) { o.count_unseen_days = true; });
    with("time to live", [](SparseTableOptions& o) {
      o.time_to_live = std::chrono::seconds(20);
    });
    with("show and click",
         [](SparseTableOptions& o) { o.show_click.emplace(); });
    with("missed steps",
         [](SparseTableOptions& o) { o.count_missed_steps = true; });
    return cases;
  }

  // One call, at random.
  static void Disturb(SparseTable& table, std::mt19937_64& random,
                      uint64_t num_keys) {
    std::vector<Key> keys(1 + random() % 60);
    for (Key& key : keys) key = random() % num_keys * 0x9e3779b97f4a7c15u;
    std::vector<float> rows(keys.size() * table.dim());
    for (float& x : rows) {
      x = static_cast<float>(random() % 1000) * 1e-3f - 0.5f;
    }
    switch (random() % 12) {
      case 0:
      case 1:
        ASSERT_OK(table.Pull(keys, rows));
        break;
      case 2:
        ASSERT_OK(table.Add(keys, rows));
        break;
      case 3:
        ASSERT_OK(table.Assign(keys, rows));
        break;
      case 4:
        ASSERT_OK(table.Accumulate(0, keys, rows));
        ASSERT_OK(table.ApplyAccumulated(0.5));
        table.EndStep();
        break;
      case 5:
        if (random() % 8 != 0) break;
        if (table.options().time_to_live.count() > 0) {
          ASSERT_OK(table.Expire().status());
        } else if (table.options().count_unseen_days ||
                   table.options().show_click.has_value()) {
          ASSERT_OK(table.Shrink(2).status());
        }
        break;
      case 6:
        if (table.options().num_geo_workers == 0) break;
        ASSERT_OK(table.AddFrom(1, keys, rows));
        break;
      default:
        ASSERT_OK(table.Push(keys, rows));
    }
  }

  // What the files of a save hold, one after the other.
  static std::string Bytes(const base::Path& folder,
                           const WrittenTable& written) {
    std::string bytes;
    for (const SaveList::File& file : written.list.files) {
      bytes += base::ReadFile(folder / file.name).value();
    }
    return bytes;
  }
  static std::string Now(SparseTable& table, const base::Path& folder,
                         const SaveId& id) {
    const Result<WrittenTable> written = table.WriteSave(folder, {id});
    EXPECT_OK(written.status());
    table.EndSave(false);
    return Bytes(folder, *written);
  }
};

TEST_P(SaveConformance, HasTheRowsOfItsMomentWhateverComesAfter) {
  constexpr uint64_t kKeys = 2000;
  uint64_t seed = 0;
  for (const Case& each : Cases()) {
    SCOPED_TRACE(each.name);
    const base::Path folder = this->folder() / std::to_string(seed);
    const base::Path still = folder / "still";
    ASSERT_OK(base::MakeFolders(still));
    std::mt19937_64 random(++seed);
    auto table = Make(each.options);
    for (int i = 0; i < 100; ++i) Disturb(*table, random, kKeys);
    for (uint64_t number = 1; number <= 4; ++number) {
      SCOPED_TRACE(number);
      SaveId id;
      id.number = number;
      id.kind = number % 3 == 1 ? SaveKind::kBase : SaveKind::kDelta;
      const std::string expected = Now(*table, still, id);
      SaveOptions options{id};
      // Sometimes requests have to wait for rows to be written.
      if (random() % 2 == 0) options.max_kept_byte_size = 1 << 13;
      ASSERT_OK(table->BeginSave(options));
      const bool waits = options.max_kept_byte_size != 0;
      for (int i = 0; i < 40 && !waits; ++i) Disturb(*table, random, kKeys);
      std::thread disturbing([&] {
        for (int i = 0; i < 60; ++i) Disturb(*table, random, kKeys);
      });
      const Result<WrittenTable> written = table->WriteRows(folder);
      disturbing.join();
      ASSERT_OK(written.status());
      EXPECT_TRUE(Bytes(folder, *written) == expected);
      EXPECT_EQ(table->stats().save_byte_size, 0u);
      // Those that do not count leave no gap.
      const bool counts = number == 1 || random() % 3 != 0;
      if (counts) {
        ASSERT_OK(WriteSaveList(folder, written->list));
        if (number == 4) {
          ASSERT_OK(RemoveOlderSaves(folder, "emb", 4));
        }
      }
      table->EndSave(counts);
    }
    // The last one: from here on nothing changes any more.
    // How old rows are, and whether a pull has made up for missed steps, is in
    // a base only.
    const bool ages = each.options.time_to_live.count() > 0 ||
                      each.options.count_unseen_days ||
                      each.options.show_click.has_value() ||
                      each.options.count_missed_steps;
    ASSERT_OK(
        table->Save(folder, {{7, ages ? SaveKind::kBase : SaveKind::kDelta}}));
    auto loaded = Make(each.options);
    ASSERT_OK(loaded->Load(folder, 0, 1));
    const base::Path other = folder / "loaded";
    ASSERT_OK(base::MakeFolders(other));
    EXPECT_TRUE(Now(*loaded, other, {8}) == Now(*table, still, {8}));
  }
}

TEST_P(SaveConformance, ErasedRowsAreInTheSaveThatHadThem) {
  SparseTableOptions options = Options();
  options.count_unseen_days = true;
  options.num_shards = 2;
  auto table = Make(options);
  std::vector<Key> keys(500);
  std::iota(keys.begin(), keys.end(), 0);
  Pulled(*table, keys);
  ASSERT_OK(table->BeginSave({{.number = 1}}));
  ASSERT_OK_AND_ASSIGN(const uint64_t gone, table->Shrink(0));
  EXPECT_EQ(gone, 500u);
  // Those keys again, in other rows.
  ASSERT_OK(table->Push(keys, std::vector<float>(1000, 2.0f)));
  EXPECT_EQ(table->stats().num_rows, 500u);
  ASSERT_OK_AND_ASSIGN(const WrittenTable written, table->WriteRows(folder()));
  EXPECT_EQ(written.stats.num_rows, 500u);
  table->EndSave(true);
  ASSERT_OK(WriteSaveList(folder(), written.list));
  auto loaded = Make(options);
  ASSERT_OK(loaded->Load(folder(), 0, 1));
  EXPECT_THAT(Pulled(*loaded, keys), testing::Each(1.0f));
  EXPECT_THAT(Pulled(*table, keys), testing::Each(0.0f));
}

TEST_P(SaveConformance, RequestsWaitWhereItsMemoryIsUsedUp) {
  constexpr size_t kRows = 4000;
  constexpr size_t kRequestKeys = 50;
  auto table = Make(Options());
  std::vector<Key> keys(kRows);
  std::iota(keys.begin(), keys.end(), 0);
  Pulled(*table, keys);
  SaveOptions options{{.number = 1}};
  options.max_kept_byte_size = 100 * 8;  // rows of two
  ASSERT_OK(table->BeginSave(options));
  std::atomic<size_t> num_pushed = 0;
  std::thread pushing([&] {
    const std::vector<float> gradients(kRequestKeys * 2, 1.0f);
    for (size_t i = 0; i < kRows; i += kRequestKeys) {
      ASSERT_OK(
          table->Push(std::span(keys).subspan(i, kRequestKeys), gradients));
      ++num_pushed;
    }
  });
  // One request goes in where there is room at all. Rows of a disk's that leave
  // memory are kept, too: some more than it has keys.
  while (num_pushed < 1) std::this_thread::yield();
  ASSERT_OK_AND_ASSIGN(const WrittenTable written, table->WriteRows(folder()));
  pushing.join();
  EXPECT_GT(written.stats.most_kept_byte_size, 0u);
  EXPECT_LE(written.stats.most_kept_byte_size,
            (100 + 3 * (kRequestKeys + 32)) * 8);
  table->EndSave(true);
  ASSERT_OK(WriteSaveList(folder(), written.list));
  auto loaded = Make(Options());
  ASSERT_OK(loaded->Load(folder(), 0, 1));
  EXPECT_THAT(Pulled(*loaded, keys), testing::Each(1.0f));
  EXPECT_THAT(Pulled(*table, keys), testing::Each(0.5f));
}

TEST_P(SaveConformance, FailsWhereItsRowsAreReplaced) {
  auto table = Make(Options());
  Pulled(*table, {1, 2});
  ASSERT_OK(table->Save(folder(), {{.number = 1}}));
  ASSERT_OK(table->BeginSave({{.number = 2}}));
  ASSERT_OK(table->Load(folder(), 0, 1));
  EXPECT_THAT(table->WriteRows(folder()).status(),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("save table emb: the rows were replaced")));
  table->EndSave(false);
  ASSERT_OK(table->BeginSave({{.number = 3}}));
  table->EndSave(false);
  EXPECT_THAT(table->WriteRows(folder()).status(),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("the save has ended")));
  ASSERT_OK(table->Save(folder(), {{.number = 4}}));
}

TEST_P(SparseTableConformance, WritesText) {
  auto table = Make(Options());
  ASSERT_OK(table->Push(std::vector<Key>{12}, std::vector<float>{1, 1.5}));
  SaveOptions options;
  options.text_file = folder() / "emb.txt";
  ASSERT_OK(table->Save(folder(), options));
  EXPECT_EQ(*base::ReadFile(folder() / "emb.txt"), "12\t0.5,0.25\n");
}

TEST_P(SparseTableConformance, SavesByScore) {
  SparseTableOptions options = Options();
  options.show_click.emplace();
  auto table = Make(options);
  const std::vector<float> shows{1, 3};
  const std::vector<float> clicks{0, 2};
  ASSERT_OK(table->Push(std::vector<Key>{1, 2}, std::vector<float>{1, 1, 1, 1},
                        {shows, clicks}));
  ASSERT_OK(table->Save(folder(), {{.number = 1}}));
  SaveOptions by_score{{.number = 2, .kind = SaveKind::kDelta},
                       SaveFilter::kByScore};
  ASSERT_OK_AND_ASSIGN(const SaveStats first, table->Save(folder(), by_score));
  EXPECT_EQ(first.num_rows, 1u);
  by_score.id.number = 3;  // its score since the last delta is zero now
  ASSERT_OK_AND_ASSIGN(const SaveStats next, table->Save(folder(), by_score));
  EXPECT_EQ(next.num_rows, 0u);
}

}  // namespace fleet::table

#endif  // FLEET_TABLE_TABLE_CONFORMANCE_H_
