// SPDX-License-Identifier: Apache-2.0

// A program: what a training or inference step computes, as data. It consists
// of blocks; a block holds variables by name and operations in the order in
// which they run; block 0 is the main one, and the others are bodies of control
// flow.
//
//   Program program;
//   Block& block = program.block(0);
//   block.AddVariable({.name = "x", .type = {DType::kFloat32, {-1, 4}}});
//   Operation& op = block.Append({.type = "relu",
//                                 .inputs = {{"X", {"x"}}},
//                                 .outputs = {{"Out", {"y"}}}});
//   RETURN_IF_ERROR(block.InferTypes(registry, op));  // makes y
//
// Names of ops, slots and attributes are Paddle's; wire.h reads and writes its
// binary form, text.h is for people. One thread at a time.

#ifndef FLEET_PROGRAM_PROGRAM_H_
#define FLEET_PROGRAM_PROGRAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/program/op_def.h"

namespace fleet::program {

// What a variable holds. The numbers are those of Paddle's wire form.
enum class VariableKind : int {
  kTensor = 7,
  kSelectedRows = 8,
  kFeedList = 9,
  kFetchList = 10,
  kStepScopes = 11,
  kTensorArray = 13,
  kReader = 15,
  kRaw = 17,
};

struct Variable {
  std::string name;
  VariableKind kind = VariableKind::kTensor;
  TensorType type;  // of a tensor, of selected rows, of an array's elements
  int lod_level = 0;
  // With lod_level 1, the variable that holds where the sequences begin and
  // end: int64 offsets into the rows, one more than there are sequences.
  // Several variables may share it.
  std::string lod = {};
  bool persistable = false;  // lives longer than a step
  bool is_parameter = false;
  bool trainable = true;  // of a parameter: an optimizer may change it
  bool stop_gradient = false;
  bool is_data = false;  // fed: a step cannot run without it

  friend bool operator==(const Variable&, const Variable&) = default;
};

// The types that attributes have on the wire. The numbers are Paddle's.
enum class AttrKind : int {
  kInt = 0,
  kFloat = 1,
  kString = 2,
  kInts = 3,
  kFloats = 4,
  kStrings = 5,
  kBool = 6,
  kBools = 7,
  kBlock = 8,
  kLong = 9,
  kBlocks = 10,
  kLongs = 11,
  kFloat64s = 12,
  kFloat64 = 15,
};

// A value of one of several kinds, as `kind` says. The variant holds it in the
// widest form: numbers of blocks are integers, float is double.
struct AttrValue {
  AttrKind kind = AttrKind::kInt;
  std::variant<int64_t, double, std::string, bool, std::vector<int64_t>,
               std::vector<double>, std::vector<std::string>, std::vector<bool>>
      value;

  friend bool operator==(const AttrValue&, const AttrValue&) = default;
};

using AttrMap = std::map<std::string, AttrValue, std::less<>>;

// The arguments of one slot: names of variables.
struct Slot {
  std::string name;
  std::vector<std::string> arguments;

  friend bool operator==(const Slot&, const Slot&) = default;
};
using Slots = std::vector<Slot>;

struct Operation {
  int64_t id = 0;  // in its program, never used again
  std::string type;
  Slots inputs;
  Slots outputs;
  AttrMap attrs;
  std::string made_at;  // the user's line, "train.py:17"; may be empty

  // Empty when there is no such slot.
  const std::vector<std::string>& input(std::string_view slot) const;
  const std::vector<std::string>& output(std::string_view slot) const;
  // Null when there is no such attribute.
  const AttrValue* attr(std::string_view name) const;
};

// The attributes of `op` in the order of `def`, defaults where absent. Those
// that `def` does not know (op_role and the like) are left out. InvalidArgument
// for a value of the wrong type and for a required one that is missing.
Result<Attrs> ResolveAttrs(const OpDef& def, const Operation& op);

// `value` as an attribute of the wire, by the type that `def` gives it.
AttrValue ToAttrValue(const AttrDef& def, const Attr& value);

class Program;

class Block final {
 public:
  Block(Program& program, int index, int parent)
      : program_(program), index_(index), parent_(parent) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  int index() const { return index_; }
  int parent() const { return parent_; }  // -1 for block 0
  // The block whose gradient this one computes, or -1.
  int forward_block() const { return forward_block_; }
  void set_forward_block(int index) { forward_block_ = index; }

  // Adds or replaces. The address stays valid while the variable exists.
  Variable& AddVariable(Variable variable);
  // Here only; null when there is none.
  Variable* FindHere(std::string_view name);
  const Variable* FindHere(std::string_view name) const;
  // Here or in an enclosing block.
  Variable* Find(std::string_view name);
  const Variable* Find(std::string_view name) const;
  void RemoveVariable(std::string_view name);
  // In the order in which they were added.
  std::vector<const Variable*> variables() const;

  // Operations in order. Addresses stay valid until the operation is removed.
  size_t num_ops() const { return ops_.size(); }
  Operation& op(size_t i) { return *ops_[i]; }
  const Operation& op(size_t i) const { return *ops_[i]; }

  // Puts an operation in before position `at` as it is, without a look at its
  // definition.
  Operation& Insert(size_t at, Operation op);
  Operation& Append(Operation op) { return Insert(num_ops(), std::move(op)); }
  void Remove(size_t begin, size_t end);

  // Types of the outputs of `op` from those of its inputs, by its definition,
  // into the variables of this block; makes those that are missing.
  // InvalidArgument names the op, its inputs and the user's line. An op that
  // `registry` does not know is NotFound.
  Status InferTypes(const OpRegistry& registry, const Operation& op);

 private:
  Program& program_;
  const int index_;
  const int parent_;
  int forward_block_ = -1;
  std::map<std::string, std::unique_ptr<Variable>, std::less<>> variables_;
  std::vector<const Variable*> order_;
  std::vector<std::unique_ptr<Operation>> ops_;
};

class Program final {
 public:
  Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  size_t num_blocks() const { return blocks_.size(); }
  Block& block(size_t i) { return *blocks_[i]; }
  const Block& block(size_t i) const { return *blocks_[i]; }
  // A further block inside `parent`.
  Block& AddBlock(int parent);

  // No other program of this process has this number, alive or gone.
  uint64_t id() const { return id_; }
  // Grows with every change of operations or variables, so that what was
  // compiled of an older state is known to be old.
  uint64_t version() const { return version_; }
  void Touch() { ++version_; }
  int64_t NextOpId() { return ++last_op_id_; }

  // The seed of random operations; 0: each run differs.
  int64_t random_seed = 0;

  // An equal program of its own; operations keep their ids.
  std::unique_ptr<Program> Clone() const;

 private:
  const uint64_t id_;
  uint64_t version_ = 0;
  int64_t last_op_id_ = 0;
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_PROGRAM_H_
