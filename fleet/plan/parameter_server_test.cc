// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/parameter_server.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/plan/backward.h"
#include "fleet/plan/prune.h"
#include "fleet/program/op_role.h"
#include "fleet/testing/served_plan_fixtures.h"

namespace fleet::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A row of 8 by an id, a layer, the mean as loss, SGD.
constexpr char kVariables[] = R"(
    var ids : LOD_TENSOR.shape(-1, 1).dtype(int64).stop_gradient(True).data(True)
    var more : LOD_TENSOR.shape(-1, 1).dtype(int64).stop_gradient(True).data(True)
    persist trainable param emb : LOD_TENSOR.shape(1000, 8).dtype(float32)
    persist trainable param w : LOD_TENSOR.shape(8, 2).dtype(float32)
    persist trainable param b : LOD_TENSOR.shape(2).dtype(float32)
    persist var rate : LOD_TENSOR.shape(1).dtype(float32).stop_gradient(True)
    var rows : LOD_TENSOR.shape(-1, 8).dtype(float32)
    var emb@GRAD : SELECTED_ROWS.shape(1000, 8).dtype(float32)
    var rows@GRAD : LOD_TENSOR.shape(-1, 8).dtype(float32)
    var w@GRAD : LOD_TENSOR.shape(8, 2).dtype(float32)
    var b@GRAD : LOD_TENSOR.shape(2).dtype(float32)
)";

constexpr char kForward[] = R"(
    {Out=['rows']} = lookup_table(inputs={W=['emb'], Ids=['ids']}, is_sparse = True, padding_idx = long(-1))
    {Out=['h']} = matmul_v2(inputs={X=['rows'], Y=['w']})
    {Out=['y']} = elementwise_add(inputs={X=['h'], Y=['b']})
    {Out=['loss']} = reduce_mean(inputs={X=['y']})
)";

constexpr char kBackward[] = R"(
    {Out=['loss@GRAD']} = fill_any_like(inputs={X=['loss']}, op_role = 1)
    {X@GRAD=['y@GRAD']} = reduce_mean_grad(inputs={X=['y'], Out@GRAD=['loss@GRAD']}, op_role = 1)
    {X@GRAD=['h@GRAD'], Y@GRAD=['b@GRAD']} = elementwise_add_grad(inputs={X=['h'], Y=['b'], Out@GRAD=['y@GRAD']}, op_role = 1)
    {X@GRAD=['rows@GRAD'], Y@GRAD=['w@GRAD']} = matmul_v2_grad(inputs={X=['rows'], Y=['w'], Out@GRAD=['h@GRAD']}, op_role = 1)
    {W@GRAD=['emb@GRAD']} = lookup_table_grad(inputs={W=['emb'], Ids=['ids'], Out@GRAD=['rows@GRAD']}, is_sparse = True, op_role = 1, padding_idx = long(-1))
)";

constexpr char kUpdates[] = R"(
    {ParamOut=['emb']} = sgd(inputs={Param=['emb'], LearningRate=['rate'], Grad=['emb@GRAD']}, op_role = 2)
    {ParamOut=['w']} = sgd(inputs={Param=['w'], LearningRate=['rate'], Grad=['w@GRAD']}, op_role = 2)
    {ParamOut=['b']} = sgd(inputs={Param=['b'], LearningRate=['rate'], Grad=['b@GRAD']}, op_role = 2)
)";

constexpr char kStartup[] = R"({
    persist trainable param emb : LOD_TENSOR.shape(1000, 8).dtype(float32)
    persist trainable param w : LOD_TENSOR.shape(8, 2).dtype(float32)
    persist trainable param b : LOD_TENSOR.shape(2).dtype(float32)
    persist var rate : LOD_TENSOR.shape(1).dtype(float32).stop_gradient(True)
    {Out=['emb']} = uniform_random(inputs={}, max = 0.25, min = -0.25, seed = 7, shape = [1000, 8])
    {Out=['w']} = gaussian_random(inputs={}, shape = [8, 2])
    {Out=['b']} = fill_constant(inputs={}, shape = [2], value = 0.0)
    {Out=['rate']} = fill_constant(inputs={}, shape = [1], value = 0.125)
})";

std::string Main(const std::string& forward = kForward,
                 const std::string& backward = kBackward,
                 const std::string& updates = kUpdates,
                 const std::string& variables = "") {
  return std::string("{") + kVariables + variables + forward + backward +
         updates + "}";
}

