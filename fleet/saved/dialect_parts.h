// SPDX-License-Identifier: Apache-2.0

// What writing Paddle's dialect and reading it have in common, and the parts of
// writing it (dialect.h).

#ifndef FLEET_SAVED_DIALECT_PARTS_H_
#define FLEET_SAVED_DIALECT_PARTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/program/attr_or.h"
#include "fleet/program/program.h"
#include "fleet/saved/dialect.h"

namespace fleet::saved {

using program::AttrOr;
using Ints = std::vector<int64_t>;

inline program::AttrValue IntAttr(int64_t value) {
  return {program::AttrKind::kInt, value};
}
inline program::AttrValue FlagAttr(bool value) {
  return {program::AttrKind::kBool, value};
}
inline program::AttrValue TextAttr(std::string value) {
  return {program::AttrKind::kString, std::move(value)};
}
inline program::AttrValue ListAttr(Ints value) {
  return {program::AttrKind::kInts, std::move(value)};
}

// One number stands for all dimensions.
Ints Spread(Ints numbers, size_t count);

bool IsChannelLast(const program::Operation& op);

// Renames the slots of `op` that have another name in Paddle, to Paddle's or
// to ours.
void RenameSlots(program::Operation& op, bool to_theirs);

// The operations that take the place of one.
class Replacement {
 public:
  Replacement(program::Block& block, program::Operation op, Paddle version);

  // Appends an operation, of the same role, device and place in the script.
  void Add(std::string type, program::Slots inputs, program::Slots outputs,
           program::AttrMap attrs = {});

  // The one argument of a slot; empty when there is none.
  std::string In(std::string_view slot) const;
  std::string Out(std::string_view slot) const;

  program::TensorType TypeOf(const std::string& name) const;
  size_t RankOf(const std::string& name) const;

  // A new variable, named after another.
  std::string Temporary(const std::string& after, program::TensorType type);

  // Paddle's reshaping ops also say what the shape was before.
  program::Slots WithShapeBefore(const std::string& x, const std::string& out);

  // `x` with a dimension of one more at `axis`.
  std::string Unsqueeze(const std::string& x, int64_t axis);
  void Squeeze(const std::string& x, int64_t axis, const std::string& out);

  // Adds a bias, of one number for each of the channels.
  void AddBias(const std::string& x, const std::string& bias,
               const std::string& out, int64_t axis);

  // The operation stays, with what was changed in `op`.
  void Keep() { done.push_back(std::move(op)); }

  // Whether an operation other than `op` reads `name`.
  bool IsUsed(const std::string& name) const;

  program::Operation op;
  const Paddle version;
  std::vector<program::Operation> done;

 private:
  program::Block& block_;
};

// ---- convolutions and pools (to_paddle_windows.cc)

// All of ours of one, two and three dimensions, also transposed.
void ConvToPaddle(Replacement& r);

// Whether the operation is one of our pools by its name; then it is replaced.
bool PoolToPaddle(Replacement& r);

}  // namespace fleet::saved

#endif  // FLEET_SAVED_DIALECT_PARTS_H_
