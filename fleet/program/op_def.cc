// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/op_def.h"

#include <cctype>
#include <charconv>
#include <utility>

#include "fleet/base/check.h"

namespace fleet::program {
namespace {

// Reads a schema left to right. What it cannot read is a mistake of the
// programmer, so it aborts and shows the text.
class SchemaReader {
 public:
  explicit SchemaReader(std::string_view text) : text_(text), rest_(text) {}

  bool Done() {
    SkipSpace();
    return rest_.empty();
  }

  bool Accept(std::string_view token) {
    SkipSpace();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  void Expect(std::string_view token) {
    FLEET_CHECK(Accept(token), "expected '", token, "' before '", rest_,
                "' in schema: ", text_);
  }

  std::string Word() {
    SkipSpace();
    size_t n = 0;
    while (n < rest_.size() && IsWordChar(rest_[n])) ++n;
    FLEET_CHECK(n > 0, "expected a name before '", rest_,
                "' in schema: ", text_);
    std::string word(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return word;
  }

 private:
  static bool IsWordChar(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' ||
           c == '.' || c == '-' || c == '@';
  }
  void SkipSpace() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])))
      rest_.remove_prefix(1);
  }

  std::string_view text_;
  std::string_view rest_;
};

SlotDef ReadSlot(SchemaReader& in) {
  SlotDef slot{.name = in.Word()};
  for (;;) {
    if (in.Accept("?")) {
      slot.optional = true;
    } else if (in.Accept("*")) {
      slot.variadic = true;
    } else if (in.Accept("!")) {
      slot.constant = true;
    } else {
      return slot;
    }
  }
}

AttrType ParseAttrType(const std::string& word) {
  static const std::map<std::string, AttrType> types = {
      {"bool", AttrType::kBool},   {"int", AttrType::kInt},
      {"float", AttrType::kFloat}, {"string", AttrType::kString},
      {"ints", AttrType::kInts},   {"floats", AttrType::kFloats},
      {"dtype", AttrType::kDType},
  };
  auto it = types.find(word);
  FLEET_CHECK(it != types.end(), "unknown attribute type ", word);
  return it->second;
}

double ParseNumber(const std::string& word) {
  double value = 0;
  auto [end, error] =
      std::from_chars(word.data(), word.data() + word.size(), value);
  FLEET_CHECK(error == std::errc() && end == word.data() + word.size(),
              "not a number: ", word);
  return value;
}

Attr ZeroOf(AttrType type) {
  switch (type) {
    case AttrType::kBool:
      return false;
    case AttrType::kInt:
      return int64_t{0};
    case AttrType::kDType:
      return static_cast<int64_t>(DType::kNone);
    case AttrType::kFloat:
      return 0.0;
    case AttrType::kString:
      return std::string();
    case AttrType::kInts:
      return std::vector<int64_t>();
    case AttrType::kFloats:
      return std::vector<double>();
  }
  FLEET_CHECK(false, "unknown attribute type");
  return false;
}

template <class T>
std::vector<T> ReadList(SchemaReader& in) {
  std::vector<T> values;
  in.Expect("[");
  while (!in.Accept("]")) {
    values.push_back(static_cast<T>(ParseNumber(in.Word())));
    in.Accept(",");
  }
  return values;
}

Attr ReadValue(SchemaReader& in, AttrType type) {
  switch (type) {
    case AttrType::kBool:
      return in.Word() == "true";
    case AttrType::kInt:
      return static_cast<int64_t>(ParseNumber(in.Word()));
    case AttrType::kFloat:
      return ParseNumber(in.Word());
    case AttrType::kString: {
      in.Expect("'");
      std::string value = in.Accept("'") ? "" : in.Word();
      if (!value.empty()) in.Expect("'");
      return value;
    }
    case AttrType::kInts:
      return ReadList<int64_t>(in);
    case AttrType::kFloats:
      return ReadList<double>(in);
    case AttrType::kDType: {
      std::string name = in.Word();
      auto dtype = ParseDType(name);
      FLEET_CHECK(dtype.has_value(), "unknown dtype ", name);
      return static_cast<int64_t>(*dtype);
    }
  }
  return ZeroOf(type);
}

AttrDef ReadAttr(SchemaReader& in) {
  AttrDef attr{.name = in.Word()};
  in.Expect(":");
  attr.type = ParseAttrType(in.Word());
  attr.required = !in.Accept("=");
  attr.initial = attr.required ? ZeroOf(attr.type) : ReadValue(in, attr.type);
  return attr;
}

