// SPDX-License-Identifier: Apache-2.0

// What every communicator must do. A backend's test file says how the ranks of
// a group are made, and inherits all cases:
//
//   INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorConformance,
//                            testing::Values(InProcessKind()));
//   INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorFailures,
//                            testing::Values(InProcessKind()));
//
// Ranks are threads. CommunicatorConformance also works where this process has
// only some of the ranks (under mpirun): all processes then run the same cases
// in the same order. At its end it prints a table of operation x type.
// CommunicatorFailures needs all ranks in this process.

#ifndef FLEET_COMM_COMMUNICATOR_CONFORMANCE_H_
#define FLEET_COMM_COMMUNICATOR_CONFORMANCE_H_

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/mutex.h"
#include "fleet/base/status_matchers.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/communicator_conformance_failures.h"
#include "fleet/testing/communicator_fixtures.h"
#include "fleet/testing/sleeping_threads.h"

namespace fleet::comm {

class CommunicatorConformance
    : public testing::TestWithParam<CommunicatorKind> {
 protected:
  static void TearDownTestSuite() { table().Print(backend_name()); }

  // Runs `body` in groups of all sizes that this kind can have.
  void InGroups(const std::function<void(RankGroup&)>& body) {
    for (int size : GetParam().group_sizes) {
      SCOPED_TRACE(base::Concat("a group of ", size));
      RankGroup group(GetParam(), size);
      body(group);
      if (HasFatalFailure()) return;
    }
  }
  void OnRanks(const RankGroup::Body& body) {
    InGroups([&](RankGroup& group) { group.Run(body); });
  }

  // Checks every element, and writes down what was seen.
  template <typename Expected>
  void Check(Communicator& comm, const std::string& operation, DataType type,
             const Elements& got, Expected expected) {
    {
      base::MutexLock lock(name_mutex());
      backend_name() = std::string(comm.backend());
    }
    bool good = got.guards_untouched();
    EXPECT_TRUE(good) << operation << " of " << ToString(type) << " on rank "
                      << comm.rank() << " wrote outside of its memory";
    for (size_t i = 0; i < got.count() && good; ++i) {
      const double want = expected(i);
      good = std::fabs(got.at(i) - want) <= Tolerance(type) * std::fabs(want);
      EXPECT_TRUE(good) << operation << " of " << got.count() << " x "
                        << ToString(type) << " on rank " << comm.rank()
                        << " of " << comm.size() << ": element " << i << " is "
                        << got.at(i) << ", not " << want;
    }
    table().Add(operation, type, good);
  }

  // Counts for every type and operation, and for some a large one: more than
  // any buffer inside a backend, and no multiple of anything.
  static std::vector<size_t> Counts(DataType type,
                                    ReduceOp op = ReduceOp::kSum) {
    std::vector<size_t> counts = {0, 1, 3, 1000};
    if (type == DataType::kFloat32 ||
        (op == ReduceOp::kSum &&
         (type == DataType::kInt8 || type == DataType::kBFloat16))) {
      counts.push_back(40'009);
    }
    return counts;
  }

  static ConformanceTable& table() {
    static ConformanceTable table;
    return table;
  }
  static base::Mutex& name_mutex() {
    static base::Mutex mutex;
    return mutex;
  }
  static std::string& backend_name() {
    static std::string name;
    return name;
  }
};

TEST_P(CommunicatorConformance, AllReduceCombinesAllRanks) {
  OnRanks([&](Communicator& comm) {
    for (DataType type : kAllTypes) {
      for (ReduceOp op : kAllOps) {
        if (!Exists(op, type)) continue;
        for (size_t count : Counts(type, op)) {
          Elements data = Elements::Of(type, comm.rank(), count);
          ASSERT_OK(comm.AllReduce(data.span(), op, Soon()));
          Check(
              comm, base::Concat("all_reduce ", ToString(op)), type, data,
              [&](size_t i) { return ReducedValue(op, type, comm.size(), i); });
        }
      }
    }
  });
}

TEST_P(CommunicatorConformance, ReduceGivesTheRootTheResultAndNobodyElse) {
  OnRanks([&](Communicator& comm) {
    int root = 0;
    for (DataType type : kAllTypes) {
      for (ReduceOp op : kAllOps) {
        if (!Exists(op, type)) continue;
        for (size_t count : Counts(type, op)) {
          root = (root + 1) % comm.size();
          Elements data = Elements::Of(type, comm.rank(), count);
          ASSERT_OK(comm.Reduce(data.span(), op, root, Soon()));
          Check(comm, base::Concat("reduce ", ToString(op)), type, data,
                [&](size_t i) {
                  return comm.rank() == root
                             ? ReducedValue(op, type, comm.size(), i)
                             : InitialValue(type, comm.rank(), i);
                });
        }
      }
    }
  });
}

TEST_P(CommunicatorConformance, BroadcastGivesAllTheRootsElements) {
  OnRanks([&](Communicator& comm) {
    for (DataType type : kAllTypes) {
      for (size_t count : Counts(type)) {
        for (int root = 0; root < comm.size(); ++root) {
          Elements data = Elements::Of(type, comm.rank(), count);
          ASSERT_OK(comm.Broadcast(data.span(), root, Soon()));
          Check(comm, "broadcast", type, data,
                [&](size_t i) { return InitialValue(type, root, i); });
        }
      }
    }
  });
}

TEST_P(CommunicatorConformance, AllGatherJoinsPartsInTheOrderOfRanks) {
  OnRanks([&](Communicator& comm) {
    for (DataType type : kAllTypes) {
      for (size_t count : Counts(type)) {
        Elements mine = Elements::Of(type, comm.rank(), count);
        const Elements before = mine;
        Elements all(type, count * comm.size());
        ASSERT_OK(comm.AllGather(mine.span(), all.span(), Soon()));
        Check(comm, "all_gather", type, all, [&](size_t i) {
          return InitialValue(type, static_cast<int>(i / count), i % count);
        });
        EXPECT_TRUE(mine == before);
      }
    }
  });
}

TEST_P(CommunicatorConformance, ReduceScatterGivesEachRankItsPart) {
  OnRanks([&](Communicator& comm) {
    for (DataType type : kAllTypes) {
      for (ReduceOp op : kAllOps) {
        if (!Exists(op, type)) continue;
        for (size_t count : Counts(type, op)) {
          Elements all = Elements::Of(type, comm.rank(), count * comm.size());
          const Elements before = all;
          Elements mine(type, count);
          ASSERT_OK(comm.ReduceScatter(all.span(), mine.span(), op, Soon()));
          Check(comm, base::Concat("reduce_scatter ", ToString(op)), type, mine,
                [&](size_t i) {
                  return ReducedValue(op, type, comm.size(),
                                      i + comm.rank() * count);
                });
          EXPECT_TRUE(all == before);
        }
      }
    }
  });
}

TEST_P(CommunicatorConformance, ScatterGivesEachRankAPartOfTheRoots) {
  OnRanks([&](Communicator& comm) {
    int root = 0;
    for (DataType type : kAllTypes) {
      for (size_t count : Counts(type)) {
        root = (root + 1) % comm.size();
        const bool is_root = comm.rank() == root;
        Elements all = Elements::Of(type, root, count * comm.size());
        Elements mine(type, count);
        ASSERT_OK(comm.Scatter(is_root ? all.span() : Span{}, mine.span(), root,
                               Soon()));
        Check(comm, "scatter", type, mine, [&](size_t i) {
          return InitialValue(type, root, i + comm.rank() * count);
        });
      }
    }
  });
}

TEST_P(CommunicatorConformance, GatherJoinsPartsAtTheRoot) {
  OnRanks([&](Communicator& comm) {
    int root = 0;
    for (DataType type : kAllTypes) {
      for (size_t count : Counts(type)) {
        root = (root + 1) % comm.size();
        const bool is_root = comm.rank() == root;
        Elements mine = Elements::Of(type, comm.rank(), count);
        Elements all(type, is_root ? count * comm.size() : 0);
        ASSERT_OK(comm.Gather(mine.span(), is_root ? all.span() : Span{}, root,
                              Soon()));
        Check(comm, "gather", type, all, [&](size_t i) {
          return InitialValue(type, static_cast<int>(i / count), i % count);
        });
      }
    }
  });
}

TEST_P(CommunicatorConformance, AllToAllSwapsParts) {
  OnRanks([&](Communicator& comm) {
    for (DataType type : kAllTypes) {
      for (size_t count : Counts(type)) {
        Elements from = Elements::Of(type, comm.rank(), count * comm.size());
        Elements to(type, count * comm.size());
        ASSERT_OK(comm.AllToAll(from.span(), to.span(), Soon()));
        Check(comm, "all_to_all", type, to, [&](size_t i) {
          return InitialValue(type, static_cast<int>(i / count),
                              comm.rank() * count + i % count);
        });
      }
    }
  });
}

TEST_P(CommunicatorConformance, WhatIsSentArrivesInOrder) {
  OnRanks([&](Communicator& comm) {
    if (comm.size() == 1) return;
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (DataType type : kAllTypes) {
      for (size_t count : Counts(type)) {
        Elements out = Elements::Of(type, comm.rank(), count);
        Elements in(type, count);
        auto send = [&] { ASSERT_OK(comm.Send(out.span(), next, Soon())); };
        // Large ones may wait for their receiver.
        if (comm.rank() % 2 == 0) send();
        ASSERT_OK(comm.Recv(in.span(), previous, Soon()));
        if (comm.rank() % 2 == 1) send();
        Check(comm, "send, recv", type, in,
              [&](size_t i) { return InitialValue(type, previous, i); });
      }
    }
    // Small ones do not, however the ranks go about it.
    for (int i = 0; i < 20; ++i) {
      for (int to = 0; to < comm.size(); ++to) {
        if (to == comm.rank()) continue;
        int64_t number = comm.rank() * 100 + i;
        ASSERT_OK(comm.Send(
            {reinterpret_cast<std::byte*>(&number), 1, DataType::kInt64}, to,
            Soon()));
      }
    }
    for (int from = comm.size() - 1; from >= 0; --from) {
      if (from == comm.rank()) continue;
      for (int i = 0; i < 20; ++i) {
        int64_t number = 0;
        ASSERT_OK(comm.Recv(
            {reinterpret_cast<std::byte*>(&number), 1, DataType::kInt64}, from,
            Soon()));
        ASSERT_EQ(number, from * 100 + i);
      }
    }
  });
}

// Both ranks send before either receives.
TEST_P(CommunicatorConformance, ASendReturnsAtOnceUpToWhatMayBeUnreceived) {
  if (!GetParam().sends_wait) return;
  RankGroup group(GetParam(), 2);
  group.Run([](Communicator& comm) {
    constexpr int kCount = kSendAhead / kLargeByteSize;
    const int other = 1 - comm.rank();
    for (int i = 0; i < kCount; ++i) {
      ASSERT_OK(SendLarge(comm, other, i, Soon()));
    }
    for (int i = 0; i < kCount; ++i) RecvLarge(comm, other, i);
    // What was received no longer counts; and small ones count little.
    for (int i = 0; i < 20'000; ++i) {
      const int64_t number = comm.rank() * 100'000 + i;
      ASSERT_OK(comm.Send(
          {reinterpret_cast<const std::byte*>(&number), 1, DataType::kInt64},
          other, Soon()));
    }
    for (int i = 0; i < 20'000; ++i) {
      int64_t number = 0;
      ASSERT_OK(comm.Recv(
          {reinterpret_cast<std::byte*>(&number), 1, DataType::kInt64}, other,
          Soon()));
      ASSERT_EQ(number, other * 100'000 + i);
    }
    ASSERT_OK(comm.Barrier(Soon()));
  });
}

TEST_P(CommunicatorConformance, ASendOfMoreWaitsForTheReceive) {
  if (!GetParam().sends_wait) return;
  RankGroup group(GetParam(), 2);
  group.Run([](Communicator& comm) {
    constexpr size_t kByteSize = kSendAhead + kSendAhead / 2;
    constexpr int kCount = 2 * kSendAhead / kLargeByteSize;
    if (comm.rank() == 0) {
      ASSERT_OK(SendLarge(comm, 1, 7, Soon(), kByteSize));
      for (int i = 0; i < kCount; ++i) {
        ASSERT_OK(SendLarge(comm, 1, i, Soon()));
      }
    } else {
      RecvLarge(comm, 0, 7, kByteSize);
      for (int i = 0; i < kCount; ++i) RecvLarge(comm, 0, i);
    }
    ASSERT_OK(comm.Barrier(Soon()));
  });
}

TEST_P(CommunicatorConformance, WhatWasSentArrivesThoughTheSenderLeft) {
  if (!GetParam().sends_wait) return;
  RankGroup group(GetParam(), 2);
  group.Run([&](Communicator& comm) {
    constexpr int kCount = kSendAhead / kLargeByteSize;
    if (comm.rank() == 0) {
      for (int i = 0; i < kCount; ++i) {
        ASSERT_OK(SendLarge(comm, 1, i, Soon()));
      }
      return group.Leave(0);
    }
    for (int i = 0; i < kCount; ++i) RecvLarge(comm, 0, i);
  });
}

TEST_P(CommunicatorConformance, SendsDoNotMixWithCollectives) {
  OnRanks([&](Communicator& comm) {
    if (comm.size() == 1) return;
    Elements mail = Elements::Of(DataType::kFloat32, 9, 100);
    if (comm.rank() == 0) {
      ASSERT_OK(comm.Send(mail.span(), 1, Soon()));
    }
    Elements data = Elements::Of(DataType::kFloat32, comm.rank(), 100);
    ASSERT_OK(comm.AllReduce(data.span(), ReduceOp::kSum, Soon()));
    Check(comm, "all_reduce sum", DataType::kFloat32, data, [&](size_t i) {
      return ReducedValue(ReduceOp::kSum, DataType::kFloat32, comm.size(), i);
    });
    if (comm.rank() == 1) {
      Elements got(DataType::kFloat32, 100);
      ASSERT_OK(comm.Recv(got.span(), 0, Soon()));
      EXPECT_TRUE(got == mail);
    }
    ASSERT_OK(comm.Barrier(Soon()));
  });
}

TEST_P(CommunicatorConformance, MemoryOfTheCommunicatorIsZeroAndReduces) {
  OnRanks([&](Communicator& comm) {
    for (size_t byte_size :
         {size_t{0}, size_t{4}, size_t{4096}, size_t{1'000'004}}) {
      ASSERT_OK_AND_ASSIGN(Buffer buffer, comm.Allocate(byte_size, Soon()));
      ASSERT_OK_AND_ASSIGN(Buffer second, comm.Allocate(byte_size, Soon()));
      ASSERT_EQ(buffer.bytes().size(), byte_size);
      EXPECT_TRUE(std::all_of(buffer.bytes().begin(), buffer.bytes().end(),
                              [](std::byte b) { return b == std::byte{0}; }));
      const Span data = buffer.As(DataType::kFloat32);
      Elements::FillSpan(data, comm.rank());
      ASSERT_OK(comm.AllReduce(data, ReduceOp::kMean, Soon()));
      Elements got(DataType::kFloat32, data.count);
      std::memcpy(got.span().data, data.data, byte_size);
      Check(comm, "all_reduce mean", DataType::kFloat32, got, [&](size_t i) {
        return ReducedValue(ReduceOp::kMean, DataType::kFloat32, comm.size(),
                            i);
      });
      EXPECT_TRUE(std::all_of(second.bytes().begin(), second.bytes().end(),
                              [](std::byte b) { return b == std::byte{0}; }));
    }
  });
}

TEST_P(CommunicatorConformance, RanksMayUseDifferentPartsOfItsMemory) {
  constexpr DataType kType = DataType::kFloat32;
  OnRanks([&](Communicator& comm) {
    constexpr size_t kCount = 50'001;
    ASSERT_OK_AND_ASSIGN(Buffer buffer,
                         comm.Allocate(4 * (kCount + 100), Soon()));
    Elements anywhere(kType, kCount);
    for (int round = 0; round < 6; ++round) {
      // In round 0 all at the same place, then each elsewhere, some not in it.
      const size_t offset = (round * comm.rank() * 7) % 100;
      Span data{buffer.bytes().data() + 4 * offset, kCount, kType, nullptr};
      if (round >= 3 && comm.rank() % 2 == round % 2) data = anywhere.span();
      Elements::FillSpan(data, comm.rank());
      ASSERT_OK(comm.AllReduce(data, ReduceOp::kSum, Soon()));
      Elements got(kType, kCount);
      std::memcpy(got.span().data, data.data, data.byte_size());
      Check(comm, "all_reduce sum", kType, got, [&](size_t i) {
        return ReducedValue(ReduceOp::kSum, kType, comm.size(), i);
      });
    }
  });
}

TEST_P(CommunicatorConformance, AllOperationsWorkInItsMemory) {
  constexpr DataType kType = DataType::kInt32;
  OnRanks([&](Communicator& comm) {
    constexpr size_t kCount = 30'001;
    const size_t size = comm.size();
    ASSERT_OK_AND_ASSIGN(Buffer part, comm.Allocate(4 * kCount, Soon()));
    ASSERT_OK_AND_ASSIGN(Buffer all, comm.Allocate(4 * kCount * size, Soon()));
    const Span mine = part.As(kType);
    const Span whole = all.As(kType);
    auto check = [&](const std::string& operation, Span span, auto expected) {
      Elements got(kType, span.count);
      std::memcpy(got.span().data, span.data, span.byte_size());
      Check(comm, operation, kType, got, expected);
    };
    auto part_of = [](size_t i) { return static_cast<int>(i / kCount); };
    Elements::FillSpan(mine, comm.rank());
    ASSERT_OK(comm.AllGather(mine, whole, Soon()));
    check("all_gather", whole, [&](size_t i) {
      return InitialValue(kType, part_of(i), i % kCount);
    });
    Elements::FillSpan(whole, comm.rank());
    ASSERT_OK(comm.ReduceScatter(whole, mine, ReduceOp::kSum, Soon()));
    check("reduce_scatter sum", mine, [&](size_t i) {
      return ReducedValue(ReduceOp::kSum, kType, comm.size(),
                          i + comm.rank() * kCount);
    });
    Elements::FillSpan(mine, comm.rank());
    ASSERT_OK(comm.Broadcast(mine, comm.size() - 1, Soon()));
    check("broadcast", mine,
          [&](size_t i) { return InitialValue(kType, comm.size() - 1, i); });
    Elements::FillSpan(mine, comm.rank());
    ASSERT_OK(comm.Reduce(mine, ReduceOp::kMax, 0, Soon()));
    check("reduce max", mine, [&](size_t i) {
      return comm.rank() == 0
                 ? ReducedValue(ReduceOp::kMax, kType, comm.size(), i)
                 : InitialValue(kType, comm.rank(), i);
    });
    Elements::FillSpan(whole, comm.rank());
    ASSERT_OK(comm.Scatter(whole, mine, 0, Soon()));
    check("scatter", mine, [&](size_t i) {
      return InitialValue(kType, 0, i + comm.rank() * kCount);
    });
    Elements::FillSpan(mine, comm.rank());
    ASSERT_OK(comm.Gather(mine, whole, 0, Soon()));
    if (comm.rank() == 0) {
      check("gather", whole, [&](size_t i) {
        return InitialValue(kType, part_of(i), i % kCount);
      });
    }
  });
}

TEST_P(CommunicatorConformance, ItsMemoryOutlivesTheCommunicator) {
  InGroups([](RankGroup& group) {
    group.Run([&](Communicator& comm) {
      ASSERT_OK_AND_ASSIGN(Buffer buffer, comm.Allocate(4096, Soon()));
      Elements::FillSpan(buffer.As(DataType::kFloat32), comm.rank());
      const int rank = comm.rank();
      group.Leave(rank);
      const Span data = buffer.As(DataType::kFloat32);
      for (size_t i = 0; i < data.count; ++i) {
        ASSERT_EQ(Read(data.type, data.data + 4 * i),
                  InitialValue(data.type, rank, i));
      }
    });
  });
}

TEST_P(CommunicatorConformance, RanksGetTheSameBitsOfAnyFloats) {
  for (size_t count : {size_t{5}, size_t{1000}, size_t{70'001}}) {
    OnRanks([&](Communicator& comm) {
      // Numbers whose sum depends on the order.
      auto value = [](int rank, size_t i) {
        return std::sin(static_cast<double>(i) * 0.7 + rank * 1.3) *
               std::pow(10.0, static_cast<double>((i + rank) % 5));
      };
      std::vector<float> data(count);
      for (size_t i = 0; i < count; ++i) {
        data[i] = static_cast<float>(value(comm.rank(), i));
      }
      const Span span{reinterpret_cast<std::byte*>(data.data()), count,
                      DataType::kFloat32, nullptr};
      ASSERT_OK(comm.AllReduce(span, ReduceOp::kMean, Soon()));
      for (size_t i = 0; i < count; ++i) {
        double sum = 0;
        double magnitude = 0;
        for (int rank = 0; rank < comm.size(); ++rank) {
          sum += static_cast<float>(value(rank, i));
          magnitude += std::fabs(value(rank, i));
        }
        ASSERT_NEAR(data[i], sum / comm.size(), 1e-6 * magnitude);
      }
      std::vector<std::byte> all(span.byte_size() * comm.size());
      ASSERT_OK(comm.AllGather(
          span, {all.data(), count * comm.size(), DataType::kFloat32, nullptr},
          Soon()));
      for (int rank = 0; rank < comm.size(); ++rank) {
        ASSERT_EQ(std::memcmp(all.data() + rank * span.byte_size(), span.data,
                              span.byte_size()),
                  0)
            << "rank " << rank << " and rank " << comm.rank() << " differ";
      }
    });
  }
}

TEST_P(CommunicatorConformance, LargeDataTravelsInPieces) {
  // Several pieces of every block that a backend cuts.
  constexpr size_t kCount = 700'001;
  auto span = [](std::vector<int32_t>& numbers) {
    return Span{reinterpret_cast<std::byte*>(numbers.data()), numbers.size(),
                DataType::kInt32, nullptr};
  };
  auto value = [](int rank, size_t i) {
    return static_cast<int32_t>(i % 1000) + 1000 * rank;
  };
  OnRanks([&](Communicator& comm) {
    const int size = comm.size();
    const auto filled = [&](size_t count) {
      std::vector<int32_t> numbers(count);
      for (size_t i = 0; i < count; ++i) numbers[i] = value(comm.rank(), i);
      return numbers;
    };
    const auto sum = [&](size_t i) {
      return size * static_cast<int32_t>(i % 1000) + 500 * size * (size - 1);
    };
    std::vector<int32_t> data = filled(kCount);
    ASSERT_OK(comm.AllReduce(span(data), ReduceOp::kSum, Soon()));
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(data[i], sum(i)) << i;

    data = filled(kCount);
    ASSERT_OK(comm.Reduce(span(data), ReduceOp::kSum, size - 1, Soon()));
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(data[i],
                comm.rank() == size - 1 ? sum(i) : value(comm.rank(), i));
    }

    data = filled(kCount);
    ASSERT_OK(comm.Broadcast(span(data), size - 1, Soon()));
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(data[i], value(size - 1, i));
    }

    data = filled(kCount);
    std::vector<int32_t> all(kCount * size);
    ASSERT_OK(comm.AllGather(span(data), span(all), Soon()));
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i], value(static_cast<int>(i / kCount), i % kCount));
    }

    all = filled(kCount * size);
    ASSERT_OK(
        comm.ReduceScatter(span(all), span(data), ReduceOp::kSum, Soon()));
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(data[i], sum(i + kCount * comm.rank()));
    }
  });
}

