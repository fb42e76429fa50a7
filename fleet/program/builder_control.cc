// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ranges>
#include <set>
#include <utility>

#include "fleet/program/builder.h"
#include "fleet/program/control.h"

namespace fleet::program {

bool Builder::IsPredicate(const char* function, const Value& value) {
  if (!status().ok()) return false;
  if (!value || value.dtype() != DType::kBool) {
    Fail(InvalidArgument(function, ": the condition must be a bool, but ",
                         value.name(), " is ", ToString(value.type())));
    return false;
  }
  for (int64_t n : value.dims()) {
    if (n == 1 || n == -1) continue;
    Fail(InvalidArgument(function,
                         ": the condition must have one element, but "
                         "the shape of ",
                         value.name(), " is ", ToString(value.dims())));
    return false;
  }
  return true;
}

int Builder::AddBody() { return program().AddBlock(block().index()).index(); }

// Appends the operation that runs the block `body`, behind the current ones.
void Builder::AppendBody(const std::string& op, int body, Slot input,
                         const char* flag, bool flag_value) {
  if (!status().ok()) return;
  Append({.type = op,
          .inputs = {std::move(input)},
          .attrs = {{std::string(kSubBlock),
                     {AttrKind::kBlock, static_cast<int64_t>(body)}},
                    {flag, {AttrKind::kBool, flag_value}}}});
  if (!status().ok()) return;
  FillBodySlots(program(), block().op(block().num_ops() - 1));
}

// A variable without a value, of the type of `like`.
Value Builder::NewVariable(const std::string& kind, const Value& like,
                           int block) {
  const std::string name = NewName(NewName(kind) + ".tmp");
  program().block(block).AddVariable({.name = name, .type = like.type()});
  return {*this, name};
}

void Builder::Write(const Value& value, const Value& to) {
  Append({.type = "assign",
          .inputs = {{"X", {value.name()}}},
          .outputs = {{"Out", {to.name()}}}});
}

// ---- branches

// Appends `branch` under `condition`; `held` are the variables around it that
// hold what it returned. False when there is no branch, or something failed.
bool Builder::RunBranch(const Value& condition, const Branch& branch,
                        Values& held) {
  if (branch == nullptr || !status().ok()) return false;
  const int around = block().index();
  const int body = AddBody();
  {
    Scope scope(*this);
    scope.InBlock(body);
    for (const Value& value : branch()) {
      if (!status().ok() || !value) return false;
      const Value variable = NewVariable("cond", value, around);
      VariableOf(variable).stop_gradient = VariableOf(value).stop_gradient;
      Write(value, variable);
      held.push_back(variable);
    }
  }
  AppendBody("conditional_block", body, {"Cond", {condition.name()}},
             "is_scalar_condition", true);
  return status().ok();
}

Value Builder::Select(const Value& otherwise, const Value& then,
                      const Value& mask) {
  const Value out = NewVariable("select_input", then, block().index());
  VariableOf(out).stop_gradient =
      VariableOf(otherwise).stop_gradient && VariableOf(then).stop_gradient;
  Append({.type = "select_input",
          .inputs = {{"X", {otherwise.name(), then.name()}},
                     {"Mask", {mask.name()}}},
          .outputs = {{"Out", {out.name()}}}});
  return out;
}

Values Builder::Cond(const Value& condition, const Branch& then,
                     const Branch& otherwise, Line at) {
  Scope scope(*this);
  scope.At(at);
  if (!IsPredicate("cond", condition)) return {};
  Values if_true, if_false;
  RunBranch(condition, then, if_true);
  const Value negated = LogicalNot(condition, at);
  RunBranch(negated, otherwise, if_false);
  if (!status().ok()) return {};
  if (if_true.size() != if_false.size()) {
    Fail(
        InvalidArgument("cond: both branches must return as many values, but "
                        "return ",
                        if_true.size(), " and ", if_false.size()));
    return {};
  }
  if (if_true.empty()) return {};
  const Value mask = Cast(condition, DType::kInt32, at);
  Values selected;
  for (size_t i = 0; i < if_true.size(); ++i) {
    if (if_true[i].dtype() != if_false[i].dtype()) {
      Fail(InvalidArgument(
          "cond: both branches must return the same types, but "
          "return ",
          Name(if_true[i].dtype()), " and ", Name(if_false[i].dtype())));
      return {};
    }
    selected.push_back(Select(if_false[i], if_true[i], mask));
  }
  return status().ok() ? selected : Values();
}

void Builder::If(const Value& condition, const std::function<void()>& body,
                 Line at) {
  Scope scope(*this);
  scope.At(at);
  if (!IsPredicate("if", condition)) return;
  const int block = AddBody();
  {
    Scope inside(*this);
    inside.InBlock(block);
    body();
  }
  AppendBody("conditional_block", block, {"Cond", {condition.name()}},
             "is_scalar_condition", true);
}

Values Builder::Case(const std::vector<std::pair<Value, Branch>>& branches,
                     const Branch& otherwise, Line at) {
  Branch next = otherwise;
  for (const auto& pair : std::views::reverse(branches)) {
    next = [this, &pair, next, at] {
      return Cond(pair.first, pair.second, next, at);
    };
  }
  return next == nullptr ? Values() : next();
}

Values Builder::SwitchCase(
    const Value& index, const std::vector<std::pair<int64_t, Branch>>& branches,
    const Branch& otherwise, Line at) {
  if (!status().ok()) return {};
  Scope scope(*this);
  scope.At(at);
  auto sorted = branches;
  std::ranges::stable_sort(
      sorted, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::pair<Value, Branch>> pairs;
  for (const auto& [number, branch] : sorted) {
    const Value wanted =
        Constant({1}, index.dtype(), {static_cast<double>(number)}, at);
    pairs.emplace_back(Equal(index, wanted, at), branch);
  }
  return status().ok() ? Case(pairs, otherwise, at) : Values();
}

// ---- loops

Values Builder::While(const std::function<Value(const Values&)>& condition,
                      const std::function<Values(const Values&)>& body,
                      const Values& values, Line at) {
  if (!status().ok()) return {};
  Scope scope(*this);
  scope.At(at);
  // Copies, so that the loop does not write what others read.
  Values carried;
  std::set<std::string> own;
  for (const Value& value : values) {
    if (!value) return {};
    const bool array = VariableOf(value).kind == VariableKind::kTensorArray;
    const Value copy = array ? value : Assign(value, at);
    if (!status().ok()) return {};
    // A loop that begins with a constant may still carry what is
    // differentiated.
    if (!array) VariableOf(copy).stop_gradient = !IsFloating(copy.dtype());
    own.insert(copy.name());
    carried.push_back(copy);
  }
  const Value first = condition(carried);
  if (!IsPredicate("while", first)) return {};
  const Value go_on = Assign(first, at);
  if (!status().ok()) return {};
  VariableOf(go_on).stop_gradient = true;
  const int block = AddBody();
  {
    Scope inside(*this);
    inside.InBlock(block);
    const Values returned = body(carried);
    if (!status().ok()) return {};
    if (returned.size() != carried.size()) {
      Fail(InvalidArgument("while: the body must return ", carried.size(),
                           " values, but returned ", returned.size()));
      return {};
    }
    // One may be another's old value: all are read before any is written.
    std::vector<std::pair<Value, Value>> changed;
    for (size_t i = 0; i < carried.size(); ++i) {
      if (returned[i].type().dtype != carried[i].type().dtype) {
        Fail(InvalidArgument("while: the body changes ", carried[i].name(),
                             " from ", Name(carried[i].dtype()), " to ",
                             Name(returned[i].dtype())));
        return {};
      }
      if (returned[i].name() == carried[i].name()) continue;
      changed.emplace_back(carried[i], returned[i]);
    }
    for (auto& [variable, value] : changed) {
      if (own.contains(value.name())) value = Assign(value, at);
    }
    if (!status().ok()) return {};
    for (const auto& [variable, value] : changed) Write(value, variable);
    const Value again = condition(carried);
    if (!status().ok()) return {};
    Write(again, go_on);
  }
  AppendBody("while", block, {"Condition", {go_on.name()}}, "is_test", false);
  return status().ok() ? carried : Values();
}

}  // namespace fleet::program
