// SPDX-License-Identifier: Apache-2.0

// Writes Python modules of what the definitions of ops say about their faces,
// into a folder; the build runs it. A face is a text:
//
//   tensor.math.add(x|number, y|number, name); add_
//   nn.functional.activation.gelu(x, approximate, name); GELU
//   tensor.search.sort(x, axis, descending, name) -> Out
//   tensor.creation.tril(x, diagonal, lower:=True, name)
//   nn.functional.activation.softmax(x, axis, name) by hand; Softmax
//
// First the function: its module in paddle, its name, its parameters. A
// parameter stands for the slot or attribute of its own name, whatever the
// case, else for the first that is left; its default is the attribute's, unless
// it gives one. `name` is Paddle's and means nothing; `out` takes the result;
// x|number may be a number beside a tensor; lower:=True is no parameter, but
// what the op is always given. An arrow names the one output that is returned.
// A function that does more is there by hand. Then the twin that works in
// place, with a `_` at its end, and the layer, in the module of paddle.nn.layer
// that is called as that of the function. A layer's parameters are those of the
// function that are no tensors, unless it lists others.
//
// The modules of the package take the generated ones of their names by a star,
// and what is generated says that it is theirs.

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/check.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/op_def.h"

namespace fleet::python {
namespace {

using program::AttrDef;
using program::AttrType;
using program::OpDef;
using program::SlotDef;

constexpr size_t kLineWidth = 88;

// ---- the text of a face

struct Parameter {
  std::string name;
  std::optional<std::string> initial;  // the default, if the face gives one
  bool number = false;                 // may be a number
  bool fixed = false;                  // is `initial`, and no parameter
};

struct Call {
  std::string name;
  std::optional<std::vector<Parameter>> parameters;
};

struct Face {
  std::string module;  // "tensor.math"
  Call function;
  std::string output;  // empty: all
  bool by_hand = false;
  std::string twin;  // empty: none
  std::optional<Call> layer;
};

class FaceReader {
 public:
  explicit FaceReader(std::string_view text) : text_(text), rest_(text) {}

  Face Read() {
    Face face;
    face.function = ReadCall();
    const size_t dot = face.function.name.rfind('.');
    FLEET_CHECK(dot != std::string::npos && face.function.parameters,
                "a face begins with a function of a module: ", text_);
    face.module = face.function.name.substr(0, dot);
    face.function.name.erase(0, dot + 1);
    if (Accept("->")) face.output = Word();
    face.by_hand = Accept("by hand");
    while (Accept(";")) {
      Call call = ReadCall();
      if (call.name.ends_with('_')) {
        face.twin = call.name;
      } else {
        face.layer = std::move(call);
      }
    }
    FLEET_CHECK(rest_.empty(), "'", rest_, "' in the face ", text_);
    return face;
  }

 private:
  Call ReadCall() {
    Call call{.name = Word(), .parameters = {}};
    if (!Accept("(")) return call;
    call.parameters.emplace();
    while (!Accept(")")) {
      Parameter parameter{.name = Word()};
      if (Accept("|number")) parameter.number = true;
      parameter.fixed = Accept(":=");
      if (parameter.fixed || Accept("=")) parameter.initial = Until(",)");
      call.parameters->push_back(std::move(parameter));
      Accept(",");
    }
    return call;
  }

  bool Accept(std::string_view token) {
    SkipSpace();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::string Word() {
    SkipSpace();
    size_t n = 0;
    while (n < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[n])) ||
            rest_[n] == '_' || rest_[n] == '.')) {
      ++n;
    }
    FLEET_CHECK(n > 0, "expected a name before '", rest_, "' in ", text_);
    return Take(n);
  }

  std::string Until(std::string_view ends) {
    const size_t n = rest_.find_first_of(ends);
    FLEET_CHECK(n != rest_.npos && n > 0, "expected a default in ", text_);
    return Take(n);
  }

  std::string Take(size_t n) {
    std::string taken(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return taken;
  }

  void SkipSpace() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }

  std::string_view text_;
  std::string_view rest_;
};

// ---- Python

std::string LowerCase(std::string text) {
  for (char& c : text) c = std::tolower(static_cast<unsigned char>(c));
  return text;
}

std::string Number(double value) {
  char text[40];
  std::string number(text, std::to_chars(text, text + sizeof text, value).ptr);
  return number.find_first_of(".en") == number.npos ? number + ".0" : number;
}