TEST_P(CommunicatorConformance, ManyCallsFollowEachOther) {
  OnRanks([&](Communicator& comm) {
    for (int round = 0; round < 300; ++round) {
      int32_t number = comm.rank() + round;
      const Span one{reinterpret_cast<std::byte*>(&number), 1, DataType::kInt32,
                     nullptr};
      ASSERT_OK(comm.AllReduce(one, ReduceOp::kSum, Soon()));
      ASSERT_EQ(number,
                comm.size() * round + comm.size() * (comm.size() - 1) / 2);
      number = comm.rank() == round % comm.size() ? round : -1;
      ASSERT_OK(comm.Broadcast(one, round % comm.size(), Soon()));
      ASSERT_EQ(number, round);
      if (round % 10 == 0) {
        ASSERT_OK(comm.Barrier(Soon()));
      }
      number = comm.rank();
      ASSERT_OK(comm.Reduce(one, ReduceOp::kMax, round % comm.size(), Soon()));
      ASSERT_EQ(number, comm.rank() == round % comm.size() ? comm.size() - 1
                                                           : comm.rank());
    }
  });
}

TEST_P(CommunicatorConformance, ObjectsOfDifferentSizesTravel) {
  OnRanks([&](Communicator& comm) {
    auto object = [](int rank) {
      return std::vector<std::byte>(rank * 1000, static_cast<std::byte>(rank));
    };
    ASSERT_OK_AND_ASSIGN(auto all,
                         comm.AllGatherBytes(object(comm.rank()), Soon()));
    ASSERT_EQ(all.size(), static_cast<size_t>(comm.size()));
    for (int i = 0; i < comm.size(); ++i) EXPECT_EQ(all[i], object(i));
    for (int root = 0; root < comm.size(); ++root) {
      ASSERT_OK_AND_ASSIGN(
          auto got,
          comm.BroadcastBytes(
              comm.rank() == root ? object(root + 1) : std::vector<std::byte>(),
              root, Soon()));
      EXPECT_EQ(got, object(root + 1));
    }
  });
}

