// SPDX-License-Identifier: Apache-2.0

// For tests of communicators: groups of ranks that are threads, elements of
// every type, and what operations make of them.

#ifndef FLEET_TESTING_COMMUNICATOR_FIXTURES_H_
#define FLEET_TESTING_COMMUNICATOR_FIXTURES_H_

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/mutex.h"
#include "fleet/base/status_matchers.h"
#include "fleet/comm/communicator.h"
#include "fleet/testing/deadlines.h"

namespace fleet::comm {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Soon;

// The communicators of a group, by rank; null for ranks of other processes and
// for all ranks when this process is not in the group.
using Ranks = std::vector<std::unique_ptr<Communicator>>;

// How a backend makes them. `options` is asked for each rank.
struct CommunicatorKind {
  std::string name;
  std::function<Ranks(int size,
                      const std::function<CommunicatorOptions(int)>& options)>
      make;
  std::vector<int> group_sizes = {1, 2, 3, 4};
  // False where sends are in the order of a GPU's stream, and wait there.
  bool sends_wait = true;

  friend void PrintTo(const CommunicatorKind& kind, std::ostream* out) {
    *out << kind.name;
  }
};

inline constexpr std::array<DataType, kNumDataTypes> kAllTypes = {
    DataType::kBool,    DataType::kUInt8,    DataType::kInt8,
    DataType::kInt16,   DataType::kInt32,    DataType::kInt64,
    DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32,
    DataType::kFloat64};
inline constexpr std::array<ReduceOp, kNumReduceOps> kAllOps = {
    ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin,
    ReduceOp::kProduct};

inline bool IsFloat(DataType type) { return type >= DataType::kFloat16; }
inline bool Exists(ReduceOp op, DataType type) {
  return op != ReduceOp::kMean || IsFloat(type);
}

// One number in memory as each type, written plainly and apart from reduce.cc.

inline void Write(DataType type, std::byte* to, double value) {
  auto put = [&](auto number) { std::memcpy(to, &number, sizeof(number)); };
  switch (type) {
    case DataType::kBool:
    case DataType::kUInt8:
      return put(static_cast<uint8_t>(value));
    case DataType::kInt8:
      return put(static_cast<int8_t>(value));
    case DataType::kInt16:
      return put(static_cast<int16_t>(value));
    case DataType::kInt32:
      return put(static_cast<int32_t>(value));
    case DataType::kInt64:
      return put(static_cast<int64_t>(value));
    case DataType::kFloat16: {
      // For zero and for numbers that float16 holds exactly.
      if (value == 0) return put(uint16_t{0});
      int exponent = 0;
      const double mantissa = std::frexp(std::fabs(value), &exponent);
      const auto bits = static_cast<uint16_t>(
          ((exponent + 14) << 10) |
          (static_cast<int>(std::ldexp(mantissa, 11)) & 0x3ff));
      return put(static_cast<uint16_t>(bits | (value < 0 ? 0x8000 : 0)));
    }
    case DataType::kBFloat16: {
      // For numbers that bfloat16 holds exactly.
      const auto single = static_cast<float>(value);
      uint32_t bits = 0;
      std::memcpy(&bits, &single, sizeof(bits));
      return put(static_cast<uint16_t>(bits >> 16));
    }
    case DataType::kFloat32:
      return put(static_cast<float>(value));
    case DataType::kFloat64:
      return put(value);
  }
}

inline double Read(DataType type, const std::byte* from) {
  auto get = [&](auto number) {
    std::memcpy(&number, from, sizeof(number));
    return number;
  };
  switch (type) {
    case DataType::kBool:
    case DataType::kUInt8:
      return get(uint8_t{});
    case DataType::kInt8:
      return get(int8_t{});
    case DataType::kInt16:
      return get(int16_t{});
    case DataType::kInt32:
      return get(int32_t{});
    case DataType::kInt64:
      return static_cast<double>(get(int64_t{}));
    case DataType::kFloat16: {
      const uint16_t bits = get(uint16_t{});
      const int exponent = (bits >> 10) & 31;
      const int fraction = bits & 0x3ff;
      const double magnitude = exponent == 0
                                   ? std::ldexp(fraction, -24)
                                   : std::ldexp(fraction + 1024, exponent - 25);
      return (bits & 0x8000) != 0 ? -magnitude : magnitude;
    }
    case DataType::kBFloat16: {
      const uint32_t bits = static_cast<uint32_t>(get(uint16_t{})) << 16;
      float single = 0;
      std::memcpy(&single, &bits, sizeof(single));
      return single;
    }
    case DataType::kFloat32:
      return get(float{});
    case DataType::kFloat64:
      return get(double{});
  }
  return 0;
}

// Half a unit in the last place, relative, where a result must be rounded.
inline double Tolerance(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 1.0 / 1024;
    case DataType::kBFloat16:
      return 1.0 / 128;
    case DataType::kFloat32:
      return 1.2e-7;
    case DataType::kFloat64:
      return 2.3e-16;
    default:
      return 0;
  }
}