TEST(ServeParameters, TurnsAProgramIntoWhatAWorkerRuns) {
  ASSERT_OK_AND_ASSIGN(Served served,
                       Serve(Main(), kStartup, {.mode = PsMode::kSync}));
  EXPECT_EQ(program::ToString(*served.main, {.variables = false}),
            R"({ // block 0
    {Outputs=['rows']} = distributed_lookup_table(inputs={Ids=['ids']}, bound = long(1000), dim = 8, is_test = False, lookup_table_version = 'lookup_table', op_role = 0, padding_idx = long(-1), table_id = 0, table_name = 'emb')
    {Out=['h']} = matmul_v2(inputs={X=['rows'], Y=['w']})
    {Out=['y']} = elementwise_add(inputs={X=['h'], Y=['b']})
    {Out=['loss']} = reduce_mean(inputs={X=['y']})
    {Out=['loss@GRAD']} = fill_any_like(inputs={X=['loss']}, op_role = 1)
    {X@GRAD=['y@GRAD']} = reduce_mean_grad(inputs={X=['y'], Out@GRAD=['loss@GRAD']}, op_role = 1)
    {X@GRAD=['h@GRAD'], Y@GRAD=['b@GRAD']} = elementwise_add_grad(inputs={X=['h'], Y=['b'], Out@GRAD=['y@GRAD']}, op_role = 1)
    {X@GRAD=['rows@GRAD'], Y@GRAD=['w@GRAD']} = matmul_v2_grad(inputs={X=['rows'], Y=['w'], Out@GRAD=['h@GRAD']}, op_role = 1)
    {} = distributed_push_sparse(inputs={Ids=['ids'], Grads=['rows@GRAD']}, bound = long(1000), dim = 8, is_test = False, lookup_table_version = 'lookup_table', op_role = 1, padding_idx = long(-1), table_id = 0, table_name = 'emb')
    {} = send(inputs={X=['w@GRAD', 'b@GRAD']}, op_role = 1, table_ids = [1, 2])
    {Out=['w', 'b']} = send_barrier(inputs={X=['w', 'b']}, op_role = 2, table_ids = [1, 2])
}
)");
  EXPECT_EQ(program::ToString(*served.startup, {.variables = false}),
            R"({ // block 0
    {Out=['emb']} = fake_init(inputs={}, shape = longs[1000, 8])
    {Out=['w']} = gaussian_random(inputs={}, shape = [8, 2])
    {Out=['b']} = fill_constant(inputs={}, shape = [2], value = 0.0)
    {Out=['rate']} = fill_constant(inputs={}, shape = [1], value = 0.125)
    {Out=['w', 'b']} = ps_init(inputs={X=['w', 'b']}, op_role = 0, table_ids = [1, 2])
}
)");
  ExpectWellFormed(*served.main);
  EXPECT_THAT(served.plan.passes,
              ElementsAre("serve_lookups", "send_gradients", "remove_updates",
                          "startup_of_worker"));
}

TEST(ServeParameters, DescribesTheTables) {
  ASSERT_OK_AND_ASSIGN(Served served, Serve(Main(), kStartup));
  ASSERT_EQ(served.plan.tables.size(), 3u);
  const ServedTable& emb = served.table("emb");
  EXPECT_EQ(emb.spec.id, table::TableId{0});
  EXPECT_EQ(emb.gradient, "emb@GRAD");
  EXPECT_TRUE(emb.sparse);
  EXPECT_TRUE(emb.bounded);
  EXPECT_THAT(emb.shape, ElementsAre(1000, 8));
  const table::SparseTableOptions& rows = served.sparse("emb");
  EXPECT_EQ(rows.dim, 8u);
  EXPECT_EQ(rows.seed, 7u);
  EXPECT_EQ(std::get<table::UniformInit>(rows.initializer).high, 0.25f);
  EXPECT_TRUE(std::holds_alternative<optim::Sgd>(rows.update.rule));
  EXPECT_EQ(rows.update.learning_rate.base, 0.125);
  const ServedTable& w = served.table("w");
  EXPECT_FALSE(w.sparse);
  EXPECT_EQ(w.gradient, "w@GRAD");
  EXPECT_EQ(std::get<table::DenseSpec>(w.spec.table).size, 16u);
  EXPECT_EQ(served.update("w").learning_rate.base, 0.125);
}

TEST(ServeParameters, AnAsynchronousStepEndsWithoutWaiting) {
  ASSERT_OK_AND_ASSIGN(Served served,
                       Serve(Main(), kStartup, {.mode = PsMode::kAsync}));
  EXPECT_THAT(Print(*served.main),
              HasSubstr(" = distributed_push_sparse(ids, rows@GRAD)\n"
                        " = send(w@GRAD, b@GRAD)\n"
                        "w, b = recv(w, b)\n"));
  ASSERT_OK_AND_ASSIGN(Served half,
                       Serve(Main(), kStartup, {.mode = PsMode::kHalfAsync}));
  EXPECT_THAT(Print(*half.main), HasSubstr("w, b = send_barrier(w, b)\n"));
}

