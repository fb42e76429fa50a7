// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/define_ops.h"

namespace fleet::program {

void DefineAllOps(OpRegistry& ops) {
  DefineMathOps(ops);
  DefineMatmulOps(ops);
}

}  // namespace fleet::program
