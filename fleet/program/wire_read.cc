// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fleet/program/wire.h"
#include "fleet/program/wire_fields.h"

namespace fleet::program {
namespace {

using protozero::pbf_reader;

// Kinds that newer versions of Paddle write. They are read as one of AttrKind:
// names of variables as strings, numbers that carry their type as that type.
enum class NewerKind : int {
  kVariable = 13,
  kVariables = 14,
  kScalar = 16,
  kScalars = 17,
};

std::string Text(pbf_reader& r) {
  auto view = r.get_view();
  return std::string(view.data(), view.size());
}

// A repeated number: one of them, or many packed.
template <class T, class One, class Packed>
void Take(pbf_reader& r, std::vector<T>& into, One one, Packed packed) {
  if (r.wire_type() == protozero::pbf_wire_type::length_delimited) {
    for (auto v : packed(r)) into.push_back(static_cast<T>(v));
  } else {
    into.push_back(static_cast<T>(one(r)));
  }
}

TensorType ReadTensorDesc(pbf_reader r) {
  TensorType type;
  while (r.next()) {
    if (r.tag() == 1) {
      type.dtype = static_cast<DType>(r.get_int32());
    } else if (r.tag() == 2) {
      Take(
          r, type.dims, [](auto& m) { return m.get_int64(); },
          [](auto& m) { return m.get_packed_int64(); });
    } else {
      r.skip();
    }
  }
  return type;
}

void ReadLodTensorDesc(pbf_reader r, Variable& variable) {
  while (r.next()) {
    if (r.tag() == 1) {
      variable.type = ReadTensorDesc(r.get_message());
    } else if (r.tag() == 2) {
      variable.lod_level = r.get_int32();
    } else {
      r.skip();
    }
  }
}

void ReadVarType(pbf_reader r, Variable& variable) {
  while (r.next()) {
    switch (static_cast<VarTypeField>(r.tag())) {
      case VarTypeField::kKind:
        variable.kind = static_cast<VariableKind>(r.get_int32());
        break;
      case VarTypeField::kSelectedRows:
        variable.type = ReadTensorDesc(r.get_message());
        break;
      case VarTypeField::kTensor:
      case VarTypeField::kTensorArray:
        ReadLodTensorDesc(r.get_message(), variable);
        break;
      default:
        r.skip();
    }
  }
}

Variable ReadVariable(pbf_reader r) {
  Variable variable;
  while (r.next()) {
    switch (static_cast<VarField>(r.tag())) {
      case VarField::kName:
        variable.name = Text(r);
        break;
      case VarField::kType:
        ReadVarType(r.get_message(), variable);
        break;
      case VarField::kPersistable:
        variable.persistable = r.get_bool();
        break;
      case VarField::kNeedCheckFeed:
        variable.is_data = r.get_bool();
        break;
      case VarField::kIsParameter:
        variable.is_parameter = r.get_bool();
        break;
      case VarField::kStopGradient:
        variable.stop_gradient = r.get_bool();
        break;
      default:
        r.skip();
    }
  }
  return variable;
}

// The lists of all kinds; `kind` says which one counts.
struct AttrParts {
  std::string name;
  AttrKind kind = AttrKind::kInt;
  int64_t whole = 0;
  double real = 0;
  bool flag = false;
  std::string text;
  std::vector<int64_t> wholes;
  std::vector<double> reals;
  std::vector<bool> flags;
  std::vector<std::string> texts;
  int scalar_type = 0;
};

// A number with its type: 1 bool, 2 whole, 3 real.
void ReadScalar(pbf_reader r, AttrParts& attr) {
  int type = 0;
  bool flag = false;
  int64_t whole = 0;
  double real = 0;
  while (r.next()) {
    switch (r.tag()) {
      case 1:
        type = r.get_int32();
        break;
      case 2:
        flag = r.get_bool();
        break;
      case 3:
        whole = r.get_int64();
        break;
      case 4:
        real = r.get_double();
        break;
      default:
        r.skip();
    }
  }
  attr.scalar_type = type;
  attr.flags.push_back(flag);
  attr.wholes.push_back(type == 1 ? int64_t{flag} : whole);
  attr.reals.push_back(type == 3 ? real
                                 : static_cast<double>(attr.wholes.back()));
}

void ReadAttrField(pbf_reader& r, AttrParts& attr) {
  switch (static_cast<AttrField>(r.tag())) {
    case AttrField::kName:
      attr.name = Text(r);
      break;
    case AttrField::kKind:
      attr.kind = static_cast<AttrKind>(r.get_int32());
      break;
    case AttrField::kInt:
    case AttrField::kBlock:
      attr.whole = r.get_int32();
      break;
    case AttrField::kLong:
      attr.whole = r.get_int64();
      break;
    case AttrField::kFloat:
      attr.real = r.get_float();
      break;
    case AttrField::kFloat64:
      attr.real = r.get_double();
      break;
    case AttrField::kString:
      attr.text = Text(r);
      break;
    case AttrField::kBool:
      attr.flag = r.get_bool();
      break;
    case AttrField::kInts:
    case AttrField::kBlocks:
      Take(
          r, attr.wholes, [](auto& m) { return m.get_int32(); },
          [](auto& m) { return m.get_packed_int32(); });
      break;
    case AttrField::kLongs:
      Take(
          r, attr.wholes, [](auto& m) { return m.get_int64(); },
          [](auto& m) { return m.get_packed_int64(); });
      break;
    case AttrField::kFloats:
      Take(
          r, attr.reals, [](auto& m) { return m.get_float(); },
          [](auto& m) { return m.get_packed_float(); });
      break;
    case AttrField::kFloat64s:
      Take(
          r, attr.reals, [](auto& m) { return m.get_double(); },
          [](auto& m) { return m.get_packed_double(); });
      break;
    case AttrField::kBools:
      Take(
          r, attr.flags, [](auto& m) { return m.get_bool(); },
          [](auto& m) { return m.get_packed_bool(); });
      break;
    case AttrField::kStrings:
    case AttrField::kVariables:
      attr.texts.push_back(Text(r));
      break;
    case AttrField::kVariable:
      attr.text = Text(r);
      break;
    case AttrField::kScalar:
    case AttrField::kScalars:
      ReadScalar(r.get_message(), attr);
      break;
    default:
      r.skip();
  }
}

// Turns a newer kind into the one that it is read as.
void Settle(AttrParts& attr) {
  switch (static_cast<NewerKind>(attr.kind)) {
    case NewerKind::kVariable:
      attr.kind = AttrKind::kString;
      break;
    case NewerKind::kVariables:
      attr.kind = AttrKind::kStrings;
      break;
    case NewerKind::kScalar:
      attr.kind = attr.scalar_type == 1   ? AttrKind::kBool
                  : attr.scalar_type == 2 ? AttrKind::kLong
                                          : AttrKind::kFloat64;
      if (attr.reals.empty()) break;
      attr.flag = attr.flags.front();
      attr.whole = attr.wholes.front();
      attr.real = attr.reals.front();
      break;
    case NewerKind::kScalars:
      attr.kind = attr.scalar_type == 1   ? AttrKind::kBools
                  : attr.scalar_type == 2 ? AttrKind::kLongs
                                          : AttrKind::kFloat64s;
      break;
  }
}

// False for a kind that we do not know.
bool ReadAttr(pbf_reader r, AttrMap& attrs) {
  AttrParts attr;
  while (r.next()) ReadAttrField(r, attr);
  Settle(attr);
  AttrValue& value = attrs[attr.name];
  value.kind = attr.kind;
  switch (attr.kind) {
    case AttrKind::kInt:
    case AttrKind::kLong:
    case AttrKind::kBlock:
      value.value = attr.whole;
      return true;
    case AttrKind::kFloat:
    case AttrKind::kFloat64:
      value.value = attr.real;
      return true;
    case AttrKind::kString:
      value.value = std::move(attr.text);
      return true;
    case AttrKind::kBool:
      value.value = attr.flag;
      return true;
    case AttrKind::kInts:
    case AttrKind::kLongs:
    case AttrKind::kBlocks:
      value.value = std::move(attr.wholes);
      return true;
    case AttrKind::kFloats:
    case AttrKind::kFloat64s:
      value.value = std::move(attr.reals);
      return true;
    case AttrKind::kStrings:
      value.value = std::move(attr.texts);
      return true;
    case AttrKind::kBools:
      value.value = std::move(attr.flags);
      return true;
  }
  attrs.erase(attr.name);
  return false;
}

Slot ReadSlot(pbf_reader r) {
  Slot slot;
  while (r.next()) {
    if (r.tag() == 1) {
      slot.name = Text(r);
    } else if (r.tag() == 2) {
      slot.arguments.push_back(Text(r));
    } else {
      r.skip();
    }
  }
  return slot;
}

Operation ReadOperation(pbf_reader r) {
  Operation op;
  while (r.next()) {
    switch (static_cast<OpField>(r.tag())) {
      case OpField::kInputs:
        op.inputs.push_back(ReadSlot(r.get_message()));
        break;
      case OpField::kOutputs:
        op.outputs.push_back(ReadSlot(r.get_message()));
        break;
      case OpField::kType:
        op.type = Text(r);
        break;
      case OpField::kAttrs:
        ReadAttr(r.get_message(), op.attrs);
        break;
      default:
        r.skip();
    }
  }
  return op;
}

// The number and the parent come before the block can be made.
std::pair<int, int> ReadPlace(pbf_reader r) {
  int index = -1;
  int parent = -1;
  while (r.next()) {
    if (r.tag() == Number(BlockField::kIndex)) {
      index = r.get_int32();
    } else if (r.tag() == Number(BlockField::kParent)) {
      parent = r.get_int32();
    } else {
      r.skip();
    }
  }
  return {index, parent};
}

Status ReadBlock(pbf_reader r, Program& program, int expected) {
  auto [index, parent] = ReadPlace(r);
  if (index != expected) {
    return DataLoss("block ", expected, " has the number ", index);
  }
  if (expected == 0 ? parent != -1 : parent < 0 || parent >= expected) {
    return DataLoss("block ", expected, " lies in block ", parent);
  }
  Block& block = expected == 0 ? program.block(0) : program.AddBlock(parent);
  while (r.next()) {
    switch (static_cast<BlockField>(r.tag())) {
      case BlockField::kVars: {
        Variable variable = ReadVariable(r.get_message());
        if (variable.name.empty()) {
          return DataLoss("block ", expected, ": a variable without a name");
        }
        block.AddVariable(std::move(variable));
        break;
      }
      case BlockField::kOps: {
        Operation op = ReadOperation(r.get_message());
        if (op.type.empty()) {
          return DataLoss("block ", expected, ": an operation without a type");
        }
        block.Append(std::move(op));
        break;
      }
      case BlockField::kForwardBlock:
        block.set_forward_block(r.get_int32());
        break;
      default:
        r.skip();
    }
  }
  return OkStatus();
}

Status CheckBlockNumbers(const Program& program) {
  const auto count = static_cast<int64_t>(program.num_blocks());
  for (size_t b = 0; b < program.num_blocks(); ++b) {
    const Block& block = program.block(b);
    for (size_t i = 0; i < block.num_ops(); ++i) {
      for (const auto& [name, attr] : block.op(i).attrs) {
        std::vector<int64_t> numbers;
        if (attr.kind == AttrKind::kBlock) {
          numbers = {std::get<int64_t>(attr.value)};
        } else if (attr.kind == AttrKind::kBlocks) {
          numbers = std::get<std::vector<int64_t>>(attr.value);
        }
        for (int64_t number : numbers) {
          if (number < 0 || number >= count) {
            return DataLoss("operation ", block.op(i).type, ": ", name,
                            " is block ", number, " of ", count);
          }
        }
      }
    }
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<Program>> Parse(std::string_view bytes) {
  auto program = std::make_unique<Program>();
  int blocks = 0;
  try {
    pbf_reader r(bytes.data(), bytes.size());
    while (r.next()) {
      if (r.tag() == Number(ProgramField::kBlocks)) {
        RETURN_IF_ERROR(ReadBlock(r.get_message(), *program, blocks++)
                            .WithContext("program"));
      } else {
        r.skip();
      }
    }
  } catch (const std::exception& error) {
    return DataLoss("program: the bytes are damaged or cut off (", error.what(),
                    ")");
  }
  if (blocks == 0) return DataLoss("program: the bytes hold no block");
  RETURN_IF_ERROR(CheckBlockNumbers(*program).WithContext("program"));
  return program;
}

Result<TensorType> ParseTensorType(std::string_view bytes) {
  try {
    return ReadTensorDesc(pbf_reader(bytes.data(), bytes.size()));
  } catch (const std::exception& error) {
    return DataLoss("a tensor's type is damaged (", error.what(), ")");
  }
}

}  // namespace fleet::program