TEST(ServeParameters, AGeoWorkerKeepsItsDenseUpdates) {
  ASSERT_OK_AND_ASSIGN(Served served,
                       Serve(Main(), kStartup, {.mode = PsMode::kGeo}));
  EXPECT_EQ(Print(*served.main),
            "rows = distributed_lookup_table(ids)\n"
            "h = matmul_v2(rows, w)\n"
            "y = elementwise_add(h, b)\n"
            "loss = reduce_mean(y)\n"
            "loss@GRAD = fill_any_like(loss)\n"
            "y@GRAD = reduce_mean_grad(y, loss@GRAD)\n"
            "h@GRAD, b@GRAD = elementwise_add_grad(h, b, y@GRAD)\n"
            "rows@GRAD, w@GRAD = matmul_v2_grad(rows, w, h@GRAD)\n"
            " = distributed_push_sparse(ids, rows@GRAD)\n"
            "w = sgd(w, rate, w@GRAD)\n"
            "b = sgd(b, rate, b@GRAD)\n"
            "w, b = geo_step(w, b)\n");
  EXPECT_EQ(served.sparse("emb").num_geo_workers, 2);
  EXPECT_EQ(served.sparse("emb").update.learning_rate.base, 0.125);
  EXPECT_THAT(Print(*served.startup), HasSubstr("w, b = ps_init(w, b)\n"));
}

TEST(ServeParameters, OnlySyncTablesMakeUpForMissedSteps) {
  const std::string adam = R"(
    {ParamOut=['emb'], Moment1Out=['m1'], Moment2Out=['m2'], Beta1PowOut=['p1'], Beta2PowOut=['p2']} = adam(inputs={Param=['emb'], Grad=['emb@GRAD'], LearningRate=['rate'], Moment1=['m1'], Moment2=['m2'], Beta1Pow=['p1'], Beta2Pow=['p2']}, beta1 = 0.5, lazy_mode = LAZY, op_role = 2)
)";
  auto missed = [&](PsMode mode, const std::string& lazy) {
    std::string updates = adam;
    updates.replace(updates.find("LAZY"), 4, lazy);
    Result<Served> served =
        Serve(Main(kForward, kBackward, updates), kStartup, {.mode = mode});
    EXPECT_OK(served.status());
    return served->sparse("emb").count_missed_steps;
  };
  EXPECT_TRUE(missed(PsMode::kSync, "False"));
  // No row changes that a step does not name, but powers go on.
  EXPECT_TRUE(missed(PsMode::kSync, "True"));
  EXPECT_FALSE(missed(PsMode::kAsync, "False"));
}

// ---- what goes with the updates

constexpr char kAdamVariables[] = R"(
    persist var m1 : LOD_TENSOR.shape(8, 2).dtype(float32)
    persist var m2 : LOD_TENSOR.shape(8, 2).dtype(float32)
    persist var p1 : LOD_TENSOR.shape(1).dtype(float32)
    persist var p2 : LOD_TENSOR.shape(1).dtype(float32)
    persist var counter : LOD_TENSOR.shape(1).dtype(int64)
    persist var average : LOD_TENSOR.shape(8, 2).dtype(float32)
)";
constexpr char kAdamUpdates[] = R"(
    {Out=['counter']} = increment(inputs={X=['counter']}, op_role = 16, step = 1.0)
    {Out=['step']} = cast(inputs={X=['counter']}, op_role = 16)
    {Out=['periods']} = scale(inputs={X=['step']}, op_role = 16, scale = 0.25)
    {Out=['power']} = scale(inputs={X=['periods']}, op_role = 16, scale = -0.5)
    {Out=['e']} = exp(inputs={X=['power']}, op_role = 16)
    {Out=['falling']} = scale(inputs={X=['e']}, op_role = 16, scale = 2.0)
    {Out=['cut']} = clip(inputs={X=['w@GRAD']}, max = 1.0, min = -1.0, op_role = 2)
    {Out=['mine']} = scale(inputs={X=['falling']}, op_role = 2, scale = 0.5)
    {ParamOut=['w'], Moment1Out=['m1'], Moment2Out=['m2'], Beta1PowOut=['p1'], Beta2PowOut=['p2']} = adam(inputs={Param=['w'], Grad=['cut'], LearningRate=['mine'], Moment1=['m1'], Moment2=['m2'], Beta1Pow=['p1'], Beta2Pow=['p2']}, op_role = 2)
    {Out=['average']} = elementwise_add(inputs={X=['average'], Y=['w']}, op_role = 2)
)";
constexpr char kAdamStartup[] = R"({
    persist trainable param w : LOD_TENSOR.shape(8, 2).dtype(float32)
    persist var m1 : LOD_TENSOR.shape(8, 2).dtype(float32)
    persist var p1 : LOD_TENSOR.shape(1).dtype(float32)
    {Out=['w']} = gaussian_random(inputs={}, shape = [8, 2])
    {Out=['m1']} = fill_constant(inputs={}, value = 0.0)
    {Out=['m2']} = fill_constant(inputs={}, value = 0.0)
    {Out=['p1']} = fill_constant(inputs={}, value = 0.9)
    {Out=['p2']} = fill_constant(inputs={}, value = 0.999)
    {Out=['counter']} = fill_constant(inputs={}, value = -1.0)
    {Out=['average']} = fill_constant(inputs={}, value = 0.0)
    {Out=['rate']} = fill_constant(inputs={}, value = 0.125)
})";

