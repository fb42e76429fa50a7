// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/table_spec.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/ps/wire.h"

namespace fleet::ps {
namespace {

TableSpec Everything() {
  table::SparseTableOptions t;
  t.name = "emb";
  t.dim = 9;
  t.initializer = table::XavierInit{100, 9, false};
  t.seed = 1234567890123;
  t.update.rule =
      optim::Adam{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-5, .lazy = true};
  t.update.decay = {0.1, 0.2, 0.3};
  t.update.transform = {2.0, -1.0, 1.0};
  t.update.learning_rate = {
      0.25, table::PiecewiseDecay{{10, 20}, {1.0, 0.5, 0.1}}, 3.0, 6};
  t.update.drop_nonfinite = true;
  t.count_missed_steps = true;
  t.entry = table::AdmitByProbability{0.125};
  t.count_unseen_days = true;
  t.time_to_live = std::chrono::seconds(77);
  t.show_click.emplace();
  t.show_click->fade = 0.5;
  t.show_click->extended_from = 3;
  t.num_shards = 7;
  t.max_byte_size = uint64_t{1} << 40;
  t.disk = table::DiskOptions{"/d", 5000};
  t.num_geo_workers = 6;
  return {TableId{42}, t};
}

TEST(TableSpec, CrossesTheWireWhole) {
  ASSERT_OK_AND_ASSIGN(const TableSpec got,
                       DecodeTableSpec(Encode(Everything())));
  EXPECT_EQ(got.id, TableId{42});
  EXPECT_EQ(got.name(), "emb");
  const auto& t = std::get<table::SparseTableOptions>(got.table);
  EXPECT_EQ(t.dim, 9u);
  EXPECT_EQ(std::get<table::XavierInit>(t.initializer).fan_in, 100);
  EXPECT_FALSE(std::get<table::XavierInit>(t.initializer).uniform);
  EXPECT_EQ(t.seed, 1234567890123u);
  const auto& adam = std::get<optim::Adam>(t.update.rule);
  EXPECT_EQ(adam.beta1, 0.8);
  EXPECT_EQ(adam.epsilon, 1e-5);
  EXPECT_TRUE(adam.lazy);
  EXPECT_EQ(t.update.decay.decoupled, 0.3);
  EXPECT_EQ(t.update.transform.max, 1.0);
  EXPECT_EQ(t.update.learning_rate.base, 0.25);
  EXPECT_EQ(t.update.learning_rate.factor, 3.0);
  EXPECT_EQ(t.update.learning_rate.first_step, 6u);
  const auto& pieces =
      std::get<table::PiecewiseDecay>(t.update.learning_rate.schedule);
  EXPECT_EQ(pieces.boundaries, (std::vector<uint64_t>{10, 20}));
  EXPECT_EQ(pieces.values, (std::vector<double>{1.0, 0.5, 0.1}));
  EXPECT_TRUE(t.update.drop_nonfinite);
  EXPECT_TRUE(t.count_missed_steps);
  EXPECT_EQ(std::get<table::AdmitByProbability>(t.entry).probability, 0.125);
  EXPECT_TRUE(t.count_unseen_days);
  EXPECT_EQ(t.time_to_live, std::chrono::seconds(77));
  EXPECT_EQ(t.show_click->fade, 0.5);
  EXPECT_EQ(t.show_click->extended_from, 3u);
  EXPECT_EQ(t.num_shards, 7u);
  EXPECT_EQ(t.max_byte_size, uint64_t{1} << 40);
  EXPECT_EQ(t.disk->folder, "/d");
  EXPECT_EQ(t.num_geo_workers, 6);
  // And again to the same bytes: nothing was forgotten on the way.
  EXPECT_EQ(Encode(got), Encode(Everything()));
}

TEST(TableSpec, CarriesEveryRule) {
  const std::vector<optim::UpdateRule> rules = {
      optim::Sgd(),           optim::Momentum{.mu = 0.7},
      optim::Adam(),          optim::Adagrad{.initial = 0.1},
      optim::Adamax(),        optim::RmsProp{.centered = true},
      optim::Adadelta(),      optim::Lamb{.always_adapt = true},
      optim::Lars{.mu = 0.5}, optim::Ftrl{.l1 = 0.5}};
  for (const optim::UpdateRule& rule : rules) {
    DenseSpec dense;
    dense.name = "w";
    dense.size = 10;
    dense.update.rule = rule;
    const TableSpec spec{TableId{1}, dense};
    ASSERT_OK_AND_ASSIGN(const TableSpec got, DecodeTableSpec(Encode(spec)));
    EXPECT_EQ(std::get<DenseSpec>(got.table).update.rule.index(), rule.index());
    EXPECT_EQ(Encode(got), Encode(spec));
  }
}

TEST(TableSpec, CarriesEverySchedule) {
  const std::vector<table::RateSchedule> schedules = {
      table::ConstantRate(),
      table::ExponentialDecay{0.5, 2, true},
      table::NaturalExpDecay{0.5, 2, true},
      table::InverseTimeDecay{0.5, 2, true},
      table::NoamDecay{16, 3},
      table::PolynomialDecay{4, 0.25, 2, true},
      table::PiecewiseDecay{{2, 5}, {1, 0.5, 0.25}},
      table::CosineDecay{3, 0.125, 2, true, 2},
      table::CyclicRate{2, 3, 2, 0.5, 0.75, 2, true},
      table::ToldRate{"rate", {5}, {0.5}}};
  for (const table::RateSchedule& schedule : schedules) {
    DenseSpec dense;
    dense.name = "w";
    dense.size = 10;
    table::LearningRate& rate = dense.update.learning_rate;
    rate.base = 0.5;
    rate.schedule = schedule;
    rate.warmup = {
        .steps = 6, .start = 0.1, .end = 0.3, .stair = 2, .begin = 4};
    ASSERT_OK_AND_ASSIGN(const TableSpec got,
                         DecodeTableSpec(Encode({TableId{1}, dense})));
    const table::LearningRate& carried =
        std::get<DenseSpec>(got.table).update.learning_rate;
    for (uint64_t step = 0; step < 30; ++step) {
      EXPECT_EQ(RateOfStep(carried, step), RateOfStep(rate, step))
          << schedule.index() << " at " << step;
    }
  }
}

TEST(TableSpec, SeveralGoTogetherAsFarAsARequestTakesThem) {
  std::vector<std::string> specs;
  for (uint32_t i = 0; i < 1000; ++i) {
    DenseSpec dense;
    dense.name = std::string(1000, 'x') + std::to_string(i);
    specs.push_back(Encode({TableId{i}, dense}));
  }
  const std::vector<std::string> bodies = RequestsToCreate(specs);
  EXPECT_LE(bodies.size(), 10u);
  std::vector<std::string> again;
  for (const std::string& body : bodies) {
    EXPECT_LE(body.size(), kChunkByteSize + 2000);
    const auto decoded = DecodeTableSpecs(body);
    ASSERT_OK(decoded);
    for (const TableSpec& spec : *decoded) again.push_back(Encode(spec));
  }
  EXPECT_EQ(again, specs);
  EXPECT_THAT(RequestsToCreate({}), testing::IsEmpty());
  EXPECT_THAT(DecodeTableSpecs(bodies[0].substr(0, 100)),
              StatusIs(StatusCode::kDataLoss, testing::_));
}

TEST(TableSpec, SaysWhenItIsCutOff) {
  const std::string whole = Encode(Everything());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(DecodeTableSpec(whole.substr(0, size)).ok()) << size;
  }
  EXPECT_THAT(DecodeTableSpec(whole + "x"), HasCode(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace fleet::ps
