// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/plan/backward.h"
#include "fleet/plan/prune.h"
#include "fleet/program/control.h"
#include "fleet/program/define_ops.h"
#include "fleet/program/text.h"

namespace fleet::plan {
namespace {

using program::Attr;
using program::AttrValue;
using program::Block;
using program::kEmptyName;
using program::Operation;
using program::OpRegistry;
using program::ParseText;
using program::Program;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Runs programs on single numbers: enough to see whether gradients are right.
class Interpreter {
 public:
  explicit Interpreter(const Program& program) : program_(program) {}

  std::map<std::string, double> values;

  void Run() { RunBlock(0); }

 private:
  void RunBlock(int index) {
    const Block& block = program_.block(index);
    for (size_t i = 0; i < block.num_ops(); ++i) RunOp(block.op(i));
  }

  double In(const Operation& op, const char* slot, size_t i = 0) {
    const std::string& name = op.input(slot).at(i);
    EXPECT_TRUE(values.contains(name))
        << name << " has no value in " << ToString(op);
    return values[name];
  }
  void Out(const Operation& op, const char* slot, double value, size_t i = 0) {
    if (op.output(slot).empty()) return;
    const std::string& name = op.output(slot).at(i);
    if (name != kEmptyName) values[name] = value;
  }
  static double Attr(const Operation& op, const char* name) {
    const AttrValue* attr = op.attr(name);
    return attr == nullptr ? 1.0 : std::get<double>(attr->value);
  }
  static int Body(const Operation& op) { return BodiesOf(op).at(0); }

  void RunOp(const Operation& op) {
    const std::string& type = op.type;
    if (type == "fill_constant" || type == "fill_any_like") {
      Out(op, "Out", Attr(op, "value"));
    } else if (type == "assign") {
      Out(op, "Out", In(op, "X"));
    } else if (type == "assign_grad") {
      Out(op, "X@GRAD", In(op, "Out@GRAD"));
    } else if (type == "increment") {
      Out(op, "Out", In(op, "X") + Attr(op, "step"));
    } else if (type == "sum") {
      double total = 0;
      for (size_t i = 0; i < op.input("X").size(); ++i) total += In(op, "X", i);
      Out(op, "Out", total);
    } else if (type == "elementwise_add") {
      Out(op, "Out", In(op, "X") + In(op, "Y"));
    } else if (type == "elementwise_add_grad") {
      Out(op, "X@GRAD", In(op, "Out@GRAD"));
      Out(op, "Y@GRAD", In(op, "Out@GRAD"));
    } else if (type == "elementwise_mul") {
      Out(op, "Out", In(op, "X") * In(op, "Y"));
    } else if (type == "elementwise_mul_grad") {
      Out(op, "X@GRAD", In(op, "Out@GRAD") * In(op, "Y"));
      Out(op, "Y@GRAD", In(op, "Out@GRAD") * In(op, "X"));
    } else if (type == "sin") {
      Out(op, "Out", std::sin(In(op, "X")));
    } else if (type == "sin_grad") {
      Out(op, "X@GRAD", In(op, "Out@GRAD") * std::cos(In(op, "X")));
    } else if (type == "less_than") {
      Out(op, "Out", In(op, "X") < In(op, "Y") ? 1 : 0);
    } else if (type == "greater_than") {
      Out(op, "Out", In(op, "X") > In(op, "Y") ? 1 : 0);
    } else if (type == "logical_not") {
      Out(op, "Out", In(op, "X") != 0 ? 0 : 1);
    } else {
      RunControl(op);
    }
  }