TEST(ServeParameters, StateAndScheduleGoWithTheUpdates) {
  ASSERT_OK_AND_ASSIGN(
      Served served,
      Serve(Main("", "", kAdamUpdates, kAdamVariables), kAdamStartup));
  EXPECT_EQ(Print(*served.main),
            " = send(w@GRAD)\n"
            "average = elementwise_add(average, w)\n"
            "w = recv(w)\n");
  EXPECT_EQ(Print(*served.startup),
            "w = gaussian_random()\n"
            "average = fill_constant()\n"
            "rate = fill_constant()\n"
            "w = ps_init(w)\n");
  for (const char* state : {"m1", "m2", "p1", "p2", "counter"}) {
    EXPECT_EQ(served.main->block(0).Find(state), nullptr) << state;
    EXPECT_EQ(served.startup->block(0).Find(state), nullptr) << state;
  }
  const table::UpdateOptions& update = served.update("w");
  EXPECT_TRUE(std::holds_alternative<optim::Adam>(update.rule));
  EXPECT_EQ(update.transform.max, 1.0);
  EXPECT_NEAR(table::RateOfStep(update.learning_rate, 8),
              0.5 * 2.0 * std::exp(-0.5 * 2), 1e-9);
}

TEST(ServeParameters, AScheduleThatSomebodyElseReadsStays) {
  const std::string updates =
      std::string(kAdamUpdates) +
      "    {Out=['seen']} = scale(inputs={X=['falling']})\n";
  ASSERT_OK_AND_ASSIGN(
      Served served,
      Serve(Main("", "", updates, kAdamVariables), kAdamStartup));
  EXPECT_EQ(Print(*served.main),
            " = send(w@GRAD)\n"
            "counter = increment(counter)\n"
            "step = cast(counter)\n"
            "periods = scale(step)\n"
            "power = scale(periods)\n"
            "e = exp(power)\n"
            "falling = scale(e)\n"
            "average = elementwise_add(average, w)\n"
            "seen = scale(falling)\n"
            "w = recv(w)\n");
}

TEST(ServeParameters, AClipByNormOfDenseGradientsStaysOnTheWorker) {
  const std::string updates = R"(
    {Out=['n']} = squared_l2_norm(inputs={X=['w@GRAD']}, op_role = 2)
    {Out=['clipped']} = elementwise_mul(inputs={X=['w@GRAD'], Y=['n']}, op_role = 2)
    {ParamOut=['w']} = sgd(inputs={Param=['w'], LearningRate=['rate'], Grad=['clipped']}, op_role = 2)
)";
  ASSERT_OK_AND_ASSIGN(Served served, Serve(Main("", "", updates), kStartup));
  EXPECT_EQ(Print(*served.main),
            "n = squared_l2_norm(w@GRAD)\n"
            "clipped = elementwise_mul(w@GRAD, n)\n"
            " = send(clipped)\n"
            "w = recv(w)\n");
  EXPECT_EQ(served.table("w").gradient, "clipped");
}

// ---- look-ups