TEST_P(CommunicatorConformance, StartedCallsRunInTheOrderOfTheProgram) {
  OnRanks([&](Communicator& comm) {
    constexpr int kCalls = 20;
    std::vector<int32_t> numbers(kCalls, comm.rank());
    std::vector<base::Future<>> futures;
    for (int i = 0; i < kCalls; ++i) {
      futures.push_back(comm.Start([&numbers, i](Communicator& c) {
        return c.AllReduce({reinterpret_cast<std::byte*>(&numbers[i]), 1,
                            DataType::kInt32, nullptr},
                           ReduceOp::kSum, Soon());
      }));
    }
    // Waits for all that was started.
    ASSERT_OK(comm.Barrier(Soon()));
    const int sum = comm.size() * (comm.size() - 1) / 2;
    for (int i = 0; i < kCalls; ++i) {
      EXPECT_TRUE(futures[i].ready());
      EXPECT_OK(futures[i].Wait(Soon()));
      EXPECT_EQ(numbers[i], sum);
    }
  });
}

TEST_P(CommunicatorConformance, StartedCallsFinishBeforeItIsDestroyed) {
  InGroups([](RankGroup& group) {
    group.Run([&](Communicator& comm) {
      int32_t number = comm.rank();
      base::Future<> done = comm.Start([&number](Communicator& c) {
        return c.AllReduce({reinterpret_cast<std::byte*>(&number), 1,
                            DataType::kInt32, nullptr},
                           ReduceOp::kMax, Soon());
      });
      group.Leave(comm.rank());
      EXPECT_OK(done.Wait(Soon()));
      EXPECT_EQ(number, group.size() - 1);
    });
  });
}