  void RunControl(const Operation& op) {
    const std::string& type = op.type;
    if (type == "conditional_block") {
      if (In(op, "Cond") != 0) RunBlock(Body(op));
    } else if (type == "while") {
      for (int turns = 0; In(op, "Condition") != 0; ++turns) {
        ASSERT_LT(turns, 100);
        RunBlock(Body(op));
      }
    } else if (type == "select_input") {
      Out(op, "Out", In(op, "X", static_cast<size_t>(In(op, "Mask"))));
    } else if (type == "select_output") {
      for (const std::string& name : op.output("Out")) values.erase(name);
      Out(op, "Out", In(op, "X"), static_cast<size_t>(In(op, "Mask")));
    } else if (type == "write_to_array") {
      std::vector<std::optional<double>>& array = arrays_[op.output("Out")[0]];
      const auto place = static_cast<size_t>(In(op, "I"));
      if (array.size() <= place) array.resize(place + 1);
      array[place].reset();
      auto found = values.find(op.input("X")[0]);
      if (found != values.end()) array[place] = found->second;
    } else if (type == "read_from_array") {
      const auto& element =
          arrays_[op.input("X")[0]].at(static_cast<size_t>(In(op, "I")));
      values.erase(op.output("Out")[0]);
      if (element.has_value()) Out(op, "Out", *element);
    } else if (type == "add_to_array") {
      std::vector<std::optional<double>>& array = arrays_[op.output("Out")[0]];
      const auto place = static_cast<size_t>(In(op, "I"));
      if (array.size() <= place) array.resize(place + 1);
      array[place] = array[place].value_or(0.0) + In(op, "X");
    } else if (type == "take_from_array") {
      std::vector<std::optional<double>>& array = arrays_[op.input("Array")[0]];
      const auto place = static_cast<size_t>(In(op, "I"));
      if (array.size() <= place) array.resize(place + 1);
      Out(op, "Out", array[place].value_or(0.0));
      array[place].reset();
    } else {
      FAIL() << "unknown " << ToString(op);
    }
  }

  const Program& program_;
  std::map<std::string, std::vector<std::optional<double>>> arrays_;
};

std::string Declare(std::initializer_list<const char*> names,
                    const char* dtype = "float32") {
  std::string text;
  for (const char* name : names) {
    text += "    var " + std::string(name) + " : LOD_TENSOR.shape(1).dtype(" +
            dtype + ")\n";
  }
  return text;
}

class ControlBackwardTest : public ::testing::Test {
 protected:
  ControlBackwardTest() { DefineAllOps(registry_); }

  void Parse(const std::string& text) {
    ASSERT_OK_AND_ASSIGN(program_, ParseText(text));
    Block& main = program_->block(0);
    for (size_t i = 0; i < main.num_ops(); ++i) {
      FillBodySlots(*program_, main.op(i));
    }
  }

  double Loss(const std::map<std::string, double>& given) {
    Interpreter run(*program_);
    run.values = given;
    run.Run();
    return run.values.at("loss");
  }

  // Gradients by `names` against differences of the loss.
  void CheckGradients(const std::map<std::string, double>& given,
                      const std::vector<std::string>& names) {
    std::map<std::string, double> expected;
    for (const std::string& name : names) {
      std::map<std::string, double> up = given, down = given;
      up[name] += 1e-5;
      down[name] -= 1e-5;
      expected[name] = (Loss(up) - Loss(down)) / 2e-5;
    }
    if (gradients_.empty()) {
      ASSERT_OK_AND_ASSIGN(
          gradients_, AppendBackward(registry_, *program_, {{"loss", ""}}, {}));
    }
    Interpreter run(*program_);
    run.values = given;
    run.Run();
    for (const std::string& name : names) {
      ASSERT_TRUE(gradients_.contains(name)) << name;
      ASSERT_TRUE(run.values.contains(gradients_[name])) << name << "\n"
                                                         << ToString(*program_);
      EXPECT_NEAR(run.values.at(gradients_[name]), expected[name], 1e-6)
          << name << "\n"
          << ToString(*program_, {.variables = false});
    }
  }

  OpRegistry registry_;
  std::unique_ptr<Program> program_;
  std::map<std::string, std::string> gradients_;
};

// loss = (flag ? sin(x) * w : x * x * w) * x
const std::string kBranches =
    "{ // block 0\n" + Declare({"x", "w", "a", "b", "y", "loss"}) +
    Declare({"flag", "other"}, "bool") + Declare({"mask"}, "int32") + R"(
    {Out=['other']} = logical_not(inputs={X=['flag']})
    {} = conditional_block(inputs={Cond=['flag']}, sub_block = block[1])
    {} = conditional_block(inputs={Cond=['other']}, sub_block = block[2])
    {Out=['mask']} = assign(inputs={X=['other']})
    {Out=['y']} = select_input(inputs={X=['a', 'b'], Mask=['mask']})
    {Out=['loss']} = elementwise_mul(inputs={X=['y'], Y=['x']})
}
{ // block 1, parent 0
)" + Declare({"s"}) +
    R"(
    {Out=['s']} = sin(inputs={X=['x']})
    {Out=['a']} = elementwise_mul(inputs={X=['s'], Y=['w']})
}
{ // block 2, parent 0
)" + Declare({"q"}) +
    R"(
    {Out=['q']} = elementwise_mul(inputs={X=['x'], Y=['x']})
    {Out=['b']} = elementwise_mul(inputs={X=['q'], Y=['w']})
}
)";