// The default of an attribute as Python writes it.
std::string Literal(const AttrDef& attr) {
  switch (attr.type) {
    case AttrType::kBool:
      return std::get<bool>(attr.initial) ? "True" : "False";
    case AttrType::kInt:
      return std::to_string(std::get<int64_t>(attr.initial));
    case AttrType::kFloat:
      return Number(std::get<double>(attr.initial));
    case AttrType::kString:
      return '"' + std::get<std::string>(attr.initial) + '"';
    case AttrType::kInts:
    case AttrType::kFloats:
    case AttrType::kDType:
      return "None";  // the op takes it as its default
  }
  return "";
}

std::string TypeOf(AttrType type) {
  switch (type) {
    case AttrType::kBool:
      return "bool";
    case AttrType::kInt:
      return "int";
    case AttrType::kFloat:
      return "float";
    case AttrType::kString:
      return "str";
    case AttrType::kInts:
      return "int | list[int] | tuple[int, ...]";
    case AttrType::kFloats:
      return "float | list[float] | tuple[float, ...]";
    case AttrType::kDType:
      return "str | DType";
  }
  return "";
}

std::string TypeOf(const SlotDef& slot) {
  return slot.variadic ? "list[Tensor]" : "Tensor";
}

void AddTo(std::string& list, const std::string& item) {
  if (!list.empty()) list += ", ";
  list += item;
}

// `text` as the documentation of what is indented by `indent`.
std::string Documentation(const std::string& text, size_t indent) {
  const std::string margin(indent, ' ');
  std::string out, line = margin + "\"\"\"";
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (line.size() + 1 + word.size() + 3 > kLineWidth) {
      out += line + "\n";
      line = margin + word;
    } else {
      line += begin == 0 ? word : " " + word;
    }
    begin = end + 1;
  }
  return out + line + "\"\"\"\n";
}

// A parameter of a function, and what it stands for in the op.
struct Argument {
  Parameter parameter;
  const SlotDef* slot = nullptr;
  const AttrDef* attr = nullptr;
  std::string type;
  std::optional<std::string> initial;

  const std::string& name() const { return parameter.name; }
  bool IsForOp() const { return slot != nullptr || attr != nullptr; }
  bool IsGiven() const { return IsForOp() && !parameter.fixed; }

  std::string Declared() const {
    std::string text = name() + ": " + type;
    if (!initial) return text;
    if (*initial == "None") text += " | None";
    return text + " = " + *initial;
  }
};

// What is written of one module.
struct Module {
  std::set<std::string> imports;
  std::vector<std::string> names;
  std::map<std::string, std::string> ops;  // by the name they get here
  std::string body;
};

class FunctionWriter {
 public:
  FunctionWriter(const OpDef& def, const program::PythonFace& face,
                 std::map<std::string, Module>& modules)
      : def_(def),
        face_(FaceReader(face.names).Read()),
        help_(face.help),
        modules_(modules) {
    Match();
  }

  void Write() {
    if (!face_.by_hand) WriteFunction();
    if (!face_.twin.empty()) WriteTwin();
    if (face_.layer) WriteLayer();
  }

 private:
  size_t NumPlaces() const { return def_.inputs.size() + def_.attrs.size(); }

  const std::string& NameAt(size_t place) const {
    return place < def_.inputs.size()
               ? def_.inputs[place].name
               : def_.attrs[place - def_.inputs.size()].name;
  }

  // Finds the place in the op that each parameter stands for.
  void Match() {
    for (const Parameter& parameter : *face_.function.parameters) {
      arguments_.push_back({.parameter = parameter,
                            .type = "Tensor",
                            .initial = parameter.initial});
    }
    places_.assign(NumPlaces(), nullptr);
    std::vector<Argument*> others;
    for (Argument& argument : arguments_) {
      size_t place = 0;
      while (place < NumPlaces() &&
             LowerCase(NameAt(place)) != LowerCase(argument.name())) {
        ++place;
      }
      if (place < NumPlaces()) {
        Take(place, argument);
      } else if (argument.name() == "name" || argument.name() == "out") {
        argument.type = argument.name() == "name" ? "str" : "Tensor";
        argument.initial = "None";
      } else {
        others.push_back(&argument);
      }
    }
    for (Argument* argument : others) {
      const auto free = std::find(places_.begin(), places_.end(), nullptr);
      FLEET_CHECK(free != places_.end(), def_.name, ": nothing is left for ",
                  argument->name());
      Take(free - places_.begin(), *argument);
    }
  }

