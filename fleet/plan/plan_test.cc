// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/testing/plan_fixtures.h"

namespace fleet::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

cluster::Role Worker(int index, int num) {
  return {.index = index, .worker_num = num, .is_collective = true};
}

TEST(Plan, SeveralWorkers) {
  ModelProgram model({{4, 3}, {3, 2}});
  model.AddUpdates();
  const std::string main = Print(model.main());
  const std::string startup = Print(model.startup());
  ASSERT_OK_AND_ASSIGN(
      Plan plan, MakePlan(model.main(), model.startup(), {}, Worker(1, 2)));
  EXPECT_THAT(plan.passes, ElementsAre("insert_allreduce", "broadcast_state"));
  EXPECT_THAT(Print(*plan.main), HasSubstr("c_allreduce_start"));
  EXPECT_THAT(Print(*plan.startup), HasSubstr("c_broadcast_state"));
  EXPECT_EQ(Print(model.main()), main);
  EXPECT_EQ(Print(model.startup()), startup);
}

TEST(Plan, IsTheSameOnAllRanks) {
  ModelProgram model({{4, 3}, {3, 2}});
  model.AddUpdates();
  ASSERT_OK_AND_ASSIGN(
      Plan first, MakePlan(model.main(), model.startup(), {}, Worker(0, 3)));
  ASSERT_OK_AND_ASSIGN(
      Plan last, MakePlan(model.main(), model.startup(), {}, Worker(2, 3)));
  EXPECT_EQ(Print(*first.main), Print(*last.main));
  EXPECT_EQ(Print(*first.startup), Print(*last.startup));
}

TEST(Plan, OneWorkerRunsTheProgramsAsTheyAre) {
  ModelProgram model({{4, 3}});
  model.AddUpdates();
  ASSERT_OK_AND_ASSIGN(
      Plan plan, MakePlan(model.main(), model.startup(), {}, Worker(0, 1)));
  EXPECT_THAT(plan.passes, IsEmpty());
  EXPECT_EQ(Print(*plan.main), Print(model.main()));
}

TEST(Plan, AProgramWithoutUpdatesIsAnError) {
  ModelProgram model({{4, 3}});
  const std::string startup = Print(model.startup());
  Result<std::vector<std::string>> passes =
      ApplyPlan(model.main(), model.startup(), {}, Worker(0, 2));
  EXPECT_EQ(passes.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(passes.status().message(), HasSubstr("2 workers"));
  EXPECT_EQ(Print(model.startup()), startup);
}

TEST(Plan, JobsWithServersHaveNoneYet) {
  ModelProgram model({{4, 3}});
  model.AddUpdates();
  cluster::Role role{.worker_num = 2, .server_num = 2};
  EXPECT_EQ(MakePlan(model.main(), model.startup(), {}, role).status().code(),
            StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace fleet::plan
