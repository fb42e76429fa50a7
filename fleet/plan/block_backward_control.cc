// SPDX-License-Identifier: Apache-2.0
// Branches, loops and arrays.
#include "fleet/base/check.h"
#include "fleet/plan/block_backward.h"
#include "fleet/program/control.h"
#include "fleet/program/op_role.h"

namespace fleet::plan {
namespace {

using program::AttrKind;
using program::AttrValue;
using program::Block;
using program::DType;
using program::GradName;
using program::kEmptyName;
using program::kSubBlock;
using program::Operation;
using program::OpRole;
using program::Slot;
using program::Uses;
using program::Variable;
using program::VariableKind;

int BodyOf(const Operation& op) {
  const AttrValue* body = op.attr(kSubBlock);
  FLEET_CHECK(body != nullptr, op.type, " without sub_block");
  return static_cast<int>(std::get<int64_t>(body->value));
}

Operation WithBody(const std::string& type, const Operation& forward,
                   const Block& body) {
  return {.type = type,
          .attrs = {{std::string(kSubBlock),
                     {AttrKind::kBlock, int64_t{body.index()}}}},
          .made_at = forward.made_at};
}

Variable& AddCounter(Block& block, const std::string& name) {
  return block.AddVariable(
      {.name = name, .type = {DType::kInt64, {1}}, .stop_gradient = true});
}

Operation Constant(const std::string& out) {
  return {.type = "fill_constant",
          .outputs = {{"Out", {out}}},
          .attrs = {
              {"shape", {AttrKind::kLongs, std::vector<int64_t>{1}}},
              {"dtype", {AttrKind::kInt, static_cast<int64_t>(DType::kInt64)}},
              {"value", {AttrKind::kFloat, 0.0}}}};
}

Operation Count(const std::string& counter, double step) {
  return {.type = "increment",
          .inputs = {{"X", {counter}}},
          .outputs = {{"Out", {counter}}},
          .attrs = {{"step", {AttrKind::kFloat, step}}}};
}

}  // namespace

Status BlockBackward::VisitSelect(const Operation& op) {
  const Gradients taken = TakeGradients(op);
  Operation grad{
      .type = "select_output",
      .inputs = {{"X", {taken.begin()->second}}, {"Mask", op.input("Mask")}},
      .made_at = op.made_at};
  Slot out{"Out", {}};
  for (const std::string& name : op.input("X")) {
    out.arguments.push_back(Wanted(name) ? NewPart(name)
                                         : std::string(kEmptyName));
  }
  grad.outputs.push_back(std::move(out));
  Append(std::move(grad));
  return OkStatus();
}

Status BlockBackward::VisitConditional(Operation& op) {
  const int index = BodyOf(op);
  const std::set<std::string> carried = SplitCarried(program_, index);
  Block& body = program_.block(index);
  Block& grad_body = program_.AddBlock(to_.index());
  grad_body.set_forward_block(index);
  const Gradients taken = TakeGradients(op);
  std::vector<BackwardTarget> starts;
  for (const auto& [name, gradient] : taken) {
    starts.push_back({name, gradient});
  }
  BlockBackward inner(registry_, program_, body, grad_body, no_grad_, records_,
                      [&](const std::string& name) { return Wanted(name); });
  ASSIGN_OR_RETURN(Gradients gradients, inner.Run(carried.size(), starts));
  for (const auto& [name, gradient] : taken) {
    // Not run, the branch leaves what was there.
    if (carried.contains(name) && Wanted(name)) {
      auto found = gradients.find(name + "@IN");
      const std::string part = NewPart(name);
      Append(Assign(gradient, part));
      AppendTo(grad_body, found == gradients.end()
                              ? Fill(gradient, part, 0.0)
                              : Assign(found->second, part));
    }
  }
  const Uses uses = UsesOf(program_, index);
  for (const auto& [name, gradient] : gradients) {
    if (body.FindHere(name) != nullptr || uses.writes.contains(name)) {
      continue;
    }
    const std::string part = NewPart(name);
    Append(Fill(name, part, 0.0));
    AppendTo(grad_body, Assign(gradient, part));
  }
  Hoist(body, grad_body);
  FillBodySlots(program_, op);
  Operation grad = WithBody("conditional_block", op, grad_body);
  grad.attrs["is_scalar_condition"] = {AttrKind::kBool, true};
  grad.inputs.push_back({"Cond", op.input("Cond")});
  FillBodySlots(program_, grad);
  Append(std::move(grad));
  return OkStatus();
}

void BlockBackward::Hoist(Block& body, const Block& grad_body) {
  for (const std::string& name : UsesOf(program_, grad_body.index()).reads) {
    const Variable* variable = body.FindHere(name);
    if (variable == nullptr) continue;
    Variable moved = *variable;
    body.RemoveVariable(name);
    from_.AddVariable(std::move(moved));
  }
}

std::set<std::string> BlockBackward::DependingOnLoop(const Operation& op) {
  Block& body = program_.block(BodyOf(op));
  std::set<std::string> wanted;
  for (const std::string& name : op.input("X")) {
    if (Wanted(name)) wanted.insert(name);
  }
  for (;;) {
    BlockBackward inner(
        registry_, program_, body, body, no_grad_, records_,
        [&](const std::string& name) { return wanted.contains(name); });
    const size_t before = wanted.size();
    for (const std::string& name : inner.FindDepending(0)) {
      if (body.FindHere(name) == nullptr) wanted.insert(name);
    }
    if (wanted.size() == before) return wanted;
  }
}

Status BlockBackward::VisitLoop(size_t position) {
  const int index = BodyOf(from_.op(position));
  const std::set<std::string> wanted = DependingOnLoop(from_.op(position));
  const std::set<std::string> carried = SplitCarried(program_, index);
  Block& body = program_.block(index);
  Block& grad_body = program_.AddBlock(to_.index());
  grad_body.set_forward_block(index);
  const Operation op = from_.op(position);
  const Gradients taken = TakeGradients(op);

  // What the loop goes back with: gradients of all that it carries.
  std::vector<BackwardTarget> starts;
  Gradients state;
  for (const std::string& name : op.output("Out")) {
    if (!wanted.contains(name) || IsArray(name)) continue;
    const std::string gradient = Unused(GradName(name) + "@LOOP", to_);
    AddGradient(name, gradient);
    auto found = taken.find(name);
    Append(found == taken.end() ? Fill(name, gradient, 0.0)
                                : Assign(found->second, gradient));
    state[name] = gradient;
    starts.push_back({name, gradient});
  }
  BlockBackward inner(
      registry_, program_, body, grad_body, no_grad_, records_,
      [&](const std::string& name) {
        if (IsArray(name)) return wanted.contains(name);
        return name.ends_with("@IN") && body.FindHere(name) != nullptr
                   ? wanted.contains(name.substr(0, name.size() - 3))
                   : Wanted(name);
      });
  ASSIGN_OR_RETURN(Gradients gradients, inner.Run(carried.size(), starts));

  EndTurn(gradients, state, body, grad_body);
  JoinLoops(position, body, grad_body);
  return OkStatus();
}

void BlockBackward::EndTurn(const Gradients& gradients, const Gradients& state,
                            const Block& body, Block& grad_body) {
  for (const auto& [name, gradient] : state) {
    auto found = gradients.find(name + "@IN");
    AppendTo(grad_body, found == gradients.end()
                            ? Fill(gradient, gradient, 0.0)
                            : Assign(found->second, gradient));
  }
  const Uses uses = UsesOf(program_, body.index());
  for (const auto& [name, gradient] : gradients) {
    if (body.FindHere(name) != nullptr || uses.writes.contains(name)) {
      continue;
    }
    const std::string total = NewPart(name);
    Append(Fill(name, total, 0.0));
    AppendTo(grad_body, {.type = "sum",
                         .inputs = {{"X", {total, gradient}}},
                         .outputs = {{"Out", {total}}}});
  }
  // The gradient of the value at the beginning.
  for (const auto& [name, gradient] : state) {
    if (!Wanted(name)) continue;
    parts_[name].push_back(gradient);
  }
}

void BlockBackward::JoinLoops(size_t position, Block& body, Block& grad_body) {
  Block& main = program_.block(0);
  const std::string turn =
      Unused("loop" + std::to_string(body.index()) + "@TURN", from_);
  const std::string start = Unused(turn + "@START", from_);
  AddCounter(main, turn);
  AddCounter(from_, start);
  records_.names.insert(turn);
  records_.beginnings.push_back(Constant(turn));

  // What the gradient reads of a turn: saved in its body, restored here.
  std::vector<std::string> saved;
  const Uses uses = UsesOf(program_, body.index());
  for (const std::string& name : UsesOf(program_, grad_body.index()).reads) {
    const bool changes =
        body.FindHere(name) != nullptr || uses.writes.contains(name);
    if (changes && !records_.names.contains(name)) saved.push_back(name);
  }
  size_t front = 0;
  auto prepend = [&](Operation op) {
    SetRole(op, OpRole::kBackward);
    grad_body.Insert(front++, std::move(op));
  };
  prepend(Count(turn, -1.0));
  for (const std::string& name : saved) {
    const std::string array = Unused(name + "@TURNS", from_);
    const std::string restored = Unused(name + "@TURN", grad_body);
    Variable kept = *body.Find(name);
    kept.persistable = false;
    kept.is_parameter = false;
    kept.name = restored;
    grad_body.AddVariable(kept);
    kept.name = array;
    kept.kind = VariableKind::kTensorArray;
    kept.stop_gradient = true;
    main.AddVariable(kept);
    records_.names.insert(array);
    RenameIn(program_, grad_body, front, grad_body.num_ops(), name, restored);
    prepend({.type = "read_from_array",
             .inputs = {{"X", {array}}, {"I", {turn}}},
             .outputs = {{"Out", {restored}}}});
    AppendTo(body, {.type = "write_to_array",
                    .inputs = {{"X", {name}}, {"I", {turn}}},
                    .outputs = {{"Out", {array}}}});
  }
  AppendTo(body, Count(turn, 1.0));

  const std::string more = Unused(turn + "@MORE", to_);
  AddCounter(to_, more).type.dtype = DType::kBool;
  const Operation compare{.type = "greater_than",
                          .inputs = {{"X", {turn}}, {"Y", {start}}},
                          .outputs = {{"Out", {more}}}};
  AppendTo(grad_body, compare);
  Append(compare);
  Operation grad = WithBody("while", from_.op(position), grad_body);
  grad.inputs.push_back({"Condition", {more}});
  FillBodySlots(program_, grad);
  Append(std::move(grad));

  InsertForward(position, Assign(turn, start));
  FillBodySlots(program_, from_.op(position + 1));
}

void BlockBackward::InsertForward(size_t position, Operation op) {
  SetRole(op, OpRole::kBackward);
  from_.Insert(position, std::move(op));
  ++end_;
  if (&from_ == &to_) ++appended_;
  on_path_.insert(on_path_.begin() + static_cast<ptrdiff_t>(position), false);
}

const std::string& BlockBackward::ArrayOfGradients(const std::string& array) {
  std::string& gradients = records_.arrays.at(array);
  if (!gradients.empty()) return gradients;
  Block& main = program_.block(0);
  gradients = Unused(GradName(array), main);
  Variable variable = *main.Find(array);
  variable.name = gradients;
  variable.stop_gradient = true;
  main.AddVariable(std::move(variable));
  records_.names.insert(gradients);
  return gradients;
}

std::string BlockBackward::PlaceIn(size_t position) {
  const Operation& op = from_.op(position);
  const std::string& place = op.input("I")[0];
  if (IsUnchanged(op, place, /*is_input=*/true)) return place;
  const std::string copy = Unused(place + "@PLACE", from_);
  Variable variable = *from_.Find(place);
  variable.name = copy;
  variable.stop_gradient = true;
  from_.AddVariable(std::move(variable));
  InsertForward(position, Assign(place, copy));
  return copy;
}

Status BlockBackward::VisitRead(size_t position) {
  const Operation& op = from_.op(position);
  const std::string& array = op.input("X")[0];
  const Gradients taken = TakeGradients(op);
  if (!Wanted(array)) return OkStatus();
  if (!IsArray(array)) return NoGradient(op);
  const std::string& gradients = ArrayOfGradients(array);
  const std::string place = PlaceIn(position);
  Append({.type = "add_to_array",
          .inputs = {{"X", {taken.begin()->second}},
                     {"I", {place}},
                     {"Array", {gradients}}},
          .outputs = {{"Out", {gradients}}},
          .made_at = op.made_at});
  return OkStatus();
}

Status BlockBackward::VisitWrite(size_t position) {
  const Operation& op = from_.op(position);
  const std::string& array = op.output("Out")[0];
  const std::string& x = op.input("X")[0];
  if (!IsArray(array)) return NoGradient(op);
  TakeGradients(op);
  const std::string& gradients = ArrayOfGradients(array);
  const std::string place = PlaceIn(position);
  std::string part;
  if (Wanted(x)) {
    part = NewPart(x);
  } else {
    part = Unused(PlainName(x) + "@NONE", to_);
    AddGradient(x, part);
  }
  Append({.type = "take_from_array",
          .inputs = {{"Array", {gradients}}, {"I", {place}}, {"Like", {x}}},
          .outputs = {{"Out", {part}}, {"ArrayOut", {gradients}}},
          .made_at = op.made_at});
  return OkStatus();
}

}  // namespace fleet::plan
