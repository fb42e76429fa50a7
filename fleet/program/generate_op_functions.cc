// SPDX-License-Identifier: Apache-2.0

// Writes the builder's functions of single ops, op_functions.h and
// op_functions.cc, into a folder; the build runs it. What they look like is
// said in docs/design/0017-programs-from-cpp.md.

#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/check.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/lod.h"
#include "fleet/program/op_def.h"

namespace fleet::program {
namespace {

// Ops that run a block, and those that update a parameter in place, have no
// function of their own: control flow in builder.h and plan/minimize.h append
// them.
bool HasFunction(const OpDef& def) {
  return def.name != "conditional_block" && def.name != "while" &&
         def.OutputSlot("ParamOut") < 0;
}

bool IsUpper(char c) { return std::isupper(static_cast<unsigned char>(c)); }
char Lower(char c) { return std::tolower(static_cast<unsigned char>(c)); }
char Upper(char c) { return std::toupper(static_cast<unsigned char>(c)); }

// "softmax_with_cross_entropy" -> "SoftmaxWithCrossEntropy"
std::string CamelCase(std::string_view name) {
  std::string camel;
  bool begins = true;
  for (char c : name) {
    if (c != '_') camel += begins ? Upper(c) : c;
    begins = c == '_';
  }
  return camel;
}

// "XNorm" -> "x_norm", "Beta1PowOut" -> "beta1_pow_out", "UPLO" -> "uplo"
std::string SnakeCase(std::string_view name) {
  std::string snake;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool after_lower = i > 0 && !IsUpper(name[i - 1]);
    const bool before_lower =
        i + 1 < name.size() && name[i + 1] != '_' && !IsUpper(name[i + 1]);
    if (i > 0 && IsUpper(name[i]) && name[i - 1] != '_' &&
        (after_lower || before_lower)) {
      snake += '_';
    }
    snake += Lower(name[i]);
  }
  return snake;
}

std::string Number(double value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  std::string number(text, end);
  return number.find_first_of(".e") == number.npos ? number + ".0" : number;
}

template <class T, class Print>
std::string Braced(const std::vector<T>& values, Print print) {
  std::string text = "{";
  for (const T& value : values) {
    if (text.size() > 1) text += ", ";
    text += print(value);
  }
  return text + "}";
}

std::string TypeOf(AttrType type) {
  switch (type) {
    case AttrType::kBool:
      return "bool";
    case AttrType::kInt:
      return "int64_t";
    case AttrType::kFloat:
      return "double";
    case AttrType::kString:
      return "std::string";
    case AttrType::kInts:
      return "std::vector<int64_t>";
    case AttrType::kFloats:
      return "std::vector<double>";
    case AttrType::kDType:
      return "DType";
  }
  return "";
}

std::string DefaultOf(const AttrDef& attr) {
  switch (attr.type) {
    case AttrType::kBool:
      return std::get<bool>(attr.initial) ? "true" : "false";
    case AttrType::kInt:
      return std::to_string(std::get<int64_t>(attr.initial));
    case AttrType::kFloat:
      return Number(std::get<double>(attr.initial));
    case AttrType::kString:
      return '"' + std::get<std::string>(attr.initial) + '"';
    case AttrType::kInts:
      return Braced(std::get<std::vector<int64_t>>(attr.initial),
                    [](int64_t n) { return std::to_string(n); });
    case AttrType::kFloats:
      return Braced(std::get<std::vector<double>>(attr.initial), Number);
    case AttrType::kDType: {
      const auto dtype = static_cast<DType>(std::get<int64_t>(attr.initial));
      return "DType::k" + CamelCase(Name(dtype));
    }
  }
  return "";
}

// The parts of one function, in C++.
struct Function {
  std::string name;
  std::string parameters;  // what must be given
  std::string options;     // members of the struct of what may be left out
  std::string results;     // members of the struct of several outputs
  std::string inputs;      // the arguments of Call()
  std::string attrs;
};

void AddTo(std::string& list, const std::string& item) {
  if (!list.empty()) list += ", ";
  list += item;
}

class FunctionMaker {
 public:
  explicit FunctionMaker(const OpDef& def) : def_(def) {}

  Function Make() {
    function_.name = CamelCase(def_.name);
    for (const SlotDef& slot : def_.inputs) AddInput(slot);
    for (const AttrDef& attr : def_.attrs) AddAttr(attr);
    for (const SlotDef& slot : def_.outputs) {
      function_.results += "  " +
                           std::string(slot.variadic ? "Values " : "Value ") +
                           SnakeCase(slot.name) + ";\n";
    }
    return function_;
  }

 private:
  // A name of the function's own; that of an attribute stays as it is.
  std::string NameOfInput(const SlotDef& slot) const {
    std::string name = SnakeCase(slot.name);
    for (const AttrDef& attr : def_.attrs) {
      if (SnakeCase(attr.name) == name) return name + "_input";
    }
    return name;
  }

  void AddInput(const SlotDef& slot) {
    // Offsets of sequences go with the rows by themselves.
    if (IsLodSlot(slot.name)) return AddTo(function_.inputs, "{}");
    const std::string name = Unique(NameOfInput(slot));
    if (slot.optional) {
      function_.options += slot.variadic ? "  Values " : "  Value ";
      function_.options += name + " = {};\n";
    } else {
      AddTo(function_.parameters,
            (slot.variadic ? "const Values& " : "const Value& ") + name);
    }
    const std::string given = slot.optional ? "options." + name : name;
    AddTo(function_.inputs, slot.variadic ? given : "Values{" + given + "}");
  }