TEST_P(CommunicatorConformance, ACallThatMakesNoSenseBreaksNothing) {
  OnRanks([&](Communicator& comm) {
    Elements data(DataType::kInt32, 3);
    Elements floats(DataType::kFloat32, 3);
    Elements more(DataType::kInt32, 3 * comm.size() + 1);
    const int outside = comm.size();
    const auto invalid = HasCode(StatusCode::kInvalidArgument);
    EXPECT_THAT(comm.AllReduce(data.span(), ReduceOp::kMean, Soon()),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("int32")));
    EXPECT_THAT(comm.Broadcast(data.span(), outside, Soon()),
                StatusIs(StatusCode::kInvalidArgument,
                         HasSubstr(base::Concat("rank ", outside))));
    EXPECT_THAT(comm.Reduce(data.span(), ReduceOp::kSum, -1, Soon()), invalid);
    EXPECT_THAT(comm.AllGather(data.span(), more.span(), Soon()), invalid);
    EXPECT_THAT(comm.AllGather(data.span(), floats.span(), Soon()), invalid);
    EXPECT_THAT(
        comm.ReduceScatter(more.span(), data.span(), ReduceOp::kSum, Soon()),
        invalid);
    EXPECT_THAT(comm.AllToAll(data.span(), floats.span(), Soon()), invalid);
    EXPECT_THAT(comm.Send(data.span(), comm.rank(), Soon()), invalid);
    EXPECT_THAT(comm.Recv(data.span(), outside, Soon()), invalid);
    EXPECT_OK(comm.status());
    EXPECT_OK(comm.Barrier(Soon()));
  });
}

