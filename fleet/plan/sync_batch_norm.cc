// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/sync_batch_norm.h"

#include <string>
#include <string_view>

namespace fleet::plan {
namespace {

bool IsSet(const program::Operation& op, std::string_view name) {
  const program::AttrValue* attr = op.attr(name);
  const bool* value =
      attr == nullptr ? nullptr : std::get_if<bool>(&attr->value);
  return value != nullptr && *value;
}

}  // namespace

bool SyncBatchNorm(program::Program& program) {
  bool any = false;
  for (size_t b = 0; b < program.num_blocks(); ++b) {
    program::Block& block = program.block(b);
    for (size_t i = 0; i < block.num_ops(); ++i) {
      program::Operation& op = block.op(i);
      if (op.type != "batch_norm" && op.type != "batch_norm_grad") continue;
      if (IsSet(op, "is_test") || IsSet(op, "use_global_stats")) continue;
      op.type = "sync_" + op.type;
      any = true;
    }
  }
  if (any) program.Touch();
  return any;
}

}  // namespace fleet::plan
