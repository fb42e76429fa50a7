// SPDX-License-Identifier: Apache-2.0

// Mixed precision of eager calls: what an op is given is cast before it runs,
// by lists. Programs have plan/mixed_precision.h.

#ifndef FLEET_OPS_EAGER_AUTO_CAST_H_
#define FLEET_OPS_EAGER_AUTO_CAST_H_

#include <set>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/ops/kernel.h"
#include "fleet/program/op_def.h"
#include "fleet/program/precision.h"

namespace fleet::ops {

struct AutoCast {
  program::DType dtype = program::DType::kFloat16;  // or kBfloat16
  // Ops that compute in `dtype`, and those that compute in float32. Others take
  // what they are given, and float32 if it is of both.
  std::set<std::string, std::less<>> white;
  std::set<std::string, std::less<>> black;
};

// The lists of a level, by what the definitions of `ops` and `custom` say. At
// level kWhite everything but the white ops is black.
AutoCast MakeAutoCast(const program::OpRegistry& ops, program::DType dtype,
                      program::AmpLevel level,
                      const program::CustomPrecisions& custom, bool promote);

// Casts `inputs`, which are laid out as for RunEager, in place of what they
// were; gradients flow back through the casts. A normalisation is given its
// scale, bias and statistics as they are, and an op with an input of float64
// all of them. `cast` is the op of that name.
Status CastInputs(const AutoCast& auto_cast, const Op& cast, const Op& op,
                  std::span<at::Tensor> inputs,
                  std::span<const uint32_t> slot_end, const Context& context);

}  // namespace fleet::ops

#endif  // FLEET_OPS_EAGER_AUTO_CAST_H_