// What element `i` of `rank` is at the start: small whole numbers, so that
// sums and products of four ranks are exact in every type.
inline double InitialValue(DataType type, int rank, size_t i) {
  const auto mixed =
      static_cast<uint32_t>(i * 2654435761u + rank * 40503u + (i >> 3) * 97u);
  const uint32_t random = (mixed ^ (mixed >> 15)) * 2246822519u >> 16;
  if (type == DataType::kBool) return random % 2;
  if (type == DataType::kUInt8) return random % 4;
  return static_cast<int>(random % 7) - 3;
}

// What a reduction over `size` ranks makes of it.
inline double ReducedValue(ReduceOp op, DataType type, int size, size_t i) {
  double result = InitialValue(type, 0, i);
  for (int rank = 1; rank < size; ++rank) {
    const double value = InitialValue(type, rank, i);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMean:
        result += value;
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kProduct:
        result *= value;
        break;
    }
  }
  if (op == ReduceOp::kMean) result /= size;
  if (type == DataType::kBool) result = result != 0;
  return result;
}

// Elements of one type in memory of their own. One element lies before and one
// after them, which nobody may touch.
class Elements final {
 public:
  Elements(DataType type, size_t count)
      : type_(type), count_(count), bytes_((count + 2) * ByteSize(type)) {
    std::fill(bytes_.begin(), bytes_.end(), kGuard);
  }
  static Elements Of(DataType type, int rank, size_t count) {
    Elements elements(type, count);
    FillSpan(elements.span(), rank);
    return elements;
  }
  static void FillSpan(Span span, int rank) {
    for (size_t i = 0; i < span.count; ++i) {
      Write(span.type, span.data + i * ByteSize(span.type),
            InitialValue(span.type, rank, i));
    }
  }

  Span span() {
    return {bytes_.data() + ByteSize(type_), count_, type_, nullptr};
  }
  double at(size_t i) const {
    return Read(type_, bytes_.data() + (i + 1) * ByteSize(type_));
  }
  size_t count() const { return count_; }
  bool guards_untouched() const {
    const size_t width = ByteSize(type_);
    return std::all_of(bytes_.begin(), bytes_.begin() + width, IsGuard) &&
           std::all_of(bytes_.end() - width, bytes_.end(), IsGuard);
  }
  bool operator==(const Elements&) const = default;

 private:
  static constexpr std::byte kGuard{0x5a};
  static bool IsGuard(std::byte b) { return b == kGuard; }

  DataType type_;
  size_t count_;
  std::vector<std::byte> bytes_;
};

// What was seen of a backend, for the table.
class ConformanceTable final {
 public:
  void Add(const std::string& operation, DataType type, bool good) {
    base::MutexLock lock(mutex_);
    auto [cell, is_new] = cells_[operation].try_emplace(type, good);
    cell->second = cell->second && good;
  }

