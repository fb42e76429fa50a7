// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fleet/program/text.h"
#include "fleet/program/text_words.h"

namespace fleet::program {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text), rest_(text) {}

  Result<std::unique_ptr<Program>> Run() {
    auto program = std::make_unique<Program>();
    for (int index = 0; SkipSpace(), !rest_.empty(); ++index) {
      RETURN_IF_ERROR(ReadBlock(*program, index));
    }
    return program;
  }

 private:
  // ---- words

  bool Accept(std::string_view token) {
    SkipSpace();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  Status Expect(std::string_view token) {
    return Accept(token) ? OkStatus() : Wrong(base::Concat("'", token, "'"));
  }

  Status Wrong(const std::string& expected) const {
    const std::string_view before =
        text_.substr(0, text_.size() - rest_.size());
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    return InvalidArgument("line ", line, ": expected ", expected, " before '",
                           rest_.substr(0, rest_.find('\n')), "'");
  }

  void SkipSpace() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])))
      rest_.remove_prefix(1);
  }

  // Up to the next character that cannot be part of a word.
  std::string Word() {
    SkipSpace();
    const size_t n = rest_.find_first_of(" \n\t=,:()[]{}'");
    std::string word(rest_.substr(0, n));
    rest_.remove_prefix(word.size());
    return word;
  }

  template <class T>
  Result<T> NumberOf(const std::string& word) const {
    T value{};
    auto [end, error] =
        std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc() && end == word.data() + word.size()) return value;
    return Wrong("a number, not '" + word + "',");
  }

  Result<std::string> String() {
    RETURN_IF_ERROR(Expect("'"));
    std::string out;
    while (!rest_.empty() && rest_[0] != '\'') {
      if (rest_[0] != '\\') {
        out += rest_[0];
        rest_.remove_prefix(1);
        continue;
      }
      const char c = rest_.size() > 1 ? rest_[1] : '\0';
      if (c == 'x') {
        int byte = 0;
        const std::string_view digits = rest_.substr(2, 2);
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
        out += static_cast<char>(byte);
        rest_.remove_prefix(std::min<size_t>(4, rest_.size()));
      } else {
        out += c == 'n' ? '\n' : c;
        rest_.remove_prefix(std::min<size_t>(2, rest_.size()));
      }
    }
    RETURN_IF_ERROR(Expect("'"));
    return out;
  }

  // ---- parts

  Status ReadBlock(Program& program, int index) {
    RETURN_IF_ERROR(Expect("{"));
    int parent = index == 0 ? -1 : 0;
    int forward = -1;
    if (Accept("// block")) {
      ASSIGN_OR_RETURN(int number, NumberOf<int>(Word()));
      if (number != index) return Wrong("block " + std::to_string(index));
      if (Accept(", parent")) {
        ASSIGN_OR_RETURN(parent, NumberOf<int>(Word()));
      }
      if (Accept(", forward")) {
        ASSIGN_OR_RETURN(forward, NumberOf<int>(Word()));
      }
    }
    if (index > 0 && (parent < 0 || parent >= index)) {
      return Wrong("a parent that comes before");
    }
    Block& block = index == 0 ? program.block(0) : program.AddBlock(parent);
    block.set_forward_block(forward);
    while (!Accept("}")) {
      SkipSpace();
      if (rest_.empty()) return Wrong("'}'");
      if (rest_[0] == '{') {
        ASSIGN_OR_RETURN(Operation op, ReadOperation());
        block.Append(std::move(op));
      } else {
        ASSIGN_OR_RETURN(Variable variable, ReadVariable());
        block.AddVariable(std::move(variable));
      }
    }
    return OkStatus();
  }

  Result<Variable> ReadVariable() {
    Variable variable;
    variable.trainable = false;
    for (std::string word = Word();; word = Word()) {
      if (word == "var") {
        variable.trainable = true;  // as a variable that is no parameter
        break;
      }
      if (word == "param") {
        variable.is_parameter = true;
        break;
      }
      if (word == "persist") {
        variable.persistable = true;
      } else if (word == "trainable") {
        variable.trainable = true;
      } else {
        return Wrong("a variable or an operation, not '" + word + "',");
      }
    }
    variable.name = Word();
    if (variable.name.empty()) return Wrong("a name");
    RETURN_IF_ERROR(Expect(":"));
    return ReadProperties(std::move(variable));
  }

  // LOD_TENSOR.shape(-1, 4).dtype(float32) up to the end of the line.
  Result<Variable> ReadProperties(Variable variable) {
    std::string kind = UpToPoint();
    bool found = false;
    for (const auto& [value, name] : kKinds) {
      if (name != kind) continue;
      variable.kind = value;
      found = true;
    }
    if (!found) return Wrong("a kind of variable, not '" + kind + "',");
    while (!rest_.empty() && rest_[0] == '.') {
      rest_.remove_prefix(1);
      const std::string property = Word();
      RETURN_IF_ERROR(Expect("("));
      std::vector<std::string> words;
      while (!Accept(")")) {
        words.push_back(Word());
        Accept(",");
        if (rest_.empty()) return Wrong("')'");
      }
      RETURN_IF_ERROR(SetProperty(variable, property, words));
    }
    return variable;
  }

  std::string UpToPoint() {
    SkipSpace();
    const size_t n = rest_.find_first_of(". \n");
    std::string word(rest_.substr(0, n));
    rest_.remove_prefix(word.size());
    return word;
  }

  Status SetProperty(Variable& variable, const std::string& property,
                     const std::vector<std::string>& words) {
    if (property == "shape") {
      for (const std::string& word : words) {
        ASSIGN_OR_RETURN(int64_t dim, NumberOf<int64_t>(word));
        variable.type.dims.push_back(dim);
      }
      return OkStatus();
    }
    if (words.size() != 1) return Wrong("one value for " + property);
    if (property == "dtype") {
      std::optional<DType> dtype = ParseDType(words[0]);
      if (!dtype.has_value()) return Wrong("an element type");
      variable.type.dtype = *dtype;
    } else if (property == "lod_level") {
      ASSIGN_OR_RETURN(variable.lod_level, NumberOf<int>(words[0]));
    } else if (property == "lod") {
      variable.lod = words[0];
    } else if (property == "stop_gradient") {
      variable.stop_gradient = words[0] == "True";
    } else if (property == "data") {
      variable.is_data = words[0] == "True";
    } else {
      return Wrong("a property, not '" + property + "',");
    }
    return OkStatus();
  }

  Result<Slots> ReadSlots() {
    RETURN_IF_ERROR(Expect("{"));
    Slots slots;
    while (!Accept("}")) {
      Slot slot{.name = Word()};
      RETURN_IF_ERROR(Expect("="));
      RETURN_IF_ERROR(Expect("["));
      while (!Accept("]")) {
        ASSIGN_OR_RETURN(std::string name, String());
        slot.arguments.push_back(std::move(name));
        Accept(",");
      }
      slots.push_back(std::move(slot));
      Accept(",");
      if (rest_.empty()) return Wrong("'}'");
    }
    return slots;
  }

  Result<Operation> ReadOperation() {
    Operation op;
    ASSIGN_OR_RETURN(op.outputs, ReadSlots());
    RETURN_IF_ERROR(Expect("="));
    op.type = Word();
    if (op.type.empty()) return Wrong("the name of an op");
    RETURN_IF_ERROR(Expect("("));
    RETURN_IF_ERROR(Expect("inputs="));
    ASSIGN_OR_RETURN(op.inputs, ReadSlots());
    while (Accept(",")) {
      const std::string name = Word();
      RETURN_IF_ERROR(Expect("="));
      ASSIGN_OR_RETURN(AttrValue value, ReadValue());
      op.attrs.insert_or_assign(name, std::move(value));
    }
    RETURN_IF_ERROR(Expect(")"));
    if (Accept("// at ")) {
      op.made_at = std::string(rest_.substr(0, rest_.find('\n')));
      rest_.remove_prefix(op.made_at.size());
    }
    return op;
  }

  static bool IsReal(const std::string& word) {
    return word.find_first_of(".e") != std::string::npos ||
           word.ends_with("inf") || word == "nan";
  }

  Result<AttrValue> ReadValue() {
    SkipSpace();
    if (rest_.starts_with("'")) {
      ASSIGN_OR_RETURN(std::string text, String());
      return AttrValue{AttrKind::kString, std::move(text)};
    }
    if (rest_.starts_with("[")) return ReadList(std::nullopt);
    const std::string word = Word();
    if (word == "True" || word == "False") {
      return AttrValue{AttrKind::kBool, word == "True"};
    }
    if (std::optional<AttrKind> kind = KindIn(kListKinds, word)) {
      return ReadList(kind);
    }
    if (std::optional<AttrKind> kind = KindIn(kSaidKinds, word)) {
      return ReadSaid(*kind);
    }
    if (IsReal(word)) {
      ASSIGN_OR_RETURN(double value, NumberOf<double>(word));
      return AttrValue{AttrKind::kFloat, value};
    }
    ASSIGN_OR_RETURN(int64_t value, NumberOf<int64_t>(word));
    return AttrValue{AttrKind::kInt, value};
  }

  Result<AttrValue> ReadSaid(AttrKind kind) {
    switch (kind) {
      case AttrKind::kLong:
      case AttrKind::kBlock: {
        RETURN_IF_ERROR(Expect(kind == AttrKind::kLong ? "(" : "["));
        ASSIGN_OR_RETURN(int64_t value, NumberOf<int64_t>(Word()));
        RETURN_IF_ERROR(Expect(kind == AttrKind::kLong ? ")" : "]"));
        return AttrValue{kind, value};
      }
      case AttrKind::kFloat64: {
        RETURN_IF_ERROR(Expect("("));
        ASSIGN_OR_RETURN(double value, NumberOf<double>(Word()));
        RETURN_IF_ERROR(Expect(")"));
        return AttrValue{kind, value};
      }
      default:
        return ReadList(kind);
    }
  }

  Result<AttrValue> ReadList(std::optional<AttrKind> kind) {
    RETURN_IF_ERROR(Expect("["));
    std::vector<std::string> words;
    while (!Accept("]")) {
      SkipSpace();
      if (rest_.starts_with("'")) {
        if (!kind.has_value()) kind = AttrKind::kStrings;
        ASSIGN_OR_RETURN(std::string text, String());
        words.push_back(std::move(text));
      } else {
        words.push_back(Word());
      }
      Accept(",");
      if (rest_.empty()) return Wrong("']'");
    }
    if (!kind.has_value()) {
      if (words.empty()) return Wrong("a kind for an empty list");
      kind = words[0] == "True" || words[0] == "False" ? AttrKind::kBools
             : IsReal(words[0])                        ? AttrKind::kFloats
                                                       : AttrKind::kInts;
    }
    return MakeList(*kind, std::move(words));
  }

  Result<AttrValue> MakeList(AttrKind kind, std::vector<std::string> words) {
    switch (kind) {
      case AttrKind::kStrings:
        return AttrValue{kind, std::move(words)};
      case AttrKind::kBools: {
        std::vector<bool> flags;
        flags.reserve(words.size());
        for (const std::string& word : words) flags.push_back(word == "True");
        return AttrValue{kind, std::move(flags)};
      }
      case AttrKind::kFloats:
      case AttrKind::kFloat64s: {
        std::vector<double> reals;
        for (const std::string& word : words) {
          ASSIGN_OR_RETURN(double value, NumberOf<double>(word));
          reals.push_back(value);
        }
        return AttrValue{kind, std::move(reals)};
      }
      default: {
        std::vector<int64_t> wholes;
        for (const std::string& word : words) {
          ASSIGN_OR_RETURN(int64_t value, NumberOf<int64_t>(word));
          wholes.push_back(value);
        }
        return AttrValue{kind, std::move(wholes)};
      }
    }
  }

  const std::string_view text_;
  std::string_view rest_;
};

}  // namespace

Result<std::unique_ptr<Program>> ParseText(std::string_view text) {
  return Reader(text).Run();
}

}  // namespace fleet::program
