// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/make_tables.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/testing/served_plan_fixtures.h"

namespace fleet::plan {
namespace {

using ::testing::HasSubstr;

// A table of `emb` whose startup program fills it with `fill`.
Result<ServedTable> Make(
    const std::string& fill, const ParameterServerStrategy& strategy = {},
    const std::string& type = "shape(100, 4).dtype(float32)",
    const std::string& entry = "", const std::string& table_class = "") {
  auto main = Parse("{\npersist trainable param emb : LOD_TENSOR." + type +
                    "\nvar show : LOD_TENSOR.shape(-1, 1).dtype(float32)\n}");
  auto startup = Parse("{\n{Out=['emb']} = " + fill + "\n}");
  const ProgramIndex index(*main);
  const ProgramIndex startup_index(*startup);
  const cluster::Role role = ServedRole();
  const TableMaker maker(index, startup_index, strategy, role);
  const ParameterUpdate update{.parameter = "emb",
                               .op = 0,
                               .gradient = "g",
                               .options = {},
                               .folded = {}};
  return maker.Sparse(table::TableId{5},
                      {.name = "emb",
                       .distributed = true,
                       .lookups = {},
                       .entry = entry,
                       .table_class = table_class},
                      &update);
}

table::SparseTableOptions Options(
    const std::string& fill, const ParameterServerStrategy& strategy = {}) {
  Result<ServedTable> table = Make(fill, strategy);
  EXPECT_OK(table.status());
  if (!table.ok()) return {};
  return std::get<table::SparseTableOptions>(table->spec.table);
}

TEST(TableMaker, RowsBeginAsTheStartupProgramSays) {
  EXPECT_EQ(std::get<table::ConstantInit>(
                Options("fill_constant(inputs={}, value = 0.5)").initializer)
                .value,
            0.5f);
  EXPECT_EQ(std::get<table::ConstantInit>(
                Options("fill_constant(inputs={}, str_value = '0.25', "
                        "value = 0.5)")
                    .initializer)
                .value,
            0.25f);
  const auto uniform = std::get<table::UniformInit>(
      Options("uniform_random(inputs={}, max = 0.5, min = -0.25)").initializer);
  EXPECT_EQ(uniform.low, -0.25f);
  EXPECT_EQ(uniform.high, 0.5f);
  const auto normal = std::get<table::NormalInit>(
      Options("gaussian_random(inputs={}, mean = 1.0, std = 0.5)").initializer);
  EXPECT_EQ(normal.mean, 1.0f);
  EXPECT_EQ(normal.deviation, 0.5f);
  const auto truncated = std::get<table::TruncatedNormalInit>(
      Options("truncated_gaussian_random(inputs={}, std = 0.5)").initializer);
  EXPECT_EQ(truncated.mean, 0.0f);
  EXPECT_EQ(truncated.deviation, 0.5f);
  EXPECT_EQ(std::get<table::ConstantInit>(
                Options("uniform_random(inputs={}, max = 0.5, min = 0.5)")
                    .initializer)
                .value,
            0.5f);
}

TEST(TableMaker, SaysWhichInitializersThereAre) {
  EXPECT_THAT(Make("assign_value(inputs={})").status(),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("its rows begin with assign_value")));
  EXPECT_THAT(Make("scale(inputs={X=['emb']})").status(),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("the startup program does not fill it")));
}

TEST(TableMaker, RowsFollowFromTheSeed) {
  EXPECT_EQ(Options("uniform_random(inputs={}, seed = 9)").seed, 9u);
  const uint64_t none = Options("uniform_random(inputs={})").seed;
  EXPECT_EQ(Options("uniform_random(inputs={})").seed, none);
  EXPECT_NE(Options("uniform_random(inputs={})", {.seed = 3}).seed, none);
  EXPECT_EQ(Options("uniform_random(inputs={}, seed = 9)", {.seed = 3}).seed,
            9u);
}

TEST(TableMaker, TakesExtrasByNameOrForAll) {
  ParameterServerStrategy strategy;
  strategy.extras["emb"] = {.entry = table::AdmitByCount{3},
                            .count_unseen_days = true,
                            .time_to_live = std::chrono::seconds(60),
                            .max_byte_size = 1 << 20,
                            .num_shards = 4};
  strategy.extras[""] = {.time_to_live = std::chrono::seconds(5)};
  const std::string fill = "fill_constant(inputs={}, value = 0.0)";
  const table::SparseTableOptions named = Options(fill, strategy);
  EXPECT_EQ(std::get<table::AdmitByCount>(named.entry).count, 3u);
  EXPECT_TRUE(named.count_unseen_days);
  EXPECT_EQ(named.time_to_live, std::chrono::seconds(60));
  EXPECT_EQ(named.max_byte_size, 1u << 20);
  EXPECT_EQ(named.num_shards, 4u);
  strategy.extras.erase("emb");
  EXPECT_EQ(Options(fill, strategy).time_to_live, std::chrono::seconds(5));
}

TEST(TableMaker, RefusesExtrasThatContradictEachOther) {
  ParameterServerStrategy strategy;
  strategy.extras[""] = {.max_byte_size = 10,
                         .disk = table::DiskOptions{"rows", 10}};
  EXPECT_THAT(Make("fill_constant(inputs={})", strategy).status(),
              HasCode(StatusCode::kInvalidArgument));
}

TEST(TableMaker, ATableOnDiskNeedsAFolder) {
  const std::string fill = "fill_constant(inputs={})";
  const std::string type = "shape(100, 4).dtype(float32)";
  EXPECT_THAT(
      Make(fill, {}, type, "", "SSDSparseTable").status(),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("no folder is named")));
  ParameterServerStrategy strategy;
  strategy.extras[""] = {.disk = table::DiskOptions{"rows", 10}};
  ASSERT_OK_AND_ASSIGN(const ServedTable table,
                       Make(fill, strategy, type, "", "SSDSparseTable"));
  EXPECT_EQ(std::get<table::SparseTableOptions>(table.spec.table).disk->folder,
            "rows");
}

TEST(TableMaker, ReadsEntryRules) {
  const std::string fill = "fill_constant(inputs={})";
  const std::string type = "shape(100, 4).dtype(float32)";
  ASSERT_OK_AND_ASSIGN(const ServedTable table,
                       Make(fill, {}, type, "probability_entry:0.25"));
  const auto& options = std::get<table::SparseTableOptions>(table.spec.table);
  EXPECT_EQ(std::get<table::AdmitByProbability>(options.entry).probability,
            0.25);
  EXPECT_OK(Make(fill, {}, type, "none").status());
  for (const char* wrong :
       {"probability_entry:2", "probability_entry:x", "count_filter_entry:-1",
        "count_filter_entry", "sometimes"}) {
    EXPECT_THAT(Make(fill, {}, type, wrong).status(),
                HasCode(StatusCode::kInvalidArgument))
        << wrong;
  }
  EXPECT_THAT(Make(fill, {}, type, "show_click_entry:show:click").status(),
              StatusIs(StatusCode::kNotFound, HasSubstr("'click'")));
}

TEST(TableMaker, HoldsFloatsOnly) {
  EXPECT_THAT(
      Make("fill_constant(inputs={})", {}, "shape(100, 4).dtype(float64)")
          .status(),
      StatusIs(StatusCode::kUnimplemented,
               HasSubstr("it is float64, and servers hold float32")));
  EXPECT_THAT(Make("fill_constant(inputs={})", {}, "shape(100).dtype(float32)")
                  .status(),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("its shape [100] is not that of rows")));
}

}  // namespace
}  // namespace fleet::plan