  void Print(const std::string& backend) {
    base::MutexLock lock(mutex_);
    std::printf("\n%-24s", backend.c_str());
    for (DataType type : kAllTypes) {
      std::printf(" %8s", std::string(ToString(type)).c_str());
    }
    for (const auto& [operation, row] : cells_) {
      std::printf("\n%-24s", operation.c_str());
      for (DataType type : kAllTypes) {
        const auto cell = row.find(type);
        std::printf(" %8s", cell == row.end() ? "-"
                            : cell->second    ? "yes"
                                              : "NO");
      }
    }
    std::printf("\n\n");
    std::fflush(stdout);
    cells_.clear();
  }

 private:
  base::Mutex mutex_;
  std::map<std::string, std::map<DataType, bool>> cells_ GUARDED_BY(mutex_);
};

// Message `number` of a row of large ones, each of which is filled by its
// number.
inline constexpr size_t kLargeByteSize = size_t{4} << 20;

inline std::vector<std::byte> LargeMessage(int number,
                                           size_t byte_size = kLargeByteSize) {
  return std::vector<std::byte>(byte_size, std::byte(number + 1));
}
inline Status SendLarge(Communicator& comm, int to, int number,
                        Deadline deadline, size_t byte_size = kLargeByteSize) {
  const std::vector<std::byte> bytes = LargeMessage(number, byte_size);
  return comm.Send({bytes.data(), bytes.size(), DataType::kUInt8}, to,
                   deadline);
}
inline void RecvLarge(Communicator& comm, int from, int number,
                      size_t byte_size = kLargeByteSize) {
  std::vector<std::byte> bytes(byte_size);
  EXPECT_OK(
      comm.Recv({bytes.data(), bytes.size(), DataType::kUInt8}, from, Soon()));
  EXPECT_TRUE(bytes == LargeMessage(number, byte_size)) << number;
}

// A group of ranks, made anew for a case. As in a job, a rank that fails tells
// all others.
class RankGroup final {
 public:
  using Body = std::function<void(Communicator&)>;

  RankGroup(const CommunicatorKind& kind, int size,
            CommunicatorOptions options = {})
      : size_(size), together_(size), failures_(size) {
    ranks_ = kind.make(size, [&](int rank) {
      CommunicatorOptions of_rank = options;
      of_rank.reason_patience = 300ms;
      of_rank.on_failure = [this, rank,
                            also = options.on_failure](const Status& why) {
        Tell(rank, why);
        if (also) also(why);
      };
      return of_rank;
    });
  }

  int size() const { return size_; }
  Communicator* rank(int rank) { return ranks_[rank].get(); }

  // Runs `body` for every rank in a thread of its own.
  void Run(const Body& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < size_; ++i) {
      if (ranks_[i] == nullptr) continue;
      threads.emplace_back([this, i, &body] { body(*ranks_[i]); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Where the threads of all ranks wait for each other, apart from their
  // communicators. A rank that fails before it comes here may end calls of
  // others that are behind.
  void Together() { together_.arrive_and_wait(); }

  // Destroys the communicator of `rank`, whose thread calls this.
  void Leave(int rank) {
    std::unique_ptr<Communicator> leaving;
    {
      base::MutexLock lock(mutex_);
      leaving = std::move(ranks_[rank]);
    }
  }

  void AbortAll(const Status& why) {
    base::MutexLock lock(mutex_);
    for (auto& rank : ranks_) {
      if (rank != nullptr) rank->Abort(why);
    }
  }

  // How often `rank` told of a failure.
  int num_failures(int rank) {
    base::MutexLock lock(mutex_);
    return failures_[rank];
  }

 private:
  void Tell(int from, const Status& why) {
    base::MutexLock lock(mutex_);
    ++failures_[from];
    for (int i = 0; i < size_; ++i) {
      if (i == from || ranks_[i] == nullptr) continue;
      ranks_[i]->Abort(
          Status(why.code(), base::Concat("rank ", from, ": ", why.message())));
    }
  }

  const int size_;
  std::barrier<> together_;
  base::Mutex mutex_;
  std::vector<int> failures_ GUARDED_BY(mutex_);
  Ranks ranks_;  // changed under mutex_
};

}  // namespace fleet::comm

#endif  // FLEET_TESTING_COMMUNICATOR_FIXTURES_H_