  void AddAttr(const AttrDef& attr) {
    const std::string name = Unique(SnakeCase(attr.name));
    const std::string type = TypeOf(attr.type);
    std::string given = name;
    if (attr.required) {
      AddTo(function_.parameters, type + " " + name);
    } else {
      function_.options +=
          "  " + type + " " + name + " = " + DefaultOf(attr) + ";\n";
      given = "options." + name;
    }
    if (attr.type == AttrType::kDType) {
      given = "static_cast<int64_t>(" + given + ")";
    } else if (attr.type != AttrType::kBool && attr.type != AttrType::kInt &&
               attr.type != AttrType::kFloat) {
      given = "std::move(" + given + ")";
    }
    AddTo(function_.attrs, given);
  }

  const std::string& Unique(const std::string& name) {
    const auto [place, added] = names_.insert(name);
    FLEET_CHECK(added, def_.name, ": two arguments are called ", name);
    return *place;
  }

  const OpDef& def_;
  Function function_;
  std::set<std::string> names_ = {"at", "made", "options"};
};

// What the function returns.
std::string ReturnType(const OpDef& def) {
  if (def.outputs.size() > 1) return "op::" + CamelCase(def.name) + "Result";
  return def.outputs[0].variadic ? "Values" : "Value";
}

std::string Signature(const Function& f, bool declared) {
  std::string list = f.parameters;
  if (!f.options.empty()) {
    AddTo(list,
          "op::" + f.name + "Options options" + (declared ? " = {}" : ""));
  }
  AddTo(list, std::string("Line at") + (declared ? " = Line::current()" : ""));
  return f.name + "(" + list + ")";
}

std::string Body(const OpDef& def, const Function& f) {
  std::ostringstream out;
  out << "  std::vector<Values> made = Call(\"" << def.name << "\", {"
      << f.inputs << "}, Attrs{" << f.attrs << "}, at);\n";
  const auto output = [&def](size_t i) {
    return (def.outputs[i].variadic ? "Many(made, " : "One(made, ") +
           std::to_string(i) + ")";
  };
  if (def.outputs.size() == 1) {
    out << "  return " << output(0) << ";\n";
    return out.str();
  }
  std::string list;
  for (size_t i = 0; i < def.outputs.size(); ++i) AddTo(list, output(i));
  out << "  return {" << list << "};\n";
  return out.str();
}

void WriteHeader(const std::vector<const OpDef*>& defs, std::ostream& out) {
  std::ostringstream structs, functions;
  for (const OpDef* def : defs) {
    const Function f = FunctionMaker(*def).Make();
    if (!f.options.empty()) {
      structs << "struct " << f.name << "Options {\n" << f.options << "};\n";
    }
    if (def->outputs.size() > 1) {
      structs << "struct " << f.name << "Result {\n" << f.results << "};\n";
    }
    functions << "  " << ReturnType(*def) << " " << Signature(f, true) << ";\n";
  }
  out << "// SPDX-License-Identifier: Apache-2.0\n\n"
         "// Generated from the definitions of ops: one function for each. "
         "Inputs and\n"
         "// attributes that must be given are arguments, others are members "
         "of the\n"
         "// options; several outputs are members of the result.\n\n"
         "#ifndef FLEET_PROGRAM_OP_FUNCTIONS_H_\n"
         "#define FLEET_PROGRAM_OP_FUNCTIONS_H_\n\n"
         "#include <cstdint>\n#include <string>\n"
         "#include <vector>\n\n"
         "#include \"fleet/program/building.h\"\n\n"
         "namespace fleet::program {\nnamespace op {\n\n"
      << structs.str()
      << "\n}  // namespace op\n\n"
         "// Appends single operations; a failure is kept in status().\n"
         "class Ops : public Building {\n public:\n"
         "  using Building::Building;\n\n"
      << functions.str()
      << "};\n\n}  // namespace fleet::program\n\n"
         "#endif  // FLEET_PROGRAM_OP_FUNCTIONS_H_\n";
}

void WriteSource(const std::vector<const OpDef*>& defs, std::ostream& out) {
  out << "// SPDX-License-Identifier: Apache-2.0\n"
         "#include \"fleet/program/op_functions.h\"\n\n"
         "#include <utility>\n\n"
         "namespace fleet::program {\n\n";
  for (const OpDef* def : defs) {
    const Function f = FunctionMaker(*def).Make();
    out << ReturnType(*def) << " Ops::" << Signature(f, false) << " {\n"
        << Body(*def, f) << "}\n\n";
  }
  out << "}  // namespace fleet::program\n";
}

bool WriteTo(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text << std::flush;
  if (!out) std::cerr << file.string() << " cannot be written\n";
  return static_cast<bool>(out);
}

bool WriteFunctions(const std::filesystem::path& folder) {
  OpRegistry ops;
  DefineAllOps(ops);
  std::vector<const OpDef*> defs;
  for (const OpDef* def : ops.All()) {
    if (HasFunction(*def)) defs.push_back(def);
  }
  std::ostringstream header, source;
  WriteHeader(defs, header);
  WriteSource(defs, source);
  return WriteTo(folder / "op_functions.h", header.str()) &&
         WriteTo(folder / "op_functions.cc", source.str());
}

}  // namespace
}  // namespace fleet::program

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: generate_op_functions FOLDER\n";
    return 2;
  }
  return fleet::program::WriteFunctions(argv[1]) ? 0 : 1;
}
