// SPDX-License-Identifier: Apache-2.0

// MPI in a process that mpirun did not start.

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/comm/mpi.h"

namespace fleet::comm {
namespace {

TEST(MpiAlone, AProcessIsAWorldOfOneRank) {
  const Deadline deadline = Deadline::After(std::chrono::seconds(60));
  ASSERT_OK_AND_ASSIGN(auto comm, ConnectMpi({}, {}, deadline));
  EXPECT_EQ(comm->rank(), 0);
  EXPECT_EQ(comm->size(), 1);
  float number = 3;
  const Span data{reinterpret_cast<std::byte*>(&number), 1, DataType::kFloat32};
  EXPECT_OK(comm->AllReduce(data, ReduceOp::kMean, deadline));
  EXPECT_EQ(number, 3);
  EXPECT_OK(comm->Barrier(deadline));
}

}  // namespace
}  // namespace fleet::comm
