// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "fleet/program/text.h"
#include "fleet/program/text_words.h"

namespace fleet::program {
namespace {

std::string Quoted(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "'";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string Flag(bool value) { return value ? "True" : "False"; }

// The shortest text that reads as the same number, never without a point.
template <class T>
std::string Real(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer;
  auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), end);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

template <class List, class One>
std::string Listed(const List& list, One one) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) text += ", ";
    text += one(list[i]);
  }
  return text + "]";
}

std::string Number(int64_t value) { return std::to_string(value); }
std::string Single(double value) { return Real(static_cast<float>(value)); }
std::string Double(double value) { return Real(value); }

std::string ToText(const AttrValue& attr) {
  const std::string said(NameIn(kSaidKinds, attr.kind));
  auto empty = [&](const auto& list, auto one) {
    return (list.empty() ? std::string(NameIn(kListKinds, attr.kind)) : "") +
           Listed(list, one);
  };
  switch (attr.kind) {
    case AttrKind::kInt:
      return Number(std::get<int64_t>(attr.value));
    case AttrKind::kFloat:
      return Single(std::get<double>(attr.value));
    case AttrKind::kString:
      return Quoted(std::get<std::string>(attr.value));
    case AttrKind::kBool:
      return Flag(std::get<bool>(attr.value));
    case AttrKind::kInts:
      return empty(std::get<std::vector<int64_t>>(attr.value), Number);
    case AttrKind::kFloats:
      return empty(std::get<std::vector<double>>(attr.value), Single);
    case AttrKind::kStrings:
      return empty(std::get<std::vector<std::string>>(attr.value), Quoted);
    case AttrKind::kBools:
      return empty(std::get<std::vector<bool>>(attr.value), Flag);
    case AttrKind::kLong:
      return said + "(" + Number(std::get<int64_t>(attr.value)) + ")";
    case AttrKind::kFloat64:
      return said + "(" + Double(std::get<double>(attr.value)) + ")";
    case AttrKind::kBlock:
      return said + "[" + Number(std::get<int64_t>(attr.value)) + "]";
    case AttrKind::kLongs:
    case AttrKind::kBlocks:
      return said + Listed(std::get<std::vector<int64_t>>(attr.value), Number);
    case AttrKind::kFloat64s:
      return said + Listed(std::get<std::vector<double>>(attr.value), Double);
  }
  return "";
}

std::string ToText(const Slots& slots) {
  std::string text = "{";
  for (const Slot& slot : slots) {
    if (text.size() > 1) text += ", ";
    text += slot.name + "=" + Listed(slot.arguments, Quoted);
  }
  return text + "}";
}

// What every operation of Paddle carries and says nothing.
bool IsSilent(const std::string& name, const AttrValue& attr) {
  if (name == "op_callstack") return true;
  if (name != "op_device" && name != "op_namescope") return false;
  const auto* text = std::get_if<std::string>(&attr.value);
  return text != nullptr && (text->empty() || *text == "/");
}

}  // namespace

std::string ToString(const Variable& variable) {
  std::string text;
  if (variable.persistable) text += "persist ";
  if (variable.is_parameter) {
    text += variable.trainable ? "trainable param " : "param ";
  } else {
    text += "var ";
  }
  text += variable.name + " : " + std::string(KindName(variable.kind));
  const bool is_tensor = variable.kind == VariableKind::kTensor ||
                         variable.kind == VariableKind::kSelectedRows ||
                         variable.kind == VariableKind::kTensorArray;
  if (is_tensor) {
    std::string dims = ToString(variable.type.dims);
    dims.front() = '(';
    dims.back() = ')';
    text += ".shape" + dims + ".dtype(" +
            std::string(Name(variable.type.dtype)) + ")";
  }
  if (variable.lod_level > 0) {
    text += ".lod_level(" + std::to_string(variable.lod_level) + ")";
  }
  if (!variable.lod.empty()) text += ".lod(" + variable.lod + ")";
  if (variable.stop_gradient) text += ".stop_gradient(True)";
  if (variable.is_data) text += ".data(True)";
  return text;
}

std::string ToString(const Operation& op, const TextOptions& options) {
  std::string text =
      ToText(op.outputs) + " = " + op.type + "(inputs=" + ToText(op.inputs);
  for (const auto& [name, attr] : op.attrs) {
    if (!IsSilent(name, attr)) text += ", " + name + " = " + ToText(attr);
  }
  text += ")";
  if (options.lines && !op.made_at.empty()) text += "  // at " + op.made_at;
  return text;
}

std::string ToString(const Block& block, const TextOptions& options) {
  std::string text = "{ // block " + std::to_string(block.index());
  if (block.index() > 0) text += ", parent " + std::to_string(block.parent());
  if (block.forward_block() >= 0) {
    text += ", forward " + std::to_string(block.forward_block());
  }
  text += "\n";
  if (options.variables) {
    for (const Variable* variable : block.variables()) {
      text += "    " + ToString(*variable) + "\n";
    }
  }
  for (size_t i = 0; i < block.num_ops(); ++i) {
    text += "    " + ToString(block.op(i), options) + "\n";
  }
  return text + "}\n";
}

std::string ToString(const Program& program, const TextOptions& options) {
  std::string text;
  for (size_t i = 0; i < program.num_blocks(); ++i) {
    text += ToString(program.block(i), options);
  }
  return text;
}

}  // namespace fleet::program