constexpr char kTwoLookups[] = R"(
    {Out=['rows']} = lookup_table(inputs={W=['emb'], Ids=['ids']}, is_sparse = True)
    {Out=['pooled']} = relu(inputs={X=['rows']})
    {Out=['others']} = lookup_table(inputs={W=['emb'], Ids=['more']}, is_sparse = True)
    {Out=['h']} = elementwise_add(inputs={X=['pooled'], Y=['others']})
    {Out=['loss']} = reduce_mean(inputs={X=['h']})
)";
constexpr char kTwoGradients[] = R"(
    {X@GRAD=['h@GRAD']} = reduce_mean_grad(inputs={X=['h']}, op_role = 1)
    {X@GRAD=['pooled@GRAD'], Y@GRAD=['others@GRAD']} = elementwise_add_grad(inputs={Out@GRAD=['h@GRAD']}, op_role = 1)
    {W@GRAD=['emb@GRAD@RENAME@block0@0']} = lookup_table_grad(inputs={W=['emb'], Ids=['more'], Out@GRAD=['others@GRAD']}, is_sparse = True, op_role = 1)
    {X@GRAD=['rows@GRAD']} = relu_grad(inputs={Out@GRAD=['pooled@GRAD']}, op_role = 1)
    {W@GRAD=['emb@GRAD@RENAME@block0@1']} = lookup_table_grad(inputs={W=['emb'], Ids=['ids'], Out@GRAD=['rows@GRAD']}, is_sparse = True, op_role = 1)
    {Out=['emb@GRAD']} = sum(inputs={X=['emb@GRAD@RENAME@block0@0', 'emb@GRAD@RENAME@block0@1']}, op_role = 1)
)";
constexpr char kEmbUpdate[] = R"(
    {ParamOut=['emb']} = sgd(inputs={Param=['emb'], LearningRate=['rate'], Grad=['emb@GRAD']}, op_role = 2)
)";

TEST(ServeParameters, OneOperationAnswersAllLookupsOfATable) {
  ASSERT_OK_AND_ASSIGN(
      Served served,
      Serve(Main(kTwoLookups, kTwoGradients, kEmbUpdate), kStartup));
  EXPECT_EQ(Print(*served.main),
            "rows, others = distributed_lookup_table(ids, more)\n"
            "pooled = relu(rows)\n"
            "h = elementwise_add(pooled, others)\n"
            "loss = reduce_mean(h)\n"
            "h@GRAD = reduce_mean_grad(h)\n"
            "pooled@GRAD, others@GRAD = elementwise_add_grad(h@GRAD)\n"
            "rows@GRAD = relu_grad(pooled@GRAD)\n"
            " = distributed_push_sparse(more, ids, others@GRAD, rows@GRAD)\n"
            " = recv()\n");
}

TEST(ServeParameters, LookupsWaitForIdsThatTheProgramComputes) {
  const std::string forward = R"(
    {Out=['rows']} = lookup_table(inputs={W=['emb'], Ids=['ids']}, is_sparse = True)
    {Out=['hashed']} = scale(inputs={X=['more']})
    {Out=['others']} = lookup_table(inputs={W=['emb'], Ids=['hashed']}, is_sparse = True)
    {Out=['h']} = elementwise_add(inputs={X=['rows'], Y=['others']})
)";
  ASSERT_OK_AND_ASSIGN(
      Served served, Serve(Main(forward, kTwoGradients, kEmbUpdate), kStartup));
  EXPECT_THAT(Print(*served.main),
              HasSubstr("hashed = scale(more)\n"
                        "rows, others = distributed_lookup_table(ids, hashed)\n"
                        "h = elementwise_add(rows, others)\n"));
}

TEST(ServeParameters, LookupsThatNeedEachOtherAreAskedOneByOne) {
  const std::string forward = R"(
    {Out=['rows']} = lookup_table(inputs={W=['emb'], Ids=['ids']}, is_sparse = True)
    {Out=['best']} = arg_max(inputs={X=['rows']})
    {Out=['others']} = lookup_table(inputs={W=['emb'], Ids=['best']}, is_sparse = True)
    {Out=['h']} = elementwise_add(inputs={X=['rows'], Y=['others']})
)";
  ASSERT_OK_AND_ASSIGN(
      Served served, Serve(Main(forward, kTwoGradients, kEmbUpdate), kStartup));
  EXPECT_THAT(Print(*served.main),
              HasSubstr("rows = distributed_lookup_table(ids)\n"
                        "best = arg_max(rows)\n"
                        "others = distributed_lookup_table(best)\n"));
}