  void Take(size_t place, Argument& argument) {
    FLEET_CHECK(places_[place] == nullptr, def_.name, ": two parameters are ",
                NameAt(place));
    places_[place] = &argument;
    if (place < def_.inputs.size()) {
      argument.slot = &def_.inputs[place];
      argument.type = TypeOf(*argument.slot);
      if (argument.parameter.number) argument.type += " | float";
      if (argument.slot->optional && !argument.initial) {
        argument.initial = "None";
      }
      return;
    }
    argument.attr = &def_.attrs[place - def_.inputs.size()];
    argument.type = TypeOf(argument.attr->type);
    if (!argument.attr->required && !argument.initial) {
      argument.initial = Literal(*argument.attr);
    }
  }

  std::string Declared() const {
    std::string list;
    for (const Argument& argument : arguments_) {
      if (!argument.parameter.fixed) AddTo(list, argument.Declared());
    }
    return list;
  }

  std::string Returned() const {
    const auto& outputs = def_.outputs;
    if (outputs.size() == 1) return TypeOf(outputs[0]);
    if (!face_.output.empty()) {
      return TypeOf(outputs[def_.OutputSlot(face_.output)]);
    }
    std::string list;
    for (const SlotDef& slot : outputs) AddTo(list, TypeOf(slot));
    return "tuple[" + list + "]";
  }

  // The argument as the op takes it.
  std::string Given(const Argument& argument, Module& module) const {
    if (argument.parameter.fixed) return *argument.initial;
    if (argument.attr == nullptr) return argument.name();
    if (argument.attr->type == AttrType::kDType) {
      module.imports.insert("from paddle._core import DType");
      module.imports.insert("from paddle.framework.dtype import convert");
      return "convert(" + argument.name() + ")";
    }
    if (argument.attr->type == AttrType::kInts && argument.name() == "axis" &&
        argument.initial == "None") {
      module.imports.insert("from paddle.tensor.axis import axes_of");
      return "axes_of(\"" + face_.function.name + "\", axis)";
    }
    return argument.name();
  }

  void WriteFunction() {
    Module& module = modules_[face_.module];
    const std::string& name = face_.function.name;
    module.names.push_back(name);
    module.imports.insert("from paddle import _ops");
    module.imports.insert("from paddle._core import Tensor");
    const std::string op = "_" + def_.name;
    module.ops[op] = def_.name;

    size_t used = NumPlaces();
    while (used > 0 && places_[used - 1] == nullptr) --used;
    std::string given, numbers, tests;
    for (size_t i = 0; i < used; ++i) {
      AddTo(given, places_[i] ? Given(*places_[i], module) : "None");
    }
    for (const Argument& argument : arguments_) {
      if (!argument.parameter.number) continue;
      AddTo(numbers, argument.name());
      tests += (tests.empty() ? "" : " and ") + std::string("isinstance(") +
               argument.name() + ", Tensor)";
    }
    module.body += "def " + name + "(" + Declared() + ") -> " + Returned() +
                   ":\n" + Documentation(help_, 4);
    if (!numbers.empty()) {
      module.imports.insert("from paddle.tensor.operand import operands");
      module.body += "    if not (" + tests + "):\n        " + numbers +
                     " = operands(\"" + name + "\", " + numbers + ")\n";
    }
    std::string result = op + "(" + given + ")";
    if (!face_.output.empty()) {
      const int slot = def_.OutputSlot(face_.output);
      FLEET_CHECK(slot >= 0, def_.name, " has no output ", face_.output);
      result += "[" + std::to_string(slot) + "]";
    }
    if (FindArgument("out") != nullptr && !FindArgument("out")->IsForOp()) {
      module.imports.insert("from paddle.tensor.operand import give");
      result = "give(" + result + ", out)";
    }
    module.body += "    return " + result + "\n\n\n";
  }

  void WriteTwin() {
    const bool is_method = face_.module.starts_with("tensor.");
    Module& module = modules_[is_method ? "tensor.inplace" : face_.module];
    const std::string& function = face_.function.name;
    module.names.push_back(face_.twin);
    module.imports.insert("from paddle._core import Tensor");
    module.imports.insert("from paddle.tensor.twin import change");
    std::string called = function;
    if (is_method) {
      const std::string from =
          face_.module.substr(std::string("tensor.").size());
      module.imports.insert("from paddle.tensor import " + from);
      called = from + "." + function;
    }
    std::string given;
    for (const Argument& argument : arguments_) {
      if (argument.IsGiven()) AddTo(given, argument.name());
    }
    module.body += "def " + face_.twin + "(" + Declared() +
                   ") -> Tensor:\n    \"\"\"As " + function +
                   "(), in place.\"\"\"\n    return change(\"" + face_.twin +
                   "\", " + called + ", " + given + ")\n\n\n";
  }