TEST_F(ControlBackwardTest, GradientOfBranches) {
  Parse(kBranches);
  CheckGradients({{"x", 0.7}, {"w", 1.5}, {"flag", 1}}, {"x", "w"});
  CheckGradients({{"x", 0.7}, {"w", 1.5}, {"flag", 0}}, {"x", "w"});
}

// loss = s_n with s_0 = x, s_{t+1} = sin(s_t * w) + c; n turns.
const std::string kLoop =
    "{ // block 0\n" + Declare({"x", "w", "c", "s", "loss"}) +
    Declare({"i", "n"}, "int64") + Declare({"go"}, "bool") + R"(
    {Out=['i']} = fill_constant(inputs={}, value = 0.0)
    {Out=['s']} = assign(inputs={X=['x']})
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
    {} = while(inputs={Condition=['go']}, sub_block = block[1])  // at net.py:8
    {Out=['loss']} = elementwise_mul(inputs={X=['s'], Y=['w']})
}
{ // block 1, parent 0
)" + Declare({"p", "q", "next"}) +
    R"(
    {Out=['p']} = elementwise_mul(inputs={X=['s'], Y=['w']})
    {Out=['q']} = sin(inputs={X=['p']})
    {Out=['next']} = elementwise_add(inputs={X=['q'], Y=['c']})
    {Out=['s']} = assign(inputs={X=['next']})
    {Out=['i']} = increment(inputs={X=['i']}, step = 1.0)
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
}
)";

TEST_F(ControlBackwardTest, GradientOfALoop) {
  Parse(kLoop);
  for (double n : {3.0, 1.0, 0.0, 5.0}) {
    CheckGradients({{"x", 0.7}, {"w", 1.3}, {"c", -0.2}, {"n", n}},
                   {"x", "w", "c"});
  }
}

// The sum of sin(x * t): constant at first, carried from then on.
TEST_F(ControlBackwardTest, GradientOfASumThatBeginsWithAConstant) {
  Parse("{ // block 0\n" + Declare({"x", "s", "loss"}) +
        Declare({"i", "n"}, "int64") + Declare({"go"}, "bool") + R"(
    {Out=['i']} = fill_constant(inputs={}, value = 0.0)
    {Out=['s']} = fill_constant(inputs={}, value = 0.5)
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
    {} = while(inputs={Condition=['go']}, sub_block = block[1])
    {Out=['loss']} = elementwise_mul(inputs={X=['s'], Y=['s']})
}
{ // block 1, parent 0
)" + Declare({"p", "q", "next"}) +
        R"(
    {Out=['p']} = elementwise_mul(inputs={X=['x'], Y=['i']})
    {Out=['q']} = sin(inputs={X=['p']})
    {Out=['next']} = elementwise_add(inputs={X=['q'], Y=['s']})
    {Out=['s']} = assign(inputs={X=['next']})
    {Out=['i']} = increment(inputs={X=['i']}, step = 1.0)
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
}
)");
  CheckGradients({{"x", 0.3}, {"n", 4}}, {"x"});
}