TEST(ServeParameters, PaddingAndShapeOfIdsSeparateLookups) {
  const std::string forward = R"(
    {Out=['rows']} = lookup_table(inputs={W=['emb'], Ids=['ids']}, is_sparse = True, padding_idx = long(0))
    {Out=['others']} = lookup_table_v2(inputs={W=['emb'], Ids=['more']}, is_sparse = True)
)";
  const std::string backward = R"(
    {W@GRAD=['emb@GRAD@RENAME@block0@0']} = lookup_table_v2_grad(inputs={W=['emb'], Ids=['more'], Out@GRAD=['others@GRAD']}, is_sparse = True, op_role = 1)
    {W@GRAD=['emb@GRAD@RENAME@block0@1']} = lookup_table_grad(inputs={W=['emb'], Ids=['ids'], Out@GRAD=['rows@GRAD']}, is_sparse = True, op_role = 1, padding_idx = long(0))
    {Out=['emb@GRAD']} = sum(inputs={X=['emb@GRAD@RENAME@block0@0', 'emb@GRAD@RENAME@block0@1']}, op_role = 1)
)";
  ASSERT_OK_AND_ASSIGN(Served served,
                       Serve(Main(forward, backward, kEmbUpdate), kStartup));
  const std::string text = program::ToString(*served.main);
  EXPECT_THAT(text, HasSubstr("Ids=['ids'], Grads=['rows@GRAD']}, "
                              "bound = long(1000), dim = 8, is_test = False, "
                              "lookup_table_version = 'lookup_table', "
                              "op_role = 1, padding_idx = long(0)"));
  EXPECT_THAT(text, HasSubstr("Ids=['more'], Grads=['others@GRAD']}, "
                              "bound = long(1000), dim = 8, is_test = False, "
                              "lookup_table_version = 'lookup_table_v2', "
                              "op_role = 1, padding_idx = long(-1)"));
  EXPECT_THAT(Print(*served.main),
              HasSubstr("rows = distributed_lookup_table(ids)\n"
                        "others = distributed_lookup_table(more)\n"));
}

TEST(ServeParameters, ADistributedTableTakesAnyId) {
  std::string forward = kForward;
  forward.replace(forward.find("is_sparse = True"), 16,
                  "entry = 'count_filter_entry:10', is_distributed = True, "
                  "is_sparse = True");
  ASSERT_OK_AND_ASSIGN(Served served,
                       Serve(Main(forward, kBackward, kUpdates), kStartup));
  EXPECT_FALSE(served.table("emb").bounded);
  EXPECT_THAT(program::ToString(*served.main), HasSubstr("bound = long(-1)"));
  EXPECT_EQ(std::get<table::AdmitByCount>(served.sparse("emb").entry).count,
            10u);
}

TEST(ServeParameters, RefusesAnEntryThatIsNone) {
  std::string forward = kForward;
  forward.replace(forward.find("is_sparse = True"), 16,
                  "entry = 'count_filter_entry:often', is_sparse = True");
  EXPECT_THAT(Serve(Main(forward), kStartup).status(),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("parameter emb: entry "
                                 "'count_filter_entry:often' is none of")));
}

TEST(ServeParameters, ATableThatCountsShowsGetsThemWithItsGradients) {
  std::string forward = kForward;
  forward.replace(forward.find("is_sparse = True"), 16,
                  "entry = 'show_click_entry:show:click', is_sparse = True");
  const std::string variables = R"(
    var show : LOD_TENSOR.shape(-1, 1).dtype(float32)
    var click : LOD_TENSOR.shape(-1, 1).dtype(float32)
)";
  ASSERT_OK_AND_ASSIGN(
      Served served,
      Serve(Main(forward, kBackward, kUpdates, variables), kStartup));
  EXPECT_THAT(
      Print(*served.main),
      HasSubstr("distributed_push_sparse(ids, rows@GRAD, show, click)\n"));
  EXPECT_TRUE(served.sparse("emb").show_click.has_value());
  EXPECT_THAT(
      Serve(Main(forward), kStartup).status(),
      StatusIs(StatusCode::kNotFound, HasSubstr("has no variable 'show'")));
}

TEST(ServeParameters, WhatNobodyTrainsStaysOnTheWorker) {
  const std::string dense_only = std::string(kUpdates).substr(
      std::string(kUpdates).find("    {ParamOut=['w']}"));
  ASSERT_OK_AND_ASSIGN(Served served,
                       Serve(Main(kForward, kBackward, dense_only), kStartup));
  EXPECT_THAT(Print(*served.main), HasSubstr("rows = lookup_table(emb, ids)"));
  EXPECT_THAT(Print(*served.startup), HasSubstr("emb = uniform_random()"));
  EXPECT_EQ(served.plan.tables.size(), 2u);
  // Unless no worker could hold it.
  std::string forward = kForward;
  forward.replace(forward.find("is_sparse = True"), 16,
                  "is_distributed = True, is_sparse = True");
  ASSERT_OK_AND_ASSIGN(served,
                       Serve(Main(forward, kBackward, dense_only), kStartup));
  EXPECT_THAT(Print(*served.main),
              HasSubstr("rows = distributed_lookup_table(ids)"));
  EXPECT_THAT(Print(*served.main), Not(HasSubstr("lookup_table_grad")));
  EXPECT_EQ(served.update("emb").learning_rate.base, 0.0);
}

TEST(ServeParameters, SaysWhoElseReadsRowsThatLiveOnServers) {
  std::string forward = kForward;
  forward +=
      "    {Out=['tied']} = matmul_v2(inputs={X=['rows'], "
      "Y=['emb']}, trans_y = True)  // at train.py:9\n";
  EXPECT_THAT(Serve(Main(forward), kStartup).status(),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("parameter emb: it is read by matmul_v2 "
                                 "(train.py:9) besides its look-ups")));
}

