// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PROGRAM_OP_DEF_H_
#define FLEET_PROGRAM_OP_DEF_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/program/dtype.h"

// The definition of an op: what it is called, what goes in, what comes out,
// which shape that has, and what its gradient needs. It is written once, here
// in program/. Kernels (ops/), the eager function (python/) and the program
// builder all start from it. Nothing in this file knows how an op is computed.

namespace fleet::program {

// ---- attributes

enum class AttrType { kBool, kInt, kFloat, kString, kInts, kFloats, kDType };

// A value of an attribute. kDType is kept as the number of a DType.
using Attr = std::variant<bool, int64_t, double, std::string,
                          std::vector<int64_t>, std::vector<double>>;

// The attributes of one call, in the order of the definition, none missing.
using Attrs = std::vector<Attr>;

struct AttrDef {
  std::string name;
  AttrType type;
  bool required = false;  // else `initial` is what an absent one means
  Attr initial;
};

// ---- slots

// A named input or output. Names are Paddle's ("X", "Y", "Out").
struct SlotDef {
  std::string name;
  bool optional = false;  // "Bias?": may be absent
  bool variadic = false;  // "X*": any number of tensors
  bool constant = false;  // "Mask!": an output no gradient flows through
};

// ---- shapes

using Dims = std::vector<int64_t>;  // -1: not known before the program runs

struct TensorType {
  DType dtype = DType::kFloat32;
  Dims dims;

  friend bool operator==(const TensorType&, const TensorType&) = default;
};

std::string ToString(const Dims& dims);        // "[2, 3]"
std::string ToString(const TensorType& type);  // "float32 [2, 3]"

struct OpDef;

// What a shape rule looks at: the types of the inputs and the attributes.
class OpTypes {
 public:
  OpTypes(const OpDef& def, std::vector<std::vector<TensorType>> inputs,
          const Attrs& attrs)
      : def_(def), inputs_(std::move(inputs)), attrs_(attrs) {}

  const OpDef& def() const { return def_; }
  // The tensor in slot `slot`; the rule may ask only for what has() says is
  // there.
  const TensorType& in(std::string_view slot) const;
  bool has(std::string_view slot) const;
  std::span<const TensorType> list(std::string_view slot) const;

  template <class T>
  const T& attr(std::string_view name) const {
    return std::get<T>(attr_value(name));
  }
  DType dtype_attr(std::string_view name) const {
    return static_cast<DType>(attr<int64_t>(name));
  }

 private:
  const Attr& attr_value(std::string_view name) const;

  const OpDef& def_;
  std::vector<std::vector<TensorType>> inputs_;
  const Attrs& attrs_;
};

// Types of all outputs, flat, in slot order. An InvalidArgument says which
// argument is wrong and how; the caller adds the op's name.
using ShapeRule =
    std::function<Result<std::vector<TensorType>>(const OpTypes&)>;

// ---- gradients

// What a backward kernel is given: an input, an output, or the gradient of an
// output of the op it belongs to.
struct GradSource {
  enum Kind { kInput, kOutput, kOutputGrad } kind;
  int slot;
};

struct GradRule {
  std::vector<GradSource> uses;
  std::vector<int> gives;  // input slots whose gradients come out, in order
  bool exists() const { return !gives.empty(); }
};

// ---- the definition

struct OpDef {
  std::string name;
  std::vector<SlotDef> inputs;
  std::vector<SlotDef> outputs;
  std::vector<AttrDef> attrs;
  ShapeRule shape;
  GradRule grad;
  // Without kernel: an extension of the executor, or the executor itself, runs
  // it. Only programs can hold it.
  bool external = false;

  int InputSlot(std::string_view name) const;   // -1: no such slot
  int OutputSlot(std::string_view name) const;  // -1: no such slot
  int AttrIndex(std::string_view name) const;   // -1: no such attribute
  Attrs DefaultAttrs() const;

  // Runs the shape rule; its error gets the op's name and the input types.
  Result<std::vector<TensorType>> InferTypes(const OpTypes& types) const;
};

// All definitions of one process, by name. Filled once, then only read.
class OpRegistry {
 public:
  // `schema` is the op in one line:
  //
  //   matmul_v2(X, Y; trans_x: bool = false, trans_y: bool = false) -> Out
  //
  // Inputs, then attributes with defaults, then outputs; the marks of SlotDef
  // follow a slot's name. `grad` is empty for an op without gradient, or
  //
  //   X, Y, Out' -> X', Y'
  //
  // where a prime stands for "the gradient of". A schema that does not parse,
  // and a name that is taken, are broken invariants and abort.
  void Define(std::string_view schema, ShapeRule shape,
              std::string_view grad = "");
  // Defines an op without kernel. With a null `shape`, its outputs keep
  // the types that they have.
  void DefineExternal(std::string_view schema, ShapeRule shape,
                      std::string_view grad = "");

  const OpDef* Find(std::string_view name) const;  // nullptr: no such op
  std::vector<const OpDef*> All() const;           // sorted by name

 private:
  OpDef& Add(std::string_view schema, ShapeRule shape, std::string_view grad);

  std::map<std::string, std::unique_ptr<OpDef>, std::less<>> defs_;
};

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_OP_DEF_H_