TEST_F(ControlBackwardTest, GradientOfABranchInALoop) {
  Parse("{ // block 0\n" + Declare({"x", "w", "s", "loss", "limit"}) +
        Declare({"i", "n"}, "int64") + Declare({"go"}, "bool") + R"(
    {Out=['i']} = fill_constant(inputs={}, value = 0.0)
    {Out=['s']} = assign(inputs={X=['x']})
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
    {} = while(inputs={Condition=['go']}, sub_block = block[1])
    {Out=['loss']} = sin(inputs={X=['s']})
}
{ // block 1, parent 0
)" + Declare({"a", "b", "y"}) +
        Declare({"small", "large"}, "bool") + Declare({"mask"}, "int32") +
        R"(
    {Out=['small']} = less_than(inputs={X=['s'], Y=['limit']})
    {Out=['large']} = logical_not(inputs={X=['small']})
    {} = conditional_block(inputs={Cond=['small']}, sub_block = block[2])
    {} = conditional_block(inputs={Cond=['large']}, sub_block = block[3])
    {Out=['mask']} = assign(inputs={X=['large']})
    {Out=['y']} = select_input(inputs={X=['a', 'b'], Mask=['mask']})
    {Out=['s']} = assign(inputs={X=['y']})
    {Out=['i']} = increment(inputs={X=['i']}, step = 1.0)
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
}
{ // block 2, parent 1
)" + Declare({"t"}) +
        R"(
    {Out=['t']} = elementwise_mul(inputs={X=['s'], Y=['w']})
    {Out=['a']} = elementwise_mul(inputs={X=['t'], Y=['w']})
}
{ // block 3, parent 1
)" + Declare({"u"}) +
        R"(
    {Out=['u']} = sin(inputs={X=['s']})
    {Out=['b']} = elementwise_mul(inputs={X=['u'], Y=['w']})
}
)");
  CheckGradients({{"x", 0.4}, {"w", 1.6}, {"limit", 1.5}, {"n", 5}},
                 {"x", "w"});
}

// s = x; if (flag) { n times: s = sin(s * w) }
const std::string kLoopInBranch =
    "{ // block 0\n" + Declare({"x", "w", "s", "t", "y", "loss"}) +
    Declare({"i", "n"}, "int64") + Declare({"flag", "other", "go"}, "bool") +
    Declare({"mask"}, "int32") + R"(
    {} = conditional_block(inputs={Cond=['flag']}, sub_block = block[1])
    {Out=['other']} = logical_not(inputs={X=['flag']})
    {} = conditional_block(inputs={Cond=['other']}, sub_block = block[3])
    {Out=['mask']} = assign(inputs={X=['other']})
    {Out=['y']} = select_input(inputs={X=['s', 't'], Mask=['mask']})
    {Out=['loss']} = elementwise_mul(inputs={X=['y'], Y=['w']})
}
{ // block 1, parent 0
)" + Declare({"u"}) +
    R"(
    {Out=['i']} = fill_constant(inputs={}, value = 0.0)
    {Out=['u']} = assign(inputs={X=['x']})
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
    {} = while(inputs={Condition=['go']}, sub_block = block[2])
    {Out=['s']} = assign(inputs={X=['u']})
}
{ // block 2, parent 1
)" + Declare({"p", "q"}) +
    R"(
    {Out=['p']} = elementwise_mul(inputs={X=['u'], Y=['w']})
    {Out=['q']} = sin(inputs={X=['p']})
    {Out=['u']} = assign(inputs={X=['q']})
    {Out=['i']} = increment(inputs={X=['i']}, step = 1.0)
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
}
{ // block 3, parent 0
    {Out=['t']} = sin(inputs={X=['x']})
}
)";

TEST_F(ControlBackwardTest, GradientOfALoopInABranch) {
  Parse(kLoopInBranch);
  for (double flag : {1.0, 0.0}) {
    CheckGradients({{"x", 0.7}, {"w", 1.3}, {"n", 3}, {"flag", flag}},
                   {"x", "w"});
  }
}

// n times: s = sin(s * w), m times: s = s * s + c
TEST_F(ControlBackwardTest, GradientOfALoopInALoop) {
  Parse("{ // block 0\n" + Declare({"x", "w", "c", "s", "loss"}) +
        Declare({"i", "n", "m", "zero"}, "int64") + Declare({"go"}, "bool") +
        R"(
    {Out=['i']} = fill_constant(inputs={}, value = 0.0)
    {Out=['zero']} = fill_constant(inputs={}, value = 0.0)
    {Out=['s']} = assign(inputs={X=['x']})
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
    {} = while(inputs={Condition=['go']}, sub_block = block[1])
    {Out=['loss']} = elementwise_mul(inputs={X=['s'], Y=['w']})
}
{ // block 1, parent 0
)" + Declare({"p", "q", "u"}) +
        Declare({"j"}, "int64") + Declare({"on"}, "bool") + R"(
    {Out=['p']} = elementwise_mul(inputs={X=['s'], Y=['w']})
    {Out=['q']} = sin(inputs={X=['p']})
    {Out=['u']} = assign(inputs={X=['q']})
    {Out=['j']} = assign(inputs={X=['zero']})
    {Out=['on']} = less_than(inputs={X=['j'], Y=['m']})
    {} = while(inputs={Condition=['on']}, sub_block = block[2])
    {Out=['s']} = assign(inputs={X=['u']})
    {Out=['i']} = increment(inputs={X=['i']}, step = 1.0)
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
}
{ // block 2, parent 1
)" + Declare({"a", "b"}) +
        R"(
    {Out=['a']} = elementwise_mul(inputs={X=['u'], Y=['u']})
    {Out=['b']} = elementwise_add(inputs={X=['a'], Y=['c']})
    {Out=['u']} = assign(inputs={X=['b']})
    {Out=['j']} = increment(inputs={X=['j']}, step = 1.0)
    {Out=['on']} = less_than(inputs={X=['j'], Y=['m']})
}
)");
  for (double m : {2.0, 0.0, 3.0}) {
    CheckGradients({{"x", 0.7}, {"w", 1.3}, {"c", -0.2}, {"n", 3}, {"m", m}},
                   {"x", "w", "c"});
  }
}

