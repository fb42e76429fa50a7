// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/insert_allreduce.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "fleet/base/crc32c.h"
#include "fleet/plan/buckets.h"
#include "fleet/plan/gradients.h"
#include "fleet/program/op_role.h"
#include "fleet/program/text.h"

namespace fleet::plan {
namespace {

using program::AttrKind;
using program::Block;
using program::Operation;
using program::OpRole;
using Bucket = std::vector<Gradient>;

// A gradient of this size takes longer to travel than a round between ranks,
// also over a network, so that company saves nothing. Exchanged at once, it
// is still in the cache of the core that computed it; alone, it is gone when
// its parameter is updated, and its memory can serve the next one.
constexpr size_t kLargeBytes = size_t{4} << 20;

bool IsLarge(const Gradient& gradient) {
  return !gradient.rows && gradient.byte_size >= kLargeBytes;
}

size_t MadeBy(const Bucket& bucket) { return bucket.back().made_by; }

size_t UsedBy(const Bucket& bucket) {
  size_t first = bucket[0].used_by;
  for (const Gradient& gradient : bucket) {
    first = std::min(first, gradient.used_by);
  }
  return first;
}

bool Names(const program::Slots& slots, std::string_view name) {
  return std::any_of(slots.begin(), slots.end(), [&](const auto& slot) {
    const std::vector<std::string>& names = slot.arguments;
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

bool IsUpdate(const Operation& op) {
  return !op.input("Param").empty() && !op.input("Grad").empty();
}

// Whether a gradient is used by one update only, and that update could as well
// come right behind the operation that makes it: the executor lets it.
bool IsBrief(const Block& block, const Gradient& gradient) {
  const Operation& update = block.op(gradient.used_by);
  if (!IsUpdate(update)) return false;
  for (size_t i = gradient.made_by + 1; i < block.num_ops(); ++i) {
    if (i == gradient.used_by) continue;
    const Operation& op = block.op(i);
    if (Names(op.inputs, gradient.name)) return false;
    // Other updates have other parameters and state.
    if (i > gradient.used_by || IsUpdate(op)) continue;
    for (const program::Slot& slot : update.inputs) {
      for (const std::string& name : slot.arguments) {
        if (Names(op.outputs, name)) return false;
      }
    }
    for (const program::Slot& slot : update.outputs) {
      for (const std::string& name : slot.arguments) {
        if (Names(op.inputs, name)) return false;
      }
    }
  }
  return true;
}

// What the program does with gradients: "4 x sgd, 1f00c0de". Ranks that would
// update differently have different texts.
std::string DescribeUpdates(const Block& block) {
  std::map<std::string, int> counts;
  uint32_t sum = 0;
  for (size_t i = 0; i < block.num_ops(); ++i) {
    const Operation& op = block.op(i);
    if (!IsUpdate(op)) continue;
    ++counts[op.type];
    Operation plain = op;
    // op_role, op_namescope and so on say nothing of what it does.
    std::erase_if(plain.attrs, [](const auto& attr) {
      return attr.first.starts_with("op_");
    });
    sum = base::Crc32c(program::ToString(plain), sum);
  }
  std::string result;
  for (const auto& [type, count] : counts) {
    result += std::to_string(count) + " x " + type + ", ";
  }
  char digits[16];
  std::snprintf(digits, sizeof(digits), "%08x", sum);
  return result + digits;
}

// Buckets of an earlier call.
int64_t CountBuckets(const Block& block) {
  int64_t count = 0;
  for (size_t i = 0; i < block.num_ops(); ++i) {
    count += block.op(i).type == "c_allreduce_start";
  }
  return count;
}

Operation MakeOp(std::string type, const Bucket& bucket, int64_t number) {
  program::Slot x{"X", {}};
  for (const Gradient& gradient : bucket) x.arguments.push_back(gradient.name);
  program::Slot out{"Out", x.arguments};
  Operation op{.type = std::move(type),
               .inputs = {std::move(x)},
               .outputs = {std::move(out)},
               .attrs = {{"bucket", {AttrKind::kInt, number}}}};
  program::SetRole(op, OpRole::kBackward);
  return op;
}

// Gradients in rows have buckets of their own.
std::vector<Bucket> MakeBuckets(const std::vector<Gradient>& gradients,
                                const AllReduceOptions& options) {
  std::vector<GradientSize> sizes;
  sizes.reserve(gradients.size());
  for (const Gradient& gradient : gradients) {
    sizes.push_back({.byte_size = gradient.byte_size,
                     .type = static_cast<int>(gradient.dtype),
                     .alone = gradient.rows || IsLarge(gradient)});
  }
  std::vector<Bucket> buckets;
  for (const std::vector<size_t>& positions : DivideIntoBuckets(
           sizes, {options.bucket_bytes, options.last_bucket_bytes})) {
    Bucket& bucket = buckets.emplace_back();
    for (size_t i : positions) bucket.push_back(gradients[i]);
  }
  return buckets;
}

}  // namespace

size_t InsertAllReduce(program::Program& program,
                       const AllReduceOptions& options) {
  Block& block = program.block(0);
  const std::vector<Bucket> buckets =
      MakeBuckets(FindGradients(block), options);
  // Exchanges end in the order in which they begin: where a later one is waited
  // for, an earlier one costs nothing more. So all waits come together in front
  // of the updates, which can then be done in one pass. Where nothing runs
  // beside backward, a gradient is complete at once, and the executor may apply
  // it early.
  std::vector<size_t> wait_at(buckets.size());
  for (size_t k = buckets.size(); k-- > 0;) {
    wait_at[k] = options.overlap ? UsedBy(buckets[k]) : MadeBy(buckets[k]) + 1;
    if (k + 1 < buckets.size()) {
      wait_at[k] = std::min(wait_at[k], wait_at[k + 1]);
    }
  }
  const std::string updates = DescribeUpdates(block);
  const int64_t first_number = CountBuckets(block);
  std::multimap<size_t, Operation> added;  // by the position they go before
  std::vector<bool> blocking(buckets.size());
  for (size_t k = 0; k < buckets.size(); ++k) {
    Operation start = MakeOp("c_allreduce_start", buckets[k],
                             first_number + static_cast<int64_t>(k));
    start.attrs["average"] = {AttrKind::kBool, options.average};
    blocking[k] = MadeBy(buckets[k]) + 1 == wait_at[k];
    if (blocking[k]) {
      start.attrs["blocking"] = {AttrKind::kBool, true};
      const Gradient& first = buckets[k][0];
      if (IsLarge(first) && IsBrief(block, first)) {
        start.attrs["brief"] = {AttrKind::kBool, true};
      }
    }
    // Once is enough: ranks compare it when they run this program first.
    if (k == 0) start.attrs["updates"] = {AttrKind::kString, updates};
    added.emplace(MadeBy(buckets[k]) + 1, std::move(start));
  }
  for (size_t k = 0; k < buckets.size(); ++k) {
    if (blocking[k]) continue;
    added.emplace(wait_at[k], MakeOp("c_allreduce_wait", buckets[k],
                                     first_number + static_cast<int64_t>(k)));
  }
  size_t shift = 0;
  for (auto& [before, op] : added)
    block.Insert(before + shift++, std::move(op));
  return buckets.size();
}

}  // namespace fleet::plan
