// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/types.h"

#include <algorithm>
#include <array>

namespace fleet::comm {
namespace {

constexpr std::array<std::string_view, kNumDataTypes> kTypeNames = {
    "bool",  "uint8",   "int8",     "int16",   "int32",
    "int64", "float16", "bfloat16", "float32", "float64"};
constexpr std::array<size_t, kNumDataTypes> kTypeByteSizes = {1, 1, 1, 2, 4,
                                                              8, 2, 2, 4, 8};
constexpr std::array<std::string_view, kNumReduceOps> kOpNames = {
    "sum", "mean", "max", "min", "product"};
constexpr std::array<std::string_view, 10> kCallNames = {
    "all_reduce", "reduce", "broadcast",  "all_gather", "reduce_scatter",
    "scatter",    "gather", "all_to_all", "barrier",    "allocate"};

bool Reduces(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduce ||
         kind == CallKind::kReduceScatter;
}

bool HasRoot(CallKind kind) {
  return kind == CallKind::kReduce || kind == CallKind::kBroadcast ||
         kind == CallKind::kScatter || kind == CallKind::kGather;
}

// What came from another process may be any number.
template <size_t n>
std::string_view Name(const std::array<std::string_view, n>& names, size_t i) {
  return i < n ? names[i] : "?";
}

}  // namespace

size_t ByteSize(DataType type) {
  return kTypeByteSizes[static_cast<size_t>(type)];
}

std::string_view ToString(DataType type) {
  return Name(kTypeNames, static_cast<size_t>(type));
}

std::string_view ToString(ReduceOp op) {
  return Name(kOpNames, static_cast<size_t>(op));
}

std::string ToString(const Call& call) {
  std::string text(Name(kCallNames, static_cast<size_t>(call.kind)));
  if (call.kind != CallKind::kBarrier) {
    text += '(';
    if (Reduces(call.kind)) text += base::Concat(ToString(call.op), ", ");
    text += base::Concat(call.count, " x ", ToString(call.type));
    if (HasRoot(call.kind)) text += base::Concat(", root ", call.root);
    text += ')';
  }
  return text + base::Concat(", call ", call.number);
}

Status Mismatch(int rank, const Call& call, int other,
                const Call& others_call) {
  return FailedPrecondition("the ranks make different calls: rank ", rank, " ",
                            ToString(call), "; rank ", other, " ",
                            ToString(others_call));
}

std::string RankList(const std::vector<int>& ranks) {
  constexpr size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    text += base::Concat(i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kShown) {
    text += base::Concat(" and ", ranks.size() - kShown, " more");
  }
  return text;
}

}  // namespace fleet::comm