TEST_F(ControlBackwardTest, CloneForTestForgetsWhatGradientsSaved) {
  Parse(kLoop);
  const std::string before = ToString(*program_, {.variables = false});
  ASSERT_OK(AppendBackward(registry_, *program_, {{"loss", ""}}, {}).status());
  std::unique_ptr<Program> clone = CloneForTest(registry_, *program_);
  EXPECT_EQ(clone->num_blocks(), 2);
  const std::string text = ToString(*clone);
  EXPECT_THAT(text, Not(HasSubstr("array")));
  EXPECT_THAT(text, Not(HasSubstr("TURN")));
  EXPECT_THAT(text, Not(HasSubstr("GRAD")));
}

TEST_F(ControlBackwardTest, AnOpWithoutGradientInABodyIsNamed) {
  Parse("{ // block 0\n" + Declare({"x", "y", "loss"}) +
        Declare({"flag"}, "bool") + R"(
    {} = conditional_block(inputs={Cond=['flag']}, sub_block = block[1])
    {Out=['loss']} = sin(inputs={X=['y']})
}
{ // block 1, parent 0
    {Y=['y']} = sequence_mask(inputs={X=['x']})  // at net.py:4
}
)");
  // As if its result were not constant.
  program_->block(1).op(0).type = "unheard_of";
  Status status =
      AppendBackward(registry_, *program_, {{"loss", ""}}, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(),
              HasSubstr("net.py:4: unheard_of has no gradient"));
}

TEST_F(ControlBackwardTest, AVariableThatABodyWritesTwice) {
  Parse("{ // block 0\n" + Declare({"x", "y", "loss"}) +
        Declare({"flag"}, "bool") + R"(
    {} = conditional_block(inputs={Cond=['flag']}, sub_block = block[1])
    {Out=['loss']} = sin(inputs={X=['y']})
}
{ // block 1, parent 0
    {Out=['y']} = sin(inputs={X=['x']})
    {Out=['y']} = sin(inputs={X=['y']})  // at net.py:6
}
)");
  EXPECT_THAT(AppendBackward(registry_, *program_, {{"loss", ""}}, {})
                  .status()
                  .message(),
              HasSubstr("net.py:6: sin: its gradient needs the value that the "
                        "variable y had then"));
}

// ---- arrays

const std::string kArrays = R"(
    var mem : LOD_TENSOR_ARRAY.shape(1).dtype(float32)
)" + Declare({"x", "w", "c", "y", "z", "u", "loss"}) +
                            Declare({"i", "n"}, "int64") +
                            Declare({"go"}, "bool");

// loss = s_n w with s_0 = x, s_{t+1} = sin(s_t w); all s are kept, and the
// place is counted in place.
TEST_F(ControlBackwardTest, GradientThroughAnArrayInALoop) {
  Parse("{ // block 0\n" + kArrays + R"(
    {Out=['i']} = fill_constant(inputs={}, value = 0.0)
    {Out=['mem']} = write_to_array(inputs={X=['x'], I=['i']})
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
    {} = while(inputs={Condition=['go']}, sub_block = block[1])
    {Out=['y']} = read_from_array(inputs={X=['mem'], I=['i']})
    {Out=['loss']} = elementwise_mul(inputs={X=['y'], Y=['w']})
}
{ // block 1, parent 0
)" + Declare({"last", "p", "q"}) +
        R"(
    {Out=['last']} = read_from_array(inputs={X=['mem'], I=['i']})
    {Out=['p']} = elementwise_mul(inputs={X=['last'], Y=['w']})
    {Out=['q']} = sin(inputs={X=['p']})
    {Out=['i']} = increment(inputs={X=['i']}, step = 1.0)
    {Out=['mem']} = write_to_array(inputs={X=['q'], I=['i']})
    {Out=['go']} = less_than(inputs={X=['i'], Y=['n']})
}
)");
  for (double n : {3.0, 1.0, 0.0, 5.0}) {
    CheckGradients({{"x", 0.7}, {"w", 1.3}, {"n", n}}, {"x", "w"});
  }
}

