// SPDX-License-Identifier: Apache-2.0
#include "fleet/spawn.h"

#include <csignal>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/collectives.h"

namespace fleet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Spawn, RanksMeetAndTalk) {
  EXPECT_OK(Spawn(3, [](Job& job) -> Status {
    if (job.size() != 3) return Internal("size ", job.size());
    if (job.role().local_size != 3) return Internal("not on one host");
    at::Tensor data = at::full({4}, job.rank() + 1.0);
    RETURN_IF_ERROR(AllReduce(job, data, ReduceOp::kMean));
    const double mean = data.mean().item<double>();
    return mean == 2.0 ? OkStatus() : Internal("the mean is ", mean);
  }));
}

TEST(Spawn, TheRankThatFailsIsNamedAndTheOthersEnd) {
  EXPECT_THAT(Spawn(3,
                    [](Job& job) -> Status {
                      if (job.rank() == 1) return DataLoss("a bad file");
                      at::Tensor data = at::full({4}, 1.0);
                      return AllReduce(job, data);
                    }),
              StatusIs(StatusCode::kDataLoss, "rank 1: a bad file"));
}

TEST(Spawn, AnExceptionIsAFailure) {
  EXPECT_THAT(
      Spawn(1,
            [](Job&) -> Status { throw std::runtime_error("out of range"); }),
      StatusIs(StatusCode::kInternal, "rank 0: out of range"));
}

TEST(Spawn, ARankThatIsKilledIsNamed) {
  EXPECT_THAT(Spawn(1,
                    [](Job&) -> Status {
                      raise(SIGKILL);
                      return OkStatus();
                    }),
              StatusIs(StatusCode::kUnavailable,
                       HasSubstr("rank 0 was killed by signal 9")));
}

TEST(Spawn, WantsAProcessOfOneThreadAndARank) {
  EXPECT_THAT(Spawn(0, [](Job&) { return OkStatus(); }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not 0")));
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  std::thread other([&] {
    char byte;
    EXPECT_EQ(read(pipes[0], &byte, 1), 0);
  });
  EXPECT_THAT(Spawn(2, [](Job&) { return OkStatus(); }),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("this process has 2 threads")));
  close(pipes[1]);
  other.join();
  close(pipes[0]);
}

}  // namespace
}  // namespace fleet
