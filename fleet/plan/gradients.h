// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_GRADIENTS_H_
#define FLEET_PLAN_GRADIENTS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "fleet/program/dtype.h"
#include "fleet/program/program.h"

namespace fleet::plan {

// The gradient of a parameter, between the operation that completes it and the
// first that uses it: a clip, a regularizer or the update itself. Positions are
// those of operations in the block.
struct Gradient {
  std::string name;
  std::string parameter;
  size_t made_by = 0;
  size_t used_by = 0;
  program::DType dtype = program::DType::kFloat32;
  size_t byte_size = 0;
  bool rows = false;  // SelectedRows, whose number differs from rank to rank
};

// Those of the trainable parameters of `block`, in the order in which they
// become ready. A gradient that no operation outside of backward uses is none
// of them, nor is one that an all-reduce already takes.
std::vector<Gradient> FindGradients(const program::Block& block);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_GRADIENTS_H_