TEST(ServeParameters, SaysWhoElseReadsTheGradientOfRows) {
  const std::string updates =
      "    {Out=['n']} = squared_l2_norm(inputs={X=['emb@GRAD']}, op_role = 2)"
      "\n" +
      std::string(kUpdates);
  EXPECT_THAT(Serve(Main(kForward, kBackward, updates), kStartup).status(),
              StatusIs(StatusCode::kUnimplemented,
                       HasSubstr("parameter emb: its gradient emb@GRAD is "
                                 "read by squared_l2_norm")));
}

TEST(ServeParameters, AClipByNormOverRowsIsRefused) {
  const std::string updates = R"(
    {Out=['clipped']} = elementwise_mul(inputs={X=['emb@GRAD'], Y=['factor']}, op_role = 2)
    {ParamOut=['emb']} = sgd(inputs={Param=['emb'], LearningRate=['rate'], Grad=['clipped']}, op_role = 2)
)";
  EXPECT_THAT(
      Serve(Main(kForward, kBackward, updates), kStartup).status(),
      StatusIs(StatusCode::kUnimplemented, HasSubstr("need_clip=False")));
}

TEST(ServeParameters, AfterAnErrorTheProgramsAreAsTheyWere) {
  const std::string updates =
      "    {Out=['n']} = squared_l2_norm(inputs={X=['emb@GRAD']}, op_role = 2)"
      "\n" +
      std::string(kUpdates);
  auto main = Parse(Main(kForward, kBackward, updates));
  auto startup = Parse(kStartup);
  const std::string main_before = program::ToString(*main);
  const std::string startup_before = program::ToString(*startup);
  EXPECT_FALSE(ServeParameters(*main, *startup, {}, ServedRole()).ok());
  EXPECT_EQ(program::ToString(*main), main_before);
  EXPECT_EQ(program::ToString(*startup), startup_before);
}

TEST(ServeParameters, NeedsServersAndSomethingToServe) {
  auto main = Parse(Main());
  auto startup = Parse(kStartup);
  EXPECT_THAT(ServeParameters(*main, *startup, {}, {.worker_num = 2}).status(),
              HasCode(StatusCode::kFailedPrecondition));
  EXPECT_THAT(Serve("{}", "{}").status(),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("call minimize on its loss first")));
}

// The operations that backward really makes.
TEST(ServeParameters, FollowsBackwardOfTheWholeProgram) {
  auto main = Parse(Main(kTwoLookups, "", ""));
  auto startup = Parse(kStartup);
  program::OpRegistry registry;
  program::DefineAllOps(registry);
  program::Block& block = main->block(0);
  for (size_t i = 0; i < block.num_ops(); ++i) {
    ASSERT_OK(block.InferTypes(registry, block.op(i)));
  }
  ASSERT_OK_AND_ASSIGN(
      auto gradients,
      plan::AppendBackward(registry, *main, {{"loss", ""}}, {}));
  program::Operation update{.type = "sgd",
                            .inputs = {{"Param", {"emb"}},
                                       {"Grad", {gradients["emb"]}},
                                       {"LearningRate", {"rate"}}},
                            .outputs = {{"ParamOut", {"emb"}}},
                            .attrs = {},
                            .made_at = ""};
  program::SetRole(update, program::OpRole::kOptimize);
  block.Append(std::move(update));
  ASSERT_OK(ServeParameters(*main, *startup, {}, ServedRole()).status());
  const std::string text = Print(*main);
  EXPECT_THAT(text, HasSubstr("rows, others = distributed_lookup_table(ids, "
                              "more)\n"));
  EXPECT_THAT(text, HasSubstr(" = distributed_push_sparse(more, ids, "
                              "others@GRAD, rows@GRAD"));
  EXPECT_THAT(text, Not(HasSubstr("emb")));
  ExpectWellFormed(*main);
}

// ---- more than one call

