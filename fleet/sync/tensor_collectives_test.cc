// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/tensor_collectives.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/deadlines.h"
#include "fleet/testing/ranks_as_threads.h"

namespace fleet::sync {
namespace {

using namespace std::chrono_literals;
using at::Tensor;
using comm::Communicator;
using comm::ReduceOp;
using testing::HasSubstr;
using testing::RunRanks;
using testing::Soon;

TEST(TensorCollectives, AllReduceTakesEveryType) {
  for (at::ScalarType type :
       {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
        at::kBFloat16, at::kFloat, at::kDouble}) {
    RunRanks(2, [&](Communicator& c) {
      Tensor data = at::full({3, 2}, c.rank() + 1, type);
      ASSERT_OK(AllReduce(c, data, ReduceOp::kSum, Soon()));
      EXPECT_TRUE(at::equal(data, at::full({3, 2}, 3, type))) << type;
    });
  }
}

TEST(TensorCollectives, WorkOnTensorsThatAreNotContiguous) {
  RunRanks(2, [](Communicator& c) {
    Tensor base = at::zeros({4, 4});
    Tensor column = base.select(1, 2);
    column.fill_(c.rank() + 1);
    ASSERT_OK(AllReduce(c, column, ReduceOp::kMean, Soon()));
    EXPECT_TRUE(at::equal(base.select(1, 2), at::full({4}, 1.5)));
    EXPECT_TRUE(at::equal(base.select(1, 1), at::zeros({4})));
    Tensor transposed = at::arange(6, at::kFloat).view({2, 3}).t();
    if (c.rank() == 1) transposed.zero_();
    ASSERT_OK(Broadcast(c, transposed, 0, Soon()));
    EXPECT_TRUE(
        at::equal(transposed, at::arange(6, at::kFloat).view({2, 3}).t()));
  });
}

TEST(TensorCollectives, ATypeThatTheyDoNotKnowIsNamed) {
  RunRanks(2, [](Communicator& c) {
    Tensor data = at::zeros({2}, at::kComplexFloat);
    Status status = AllReduce(c, data, ReduceOp::kSum, Soon());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("ComplexFloat"));
    // Nothing was sent, so nothing broke.
    EXPECT_OK(c.Barrier(Soon()));
  });
}

TEST(TensorCollectives, AWrittenTensorHasANewVersion) {
  RunRanks(2, [](Communicator& c) {
    Tensor data = at::ones({2});
    const auto before = data._version();
    ASSERT_OK(AllReduce(c, data, ReduceOp::kSum, Soon()));
    EXPECT_GT(data._version(), before);
  });
}

TEST(TensorCollectives, ReduceLeavesOtherRanksAsTheyWere) {
  RunRanks(3, [](Communicator& c) {
    Tensor data = at::full({2}, c.rank());
    ASSERT_OK(Reduce(c, data, ReduceOp::kSum, 1, Soon()));
    EXPECT_EQ(data[0].item<int>(), c.rank() == 1 ? 3 : c.rank());
  });
}

TEST(TensorCollectives, GatherInTheOrderOfRanks) {
  RunRanks(3, [](Communicator& c) {
    Tensor mine = at::full({2, 2}, c.rank(), at::kInt);
    auto all = AllGather(c, mine, Soon());
    ASSERT_OK(all.status());
    ASSERT_EQ(all->size(), 3u);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::equal((*all)[i], at::full({2, 2}, i, at::kInt)));
    }
    auto at_root = Gather(c, mine, 2, Soon());
    ASSERT_OK(at_root.status());
    EXPECT_EQ(at_root->size(), c.rank() == 2 ? 3u : 0u);
  });
}

TEST(TensorCollectives, ScatterAndReduceScatterAndAllToAll) {
  RunRanks(2, [](Communicator& c) {
    Tensor mine = at::zeros({2});
    std::vector<Tensor> parts;
    if (c.rank() == 1) parts = {at::full({2}, 5), at::full({2}, 6)};
    for (Tensor& part : parts) part = part.to(at::kFloat);
    ASSERT_OK(Scatter(c, parts, mine, 1, Soon()));
    EXPECT_TRUE(at::equal(mine, at::full({2}, 5.0 + c.rank())));

    parts = {at::full({2}, 1.0), at::full({2}, 10.0 * (c.rank() + 1))};
    ASSERT_OK(ReduceScatter(c, parts, mine, ReduceOp::kSum, Soon()));
    EXPECT_TRUE(at::equal(mine, at::full({2}, c.rank() == 0 ? 2.0 : 30.0)));

    auto received = AllToAll(c, parts, Soon());
    ASSERT_OK(received.status());
    for (int from = 0; from < 2; ++from) {
      EXPECT_EQ((*received)[from][0].item<float>(),
                c.rank() == 0 ? 1.0f : 10.0f * (from + 1));
    }
  });
}

TEST(TensorCollectives, APartOfAnotherShapeIsRefused) {
  RunRanks(1, [](Communicator& c) {
    EXPECT_EQ(Scatter(c, {at::zeros({3})}, at::zeros({2}), 0, Soon()).code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(Scatter(c, {}, at::zeros({2}), 0, Soon()).code(),
              StatusCode::kInvalidArgument);
  });
}

TEST(TensorCollectives, SendAndReceive) {
  RunRanks(2, [](Communicator& c) {
    Tensor data = at::arange(4, at::kFloat).view({2, 2}).t();
    if (c.rank() == 0) {
      ASSERT_OK(Send(c, data, 1, Soon()));
    } else {
      Tensor received = at::zeros({2, 2}).t();
      ASSERT_OK(Recv(c, received, 0, Soon()));
      EXPECT_TRUE(at::equal(received, data));
    }
  });
}

TEST(TensorCollectives, MemoryOfACommunicatorOutlivesIt) {
  Tensor memory;
  RunRanks(1, [&](Communicator& c) {
    memory = *AllocateTensor(c, 256, at::kCPU, Soon());
  });
  EXPECT_TRUE(at::equal(memory, at::zeros({256}, at::kByte)));
  memory.fill_(1);
}

}  // namespace
}  // namespace fleet::sync