TEST_F(ControlBackwardTest, GradientThroughAPlaceThatIsWrittenAndReadTwice) {
  Parse("{ // block 0\n" + kArrays + R"(
    {Out=['i']} = fill_constant(inputs={}, value = 2.0)
    {Out=['mem']} = write_to_array(inputs={X=['x'], I=['i']})
    {Out=['y']} = read_from_array(inputs={X=['mem'], I=['i']})
    {Out=['z']} = sin(inputs={X=['y']})
    {Out=['mem']} = write_to_array(inputs={X=['z'], I=['i']})
    {Out=['u']} = read_from_array(inputs={X=['mem'], I=['i']})
    {Out=['c']} = read_from_array(inputs={X=['mem'], I=['i']})
    {Out=['w']} = elementwise_mul(inputs={X=['u'], Y=['c']})
    {Out=['loss']} = elementwise_mul(inputs={X=['w'], Y=['y']})
}
)");
  CheckGradients({{"x", 0.7}}, {"x"});
}

TEST_F(ControlBackwardTest, WhatAnArrayNoLongerHoldsGetsNoGradient) {
  Parse("{ // block 0\n" + kArrays + R"(
    {Out=['i']} = fill_constant(inputs={}, value = 0.0)
    {Out=['mem']} = write_to_array(inputs={X=['x'], I=['i']})
    {Out=['c']} = fill_constant(inputs={}, value = 3.0)
    {Out=['mem']} = write_to_array(inputs={X=['c'], I=['i']})
    {Out=['u']} = read_from_array(inputs={X=['mem'], I=['i']})
    {Out=['loss']} = elementwise_mul(inputs={X=['u'], Y=['x']})
}
)");
  CheckGradients({{"x", 0.7}}, {"x"});
}

TEST_F(ControlBackwardTest, GradientThroughAnArrayInABranch) {
  Parse("{ // block 0\n" + kArrays + R"(
    {Out=['i']} = fill_constant(inputs={}, value = 0.0)
    {Out=['mem']} = write_to_array(inputs={X=['x'], I=['i']})
    {} = conditional_block(inputs={Cond=['go']}, sub_block = block[1])
    {Out=['u']} = read_from_array(inputs={X=['mem'], I=['i']})
    {Out=['loss']} = elementwise_mul(inputs={X=['u'], Y=['x']})
}
{ // block 1, parent 0
)" + Declare({"p", "q"}) +
        R"(
    {Out=['p']} = read_from_array(inputs={X=['mem'], I=['i']})
    {Out=['q']} = sin(inputs={X=['p']})
    {Out=['mem']} = write_to_array(inputs={X=['q'], I=['i']})
}
)");
  CheckGradients({{"x", 0.7}, {"go", 1}}, {"x"});
  CheckGradients({{"x", 0.7}, {"go", 0}}, {"x"});
}

TEST_F(ControlBackwardTest, PruningKeepsEveryWriteOfAnArray) {
  Parse("{ // block 0\n" + kArrays + R"(
    {Out=['i']} = fill_constant(inputs={}, value = 0.0)
    {Out=['n']} = fill_constant(inputs={}, value = 1.0)
    {Out=['mem']} = write_to_array(inputs={X=['x'], I=['i']})
    {Out=['mem']} = write_to_array(inputs={X=['w'], I=['n']})
    {Out=['loss']} = read_from_array(inputs={X=['mem'], I=['i']})
}
)");
  ASSERT_OK_AND_ASSIGN(program_, Prune(*program_, {"x", "w"}, {"loss"}));
  EXPECT_EQ(Loss({{"x", 0.7}, {"w", 0.3}}), 0.7);
}

}  // namespace
}  // namespace fleet::plan
