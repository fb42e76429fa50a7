// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_MIXED_PRECISION_H_
#define FLEET_PLAN_MIXED_PRECISION_H_

#include <cstddef>
#include <set>
#include <string>

#include "fleet/base/status.h"
#include "fleet/program/dtype.h"
#include "fleet/program/op_def.h"
#include "fleet/program/precision.h"
#include "fleet/program/program.h"

namespace fleet::plan {

struct MixedPrecision {
  program::DType dtype =
      program::DType::kFloat16;  // the short type; or kBfloat16
  program::AmpLevel level = program::AmpLevel::kByList;
  // Ops whose place in the lists is not the one that their definition says.
  program::CustomPrecisions custom = {};
  // At level kAll: ops that are not white go along with what they read.
  bool promote = false;
  // What reads or writes one of these variables computes in float32.
  std::set<std::string> black_variables = {};
  // When not empty: what was made outside of name scopes of this name computes
  // in float32.
  std::string scope = {};
  // A parameter that is read in the short type alone becomes of that type.
  // Otherwise parameters stay as they are, and are cast where they are read.
  bool short_parameters = false;
};

struct MixedPrecisionResult {
  size_t num_casts = 0;
  std::set<std::string> parameters;  // that have the short type now
};

// Lets operations of the main block compute in a short type, as their
// definitions and `options` say: puts in a `cast` of what they read,
// "x.cast_fp16" or "x.cast_bf16", and of what others read of them,
// "y.cast_fp32". A value is cast once.
//
// In float32 remain: what lives longer than a step, what several operations
// write, bodies of control flow and what they read, scale, bias and statistics
// of normalisations, and every operation whose definition refuses the short
// type. What is float64 stays that, and so does an operation that reads it.
//
// To be called before backward, whose gradients then have the types of their
// variables: those of parameters float32. FailedPrecondition for a program that
// has it already, InvalidArgument for a dtype that is not a short one; then
// nothing is changed, and neither is it at level kNone.
Result<MixedPrecisionResult> UseMixedPrecision(
    const program::OpRegistry& registry, program::Program& program,
    const MixedPrecision& options);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_MIXED_PRECISION_H_