  void WriteLayer() {
    const std::string group = face_.module.substr(face_.module.rfind('.') + 1);
    Module& module = modules_["nn.layer." + group];
    module.names.push_back(face_.layer->name);
    module.imports.insert("from paddle._core import Tensor");
    module.imports.insert("from paddle.nn import functional as F");

    std::vector<const Argument*> held;
    if (face_.layer->parameters) {
      for (const Parameter& parameter : *face_.layer->parameters) {
        const Argument* argument = FindArgument(parameter.name);
        FLEET_CHECK(argument != nullptr, face_.function.name, " has no ",
                    parameter.name);
        held.push_back(argument);
      }
    } else {
      for (const Argument& argument : arguments_) {
        const bool fixed = argument.parameter.fixed;
        if (argument.slot == nullptr && !fixed) held.push_back(&argument);
      }
    }
    const auto is_held = [&held](const Argument& argument) {
      return std::find(held.begin(), held.end(), &argument) != held.end();
    };
    // A loss looks at its reduction when it is made.
    const Argument* reduction = FindArgument("reduction");
    const bool is_loss = reduction != nullptr && is_held(*reduction);
    const std::string base = is_loss ? "OfLoss" : "OfFunction";
    module.imports.insert("from paddle.nn.layer.of_function import " + base);
    std::string declared = "self", kept, names, inputs = "self", given;
    for (const Argument* argument : held) {
      AddTo(declared, argument->Declared());
      if (!argument->IsForOp()) continue;
      kept +=
          "        self." + argument->name() + " = " + argument->name() + "\n";
      names += "\"" + argument->name() + "\", ";
    }
    for (const Argument& argument : arguments_) {
      if (is_held(argument)) {
        if (!argument.IsForOp()) continue;
        AddTo(given, argument.name() + "=self." + argument.name());
      } else if (argument.slot != nullptr) {
        AddTo(inputs, argument.Declared());
        AddTo(given, argument.name());
      }
    }
    module.body += "class " + face_.layer->name + "(" + base + "):\n" +
                   Documentation(help_, 4) + "\n";
    if (!names.empty() && !is_loss) {
      module.body += "    _ARGUMENTS = (" + names + ")\n\n";
    }
    module.body += "    def __init__(" + declared + ") -> None:\n" +
                   "        super().__init__(" + (is_loss ? "reduction" : "") +
                   ")\n" + kept + "\n    def forward(" + inputs + ") -> " +
                   Returned() + ":\n        return F." + face_.function.name +
                   "(" + given + ")\n\n\n";
  }

  const Argument* FindArgument(std::string_view name) const {
    for (const Argument& argument : arguments_) {
      if (argument.name() == name) return &argument;
    }
    return nullptr;
  }

  const OpDef& def_;
  const Face face_;
  const std::string& help_;
  std::map<std::string, Module>& modules_;
  std::vector<Argument> arguments_;
  std::vector<Argument*> places_;  // slots, then attributes
};

std::string TextOf(const std::string& name, const Module& module) {
  std::string text =
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Generated from the definitions of ops in fleet/program.\n"
      "from __future__ import annotations\n\n";
  for (const std::string& line : module.imports) text += line + "\n";
  text += "\n# What is below is part of this module.\n__name__ = \"paddle." +
          name + "\"\n\n__all__ = [\n";
  for (const std::string& one : module.names) text += "    \"" + one + "\",\n";
  text += "]\n\n";
  for (const auto& [known, op] : module.ops) {
    text += known + " = _ops." + op + "\n";
  }
  text += "\n\n" + module.body;
  text.pop_back();
  text.pop_back();
  return text;
}

bool WriteTo(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text << std::flush;
  if (!out) std::cerr << file.string() << " cannot be written\n";
  return static_cast<bool>(out);
}

bool WriteModules(const std::filesystem::path& folder) {
  program::OpRegistry ops;
  std::vector<program::PythonFace> faces;
  program::DefineAllOps(ops, &faces);
  std::map<std::string, Module> modules;
  for (const program::PythonFace& face : faces) {
    FunctionWriter(*ops.Find(face.op), face, modules).Write();
  }
  bool good = WriteTo(folder / "__init__.py",
                      "# SPDX-License-Identifier: Apache-2.0\n");
  for (const auto& [name, module] : modules) {
    std::string file = name + ".py";
    std::replace(file.begin(), file.end() - 3, '.', '_');
    good = WriteTo(folder / file, TextOf(name, module)) && good;
  }
  return good;
}

}  // namespace
}  // namespace fleet::python

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: generate_functions FOLDER\n";
    return 2;
  }
  return fleet::python::WriteModules(argv[1]) ? 0 : 1;
}