TEST(ServeParameters, ASecondMinimizeAddsToTheFirst) {
  ParameterServerStrategy strategy{.mode = PsMode::kSync};
  ASSERT_OK_AND_ASSIGN(Served served, Serve(Main(), kStartup, strategy));
  strategy.served = served.plan.tables;
  program::Block& block = served.main->block(0);
  block.AddVariable({.name = "v",
                     .type = {program::DType::kFloat32, {3}},
                     .persistable = true,
                     .is_parameter = true});
  program::Operation update{.type = "momentum",
                            .inputs = {{"Param", {"v"}},
                                       {"Grad", {"v@GRAD"}},
                                       {"LearningRate", {"rate"}},
                                       {"Velocity", {"v_velocity"}}},
                            .outputs = {{"ParamOut", {"v"}}},
                            .attrs = {},
                            .made_at = ""};
  program::SetRole(update, program::OpRole::kOptimize);
  block.Append(std::move(update));
  ASSERT_OK_AND_ASSIGN(
      ParameterServerPlan plan,
      ServeParameters(*served.main, *served.startup, strategy, ServedRole()));
  ASSERT_EQ(plan.tables.size(), 1u);
  EXPECT_EQ(plan.tables[0].spec.id, table::TableId{3});
  const std::string text =
      program::ToString(*served.main, {.variables = false});
  EXPECT_THAT(text, HasSubstr("send(inputs={X=['v@GRAD']}, op_role = 1, "
                              "table_ids = [3])"));
  EXPECT_THAT(text, HasSubstr("{Out=['w', 'b', 'v']} = send_barrier("
                              "inputs={X=['w', 'b', 'v']}, op_role = 2, "
                              "table_ids = [1, 2, 3])\n}\n"));
  EXPECT_THAT(Print(*served.startup),
              HasSubstr("w, b = ps_init(w, b)\nv = ps_init(v)\n"));
}

TEST(ServeParameters, AParameterOfTwoProgramsHasOneTable) {
  ParameterServerStrategy strategy;
  ASSERT_OK_AND_ASSIGN(Served first, Serve(Main(), kStartup, strategy));
  strategy.served = first.plan.tables;
  ASSERT_OK_AND_ASSIGN(Served second,
                       Serve(Main(kForward, kBackward, kEmbUpdate),
                             program::ToString(*first.startup), strategy));
  EXPECT_TRUE(second.plan.tables.empty());
  EXPECT_THAT(Print(*second.main),
              HasSubstr("rows = distributed_lookup_table(ids)"));
  std::string momentum = kEmbUpdate;
  momentum.replace(momentum.find("sgd"), 3, "adagrad");
  EXPECT_THAT(Serve(Main(kForward, kBackward, momentum),
                    program::ToString(*first.startup), strategy)
                  .status(),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("parameter emb: another program of this job "
                                 "updates it by another rule")));
}

// ---- programs without updates

TEST(ServeLookups, RewritesACloneThatWasMadeBefore) {
  ASSERT_OK_AND_ASSIGN(Served served, Serve(Main(), kStartup));
  auto test = Parse(Main(kForward, "", ""));
  ASSERT_OK_AND_ASSIGN(size_t count,
                       ServeLookups(*test, served.plan.tables, true));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(Print(*test),
            "rows = distributed_lookup_table(ids)\n"
            "h = matmul_v2(rows, w)\n"
            "y = elementwise_add(h, b)\n"
            "loss = reduce_mean(y)\n");
  EXPECT_THAT(program::ToString(*test), HasSubstr("is_test = True"));
  // And once more changes nothing.
  ASSERT_OK_AND_ASSIGN(count, ServeLookups(*test, served.plan.tables, true));
  EXPECT_EQ(count, 0u);
}

TEST(ServeLookups, ACloneForTestIsMadeOfTheRewrittenProgram) {
  ASSERT_OK_AND_ASSIGN(Served served, Serve(Main(), kStartup));
  program::OpRegistry registry;
  program::DefineAllOps(registry);
  auto test = plan::CloneForTest(registry, *served.main);
  EXPECT_EQ(Print(*test),
            "rows = distributed_lookup_table(ids)\n"
            "h = matmul_v2(rows, w)\n"
            "y = elementwise_add(h, b)\n"
            "loss = reduce_mean(y)\n");
  EXPECT_THAT(program::ToString(*test), HasSubstr("is_test = True"));
}

TEST(RestoreLookups, GivesBackAProgramWithoutServers) {
  ASSERT_OK_AND_ASSIGN(
      Served served,
      Serve(Main(kTwoLookups, kTwoGradients, kEmbUpdate), kStartup));
  program::OpRegistry registry;
  program::DefineAllOps(registry);
  auto saved = plan::CloneForTest(registry, *served.main);
  ASSERT_OK(RestoreLookups(*saved, served.plan.tables));
  EXPECT_EQ(Print(*saved),
            "rows = lookup_table(emb, ids)\n"
            "others = lookup_table(emb, more)\n"
            "pooled = relu(rows)\n"
            "h = elementwise_add(pooled, others)\n"
            "loss = reduce_mean(h)\n");
  EXPECT_NE(saved->block(0).Find("emb"), nullptr);
  EXPECT_THAT(RestoreLookups(*served.main, {}), HasCode(StatusCode::kNotFound));
}

}  // namespace
}  // namespace fleet::plan