GradRule ReadGradRule(const OpDef& def, std::string_view text) {
  GradRule rule;
  if (text.empty()) return rule;
  SchemaReader in(text);
  do {
    std::string name = in.Word();
    if (in.Accept("'")) {
      rule.uses.push_back({GradSource::kOutputGrad, def.OutputSlot(name)});
    } else if (int slot = def.InputSlot(name); slot >= 0) {
      rule.uses.push_back({GradSource::kInput, slot});
    } else {
      rule.uses.push_back({GradSource::kOutput, def.OutputSlot(name)});
    }
    FLEET_CHECK(rule.uses.back().slot >= 0, def.name,
                ": gradient uses unknown slot ", name);
  } while (in.Accept(","));
  in.Expect("->");
  do {
    std::string name = in.Word();
    in.Expect("'");
    rule.gives.push_back(def.InputSlot(name));
    FLEET_CHECK(rule.gives.back() >= 0, def.name,
                ": gradient of unknown input ", name);
  } while (in.Accept(","));
  FLEET_CHECK(in.Done(), "trailing text in gradient rule: ", text);
  return rule;
}

template <class List>
int IndexByName(const List& list, std::string_view name) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

std::string ToString(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

std::string ToString(const TensorType& type) {
  return std::string(Name(type.dtype)) + " " + ToString(type.dims);
}

const TensorType& OpTypes::in(std::string_view slot) const {
  FLEET_CHECK(has(slot), def_.name, ": shape rule reads absent ", slot);
  return inputs_[def_.InputSlot(slot)][0];
}

bool OpTypes::has(std::string_view slot) const {
  int index = def_.InputSlot(slot);
  FLEET_CHECK(index >= 0, def_.name, " has no input ", slot);
  return !inputs_[index].empty();
}

std::span<const TensorType> OpTypes::list(std::string_view slot) const {
  int index = def_.InputSlot(slot);
  FLEET_CHECK(index >= 0, def_.name, " has no input ", slot);
  return inputs_[index];
}

const Attr& OpTypes::attr_value(std::string_view name) const {
  int index = def_.AttrIndex(name);
  FLEET_CHECK(index >= 0, def_.name, " has no attribute ", name);
  return attrs_[index];
}

int OpDef::InputSlot(std::string_view name) const {
  return IndexByName(inputs, name);
}
int OpDef::OutputSlot(std::string_view name) const {
  return IndexByName(outputs, name);
}
int OpDef::AttrIndex(std::string_view name) const {
  return IndexByName(attrs, name);
}

Attrs OpDef::DefaultAttrs() const {
  Attrs values;
  values.reserve(attrs.size());
  for (const AttrDef& attr : attrs) values.push_back(attr.initial);
  return values;
}

Result<std::vector<TensorType>> OpDef::InferTypes(const OpTypes& types) const {
  Result<std::vector<TensorType>> inferred = shape(types);
  if (inferred.ok()) return inferred;
  std::string given;
  for (const SlotDef& slot : inputs) {
    for (const TensorType& type : types.list(slot.name)) {
      given += (given.empty() ? "" : ", ") + slot.name + " " + ToString(type);
    }
  }
  return inferred.status().WithContext(name + "(" + given + ")");
}

OpDef& OpRegistry::Add(std::string_view schema, ShapeRule shape,
                       std::string_view grad) {
  auto def = std::make_unique<OpDef>();
  SchemaReader in(schema);
  def->name = in.Word();
  def->shape = std::move(shape);
  in.Expect("(");
  while (!in.Accept(")")) {
    if (in.Accept(";")) {
      while (!in.Accept(")")) {
        def->attrs.push_back(ReadAttr(in));
        in.Accept(",");
      }
      break;
    }
    def->inputs.push_back(ReadSlot(in));
    in.Accept(",");
  }
  in.Expect("->");
  do {
    def->outputs.push_back(ReadSlot(in));
  } while (in.Accept(","));
  FLEET_CHECK(in.Done(), "trailing text in schema: ", schema);
  def->grad = ReadGradRule(*def, grad);
  auto [it, added] = defs_.emplace(def->name, std::move(def));
  FLEET_CHECK(added, "op defined twice: ", it->first);
  return *it->second;
}

void OpRegistry::Define(std::string_view schema, ShapeRule shape,
                        std::string_view grad) {
  Add(schema, std::move(shape), grad);
}

void OpRegistry::DefineExternal(std::string_view schema, ShapeRule shape,
                                std::string_view grad) {
  Add(schema, std::move(shape), grad).external = true;
}

const OpDef* OpRegistry::Find(std::string_view name) const {
  auto it = defs_.find(name);
  return it == defs_.end() ? nullptr : it->second.get();
}

std::vector<const OpDef*> OpRegistry::All() const {
  std::vector<const OpDef*> all;
  all.reserve(defs_.size());
  for (const auto& [name, def] : defs_) all.push_back(def.get());
  return all;
}

}  // namespace fleet::program
