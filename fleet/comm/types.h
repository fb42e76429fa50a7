// SPDX-License-Identifier: Apache-2.0

// What collectives work on: elements in memory, and how elements are combined.

#ifndef FLEET_COMM_TYPES_H_
#define FLEET_COMM_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"

namespace fleet::comm {

// The numbers travel between processes.
enum class DataType : uint8_t {
  kBool = 0,
  kUInt8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kBFloat16 = 7,
  kFloat32 = 8,
  kFloat64 = 9,
};
inline constexpr int kNumDataTypes = 10;

// Bools are combined as numbers that are 0 or 1: sum and max are "or", product
// and min are "and". The mean of integers and bools does not exist. float16 and
// bfloat16 are added in float and rounded once inside a host; between hosts
// they are rounded at every hop.
enum class ReduceOp : uint8_t {
  kSum = 0,
  kMean = 1,
  kMax = 2,
  kMin = 3,
  kProduct = 4,
};
inline constexpr int kNumReduceOps = 5;

size_t ByteSize(DataType type);
std::string_view ToString(DataType type);  // "float32"
std::string_view ToString(ReduceOp op);    // "sum"

// `count` elements of `type`. `stream` is the CUDA stream whose order the call
// keeps, where the memory is a GPU's; else null.
struct ConstSpan {
  const std::byte* data = nullptr;
  size_t count = 0;
  DataType type = DataType::kUInt8;
  void* stream = nullptr;

  size_t byte_size() const { return count * ByteSize(type); }
};

struct Span {
  std::byte* data = nullptr;
  size_t count = 0;
  DataType type = DataType::kUInt8;
  void* stream = nullptr;

  size_t byte_size() const { return count * ByteSize(type); }
  operator ConstSpan() const { return {data, count, type, stream}; }
};

enum class CallKind : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kScatter,
  kGather,
  kAllToAll,
  kBarrier,
  kAllocate,
};

// One call of a collective, as all ranks of the group must make it alike. Ranks
// compare their calls, so that two that differ are an error and not a hang or
// nonsense.
struct Call {
  CallKind kind = CallKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  DataType type = DataType::kUInt8;
  int32_t root = 0;
  uint64_t count = 0;   // of elements of one rank's part
  uint64_t number = 0;  // of the call in its communicator, from 1

  friend bool operator==(const Call&, const Call&) = default;
};

// "all_reduce(sum, 1024 x float32), call 17"
std::string ToString(const Call& call);

// FailedPrecondition that shows both calls.
Status Mismatch(int rank, const Call& call, int other, const Call& others_call);

// "rank 3", "ranks 1, 3"; of many the first eight.
std::string RankList(const std::vector<int>& ranks);

}  // namespace fleet::comm

#endif  // FLEET_COMM_TYPES_H_
