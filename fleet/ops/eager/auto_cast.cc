// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/eager/auto_cast.h"

#include <array>
#include <string_view>
#include <utility>

#include "fleet/ops/eager/eager.h"

namespace fleet::ops {
namespace {

using program::DType;

bool IsNorm(std::string_view name) {
  return name == "batch_norm" || name == "instance_norm" ||
         name == "layer_norm" || name == "group_norm";
}

}  // namespace

AutoCast MakeAutoCast(const program::OpRegistry& ops, DType dtype,
                      program::AmpLevel level,
                      const program::CustomPrecisions& custom, bool promote) {
  AutoCast lists{.dtype = dtype, .white = {}, .black = {}};
  for (const program::OpDef* def : ops.All()) {
    const program::Precision precision =
        program::DefinedPrecisions().Of(def->name, custom);
    const program::Computes computes = AtLevel(precision, level, promote);
    if (computes == program::Computes::kShort) lists.white.insert(def->name);
    // Others follow what they are given, unlike in a program.
    const bool follows = precision == program::Precision::kUnlisted &&
                         level != program::AmpLevel::kWhite;
    if (computes == program::Computes::kFloat32 && !follows) {
      lists.black.insert(def->name);
    }
  }
  return lists;
}

Status CastInputs(const AutoCast& auto_cast, const Op& cast, const Op& op,
                  std::span<at::Tensor> inputs,
                  std::span<const uint32_t> slot_end, const Context& context) {
  const std::string& name = op.def->name;
  if (name == cast.def->name) return OkStatus();
  const at::ScalarType short_type = ToScalarType(auto_cast.dtype);
  // The first slot of a normalisation is what it normalises.
  if (IsNorm(name)) inputs = inputs.first(slot_end[0]);
  bool has_float32 = false, has_short = false;
  for (const at::Tensor& input : inputs) {
    if (input.scalar_type() == at::kDouble) return OkStatus();
    has_float32 |= input.scalar_type() == at::kFloat;
    has_short |= input.scalar_type() == short_type;
  }
  const bool white = auto_cast.white.contains(name);
  const bool to_short = white && has_float32;
  const bool to_float32 =
      !white && has_short && (has_float32 || auto_cast.black.contains(name));
  if (!to_short && !to_float32) return OkStatus();
  const at::ScalarType from = to_short ? at::kFloat : short_type;
  const DType to = to_short ? auto_cast.dtype : DType::kFloat32;
  const std::array<uint32_t, 1> end = {1};
  for (at::Tensor& input : inputs) {
    if (input.scalar_type() != from) continue;
    Attrs attrs = {static_cast<int64_t>(ToDType(from)),
                   static_cast<int64_t>(to)};
    ASSIGN_OR_RETURN(Tensors out, RunEager(cast, {&input, 1}, end,
                                           std::move(attrs), context));
    input = std::move(out[0]);
  }
  return OkStatus();
}

}  // namespace fleet::ops
