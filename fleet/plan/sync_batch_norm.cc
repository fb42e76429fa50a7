// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/sync_batch_norm.h"

#include <string>

#include "fleet/program/attr_or.h"

namespace fleet::plan {

bool SyncBatchNorm(program::Program& program) {
  bool any = false;
  for (size_t b = 0; b < program.num_blocks(); ++b) {
    program::Block& block = program.block(b);
    for (size_t i = 0; i < block.num_ops(); ++i) {
      program::Operation& op = block.op(i);
      if (op.type != "batch_norm" && op.type != "batch_norm_grad") continue;
      if (program::AttrOr(op, "is_test", false) ||
          program::AttrOr(op, "use_global_stats", false)) {
        continue;
      }
      op.type = "sync_" + op.type;
      any = true;
    }
  }
  if (any) program.Touch();
  return any;
}

}  // namespace fleet::plan