TEST_P(CommunicatorConformance, AFastRankMayLeaveAfterTheLastCall) {
  using Last = std::function<Status(Communicator&, Span)>;
  const std::vector<Last> calls = {
      [](Communicator& comm, Span data) {
        return comm.AllReduce(data, ReduceOp::kSum, Soon());
      },
      [](Communicator& comm, Span data) {
        return comm.Broadcast(data, 0, Soon());
      },
      [](Communicator& comm, Span data) {
        return comm.Reduce(data, ReduceOp::kSum, comm.size() - 1, Soon());
      },
      [](Communicator& comm, Span) { return comm.Barrier(Soon()); },
      [](Communicator& comm, Span data) {
        if (comm.size() == 1) return OkStatus();
        if (comm.rank() == 0) return comm.Send(data, 1, Soon());
        if (comm.rank() == 1) return comm.Recv(data, 0, Soon());
        return OkStatus();
      },
  };
  for (size_t count : {size_t{3}, size_t{100'003}}) {
    for (const Last& call : calls) {
      InGroups([&](RankGroup& group) {
        // So that rank 0 is early and the last one late: it comes when the
        // others wait, or are done. Those in other processes, as MPI's, are not
        // seen from here.
        testing::SleepingThreads waiters;
        bool all_here = true;
        for (int i = 0; i < group.size(); ++i) {
          all_here = all_here && group.rank(i) != nullptr;
        }
        group.Run([&, all_here](Communicator& comm) {
          if (all_here) {
            waiters.Await(comm.rank());
            waiters.Enter();
          } else {
            std::this_thread::sleep_for(5ms * comm.rank());
          }
          Elements data = Elements::Of(DataType::kFloat32, comm.rank(), count);
          EXPECT_OK(call(comm, data.span()));
          group.Leave(comm.rank());
          if (all_here) waiters.Leave();
        });
      });
    }
  }
}

}  // namespace fleet::comm

#endif  // FLEET_COMM_COMMUNICATOR_CONFORMANCE_H_
