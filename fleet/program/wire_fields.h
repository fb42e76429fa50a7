// SPDX-License-Identifier: Apache-2.0

// The numbers of the fields of Paddle's messages, and protozero set up to read
// and write them, for wire_read.cc and wire_write.cc. docs/program_format.md
// explains the fields.

#ifndef FLEET_PROGRAM_WIRE_FIELDS_H_
#define FLEET_PROGRAM_WIRE_FIELDS_H_

#include <cstdint>
#include <stdexcept>

// What the reader would assert, bytes from a file can violate: it is an error.
#define protozero_assert(condition) \
  ((condition) ? void() : throw std::invalid_argument("a field's wire type"))
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

namespace fleet::program {

enum class ProgramField : uint32_t { kBlocks = 1, kVersion = 4 };
enum class BlockField : uint32_t {
  kIndex = 1,
  kParent = 2,
  kVars = 3,
  kOps = 4,
  kForwardBlock = 5,
};
enum class VarField : uint32_t {
  kName = 1,
  kType = 2,
  kPersistable = 3,
  kNeedCheckFeed = 4,
  kIsParameter = 5,
  kStopGradient = 6,
};
enum class VarTypeField : uint32_t {
  kKind = 1,
  kSelectedRows = 2,
  kTensor = 3,
  kTensorArray = 4,
};
enum class OpField : uint32_t {
  kInputs = 1,
  kOutputs = 2,
  kType = 3,
  kAttrs = 4,
};
enum class AttrField : uint32_t {
  kName = 1,
  kKind = 2,
  kInt = 3,
  kFloat = 4,
  kString = 5,
  kInts = 6,
  kFloats = 7,
  kStrings = 8,
  kBool = 10,
  kBools = 11,
  kBlock = 12,
  kLong = 13,
  kBlocks = 14,
  kLongs = 15,
  kFloat64s = 16,
  kVariable = 17,
  kVariables = 18,
  kFloat64 = 19,
  kScalar = 20,
  kScalars = 21,
};

template <class Field>
constexpr uint32_t Number(Field field) {
  return static_cast<uint32_t>(field);
}

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_WIRE_FIELDS_H_
