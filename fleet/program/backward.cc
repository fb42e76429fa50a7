// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/backward.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "fleet/program/control.h"

namespace fleet::program {
namespace {

using Gradients = std::map<std::string, std::string>;  // by variable

Operation Fill(const std::string& like, const std::string& out, double value) {
  return {.type = "fill_any_like",
          .inputs = {{"X", {like}}},
          .outputs = {{"Out", {out}}},
          .attrs = {{"value", {AttrKind::kFloat, value}},
                    {"dtype", {AttrKind::kInt, int64_t{-1}}}}};
}

Operation Assign(const std::string& from, const std::string& to) {
  return {
      .type = "assign", .inputs = {{"X", {from}}}, .outputs = {{"Out", {to}}}};
}

std::string Where(const Operation& op) {
  return op.made_at.empty() ? op.type : op.made_at + ": " + op.type;
}

// What the gradients of all blocks of a program share: for loops, the variables
// of the main block that count turns and hold what was saved in them, and the
// operations with which these begin; and the arrays through which gradients may
// flow, each with the array of its gradients. That one is changed in place all
// through backward: a read of the array adds to it, a write takes from it.
struct Records {
  std::set<std::string> names;
  std::vector<Operation> beginnings;
  std::map<std::string, std::string> arrays;
};

// The arrays of the main block that `targets` may depend on, without gradients.
// Names are looked at without regard to order, in all blocks.
std::map<std::string, std::string> FindArrays(
    const Program& program, const std::vector<BackwardTarget>& targets) {
  std::set<std::string> needed;
  for (const BackwardTarget& target : targets) needed.insert(target.variable);
  auto needs = [&](const Slots& slots) {
    for (const Slot& slot : slots) {
      for (const std::string& name : slot.arguments) {
        if (needed.contains(name)) return true;
      }
    }
    return false;
  };
  for (size_t before = 0; before != needed.size();) {
    before = needed.size();
    for (size_t b = program.num_blocks(); b-- > 0;) {
      const Block& block = program.block(b);
      for (size_t i = block.num_ops(); i-- > 0;) {
        const Operation& op = block.op(i);
        if (!BodiesOf(op).empty() || !needs(op.outputs)) continue;
        for (const Slot& slot : op.inputs) {
          needed.insert(slot.arguments.begin(), slot.arguments.end());
        }
      }
    }
  }
  std::map<std::string, std::string> arrays;
  for (const Variable* variable : program.block(0).variables()) {
    if (variable->kind == VariableKind::kTensorArray &&
        needed.contains(variable->name)) {
      arrays.emplace(variable->name, "");
    }
  }
  return arrays;
}

// Differentiates the operations of one block. Their gradients go to the end of
// the same block or, for the body of control flow, into another block, which
// then is the body of the gradient.
class Backward {
 public:
  // Whether a gradient by a variable is asked for that no operation of the
  // block made.
  using WantsOuter = std::function<bool(const std::string&)>;

  Backward(const OpRegistry& registry, Program& program, Block& from, Block& to,
           const std::set<std::string>& no_grad, Records& records,
           WantsOuter wants_outer)
      : registry_(registry),
        program_(program),
        from_(from),
        to_(to),
        no_grad_(no_grad),
        records_(records),
        wants_outer_(std::move(wants_outer)) {}

  // The operations from number `begin` on. `starts` holds gradients that are
  // there already; an empty one stands for ones.
  Result<Gradients> Run(size_t begin,
                        const std::vector<BackwardTarget>& starts) {
    begin_ = begin;
    end_ = from_.num_ops();
    appended_ = &from_ == &to_ ? end_ : 0;
    FindDifferentiable();
    for (const BackwardTarget& start : starts) RETURN_IF_ERROR(Begin(start));
    FindUses(starts);
    for (size_t i = end_; i-- > begin_;) RETURN_IF_ERROR(Visit(i));
    // What no operation made: parameters and data.
    std::vector<std::string> left;
    for (const auto& [name, parts] : parts_) left.push_back(name);
    for (const std::string& name : left) Settle(name);
    return std::move(gradients_);
  }

  // The variables that operations made, and of which a gradient may be asked.
  std::set<std::string> FindDepending(size_t begin) {
    begin_ = begin;
    end_ = from_.num_ops();
    FindDifferentiable();
    std::set<std::string> names;
    for (const auto& [name, versions] : depends_) {
      if (versions.back()) names.insert(name);
    }
    return names;
  }

 private:
  bool Stops(const std::string& name) const {
    const Variable* variable = from_.Find(name);
    return variable == nullptr || variable->stop_gradient ||
           no_grad_.contains(name) || !IsFloating(variable->type.dtype);
  }

  bool WantedFromOutside(const std::string& name) const {
    return !Stops(name) && wants_outer_(name);
  }

  // The variables by which a gradient can be asked for: those that do not stop
  // it, and what operations make of them.
  void FindDifferentiable() {
    made_.clear();
    depends_.clear();
    for (size_t i = begin_; i < end_; ++i) {
      const Operation& op = from_.op(i);
      const OpDef* def = registry_.Find(op.type);
      bool any = false;
      for (const Slot& slot : op.inputs) {
        for (const std::string& name : slot.arguments) any |= Wanted(name);
      }
      const std::set<std::string> looped =
          op.type == "while" ? DependingOnLoop(op) : std::set<std::string>();
      for (const Slot& slot : op.outputs) {
        const int number = def == nullptr ? -1 : def->OutputSlot(slot.name);
        const bool constant = number >= 0 && def->outputs[number].constant;
        for (const std::string& name : slot.arguments) {
          if (!Counts(name)) continue;
          bool reached = op.type == "while" ? looped.contains(name) : any;
          // The other places of an array stay.
          reached |= IsArray(name) && Wanted(name);
          ++made_[name];
          depends_[name].push_back(reached && !constant && !Stops(name));
        }
      }
    }
  }

  // A parameter is given from outside, also behind the operation of an
  // optimizer that changed it.
  bool Counts(const std::string& name) const {
    const Variable* variable = from_.Find(name);
    return name != kEmptyName &&
           (variable == nullptr || !variable->is_parameter);
  }

  bool IsMade(const std::string& name) const {
    auto found = made_.find(name);
    return found != made_.end() && found->second > 0;
  }

  bool IsArray(const std::string& name) const {
    return records_.arrays.contains(name);
  }

  // Of the value that the variable has at this point of the walk.
  bool Wanted(const std::string& name) const {
    if (!IsMade(name)) {
      const bool empty = IsArray(name) && from_.FindHere(name) != nullptr;
      return !empty && WantedFromOutside(name);
    }
    return depends_.at(name)[made_.at(name) - 1];
  }

  Status Begin(const BackwardTarget& target) {
    if (from_.Find(target.variable) == nullptr) {
      return NotFound("backward: there is no variable ", target.variable);
    }
    if (!target.gradient.empty()) {
      if (to_.Find(target.gradient) == nullptr) {
        return NotFound("backward: there is no variable ", target.gradient);
      }
      parts_[target.variable].push_back(target.gradient);
      return OkStatus();
    }
    Append(Fill(target.variable, NewPart(target.variable), 1.0));
    return OkStatus();
  }

  // In reverse, the operations that a target depends on.
  void FindUses(const std::vector<BackwardTarget>& targets) {
    std::set<std::string> needed;
    for (const BackwardTarget& target : targets) needed.insert(target.variable);
    for (const auto& [name, gradients] : records_.arrays) needed.insert(name);
    on_path_.assign(end_, false);
    for (size_t i = end_; i-- > begin_;) {
      const Operation& op = from_.op(i);
      for (const Slot& slot : op.outputs) {
        for (const std::string& name : slot.arguments) {
          if (!Counts(name)) continue;
          const std::vector<bool>& versions = depends_.at(name);
          const bool any = std::find(versions.begin(), versions.end(), true) !=
                           versions.end();
          if (needed.contains(name) && any) on_path_[i] = true;
        }
      }
      if (!on_path_[i]) continue;
      for (const Slot& slot : op.inputs) {
        needed.insert(slot.arguments.begin(), slot.arguments.end());
      }
    }
  }

  // The gradient operation of operation `i`, if it is on the way.
  Status Visit(size_t i) {
    Operation& op = from_.op(i);
    bool any = false;
    for (const Slot& slot : op.outputs) {
      for (const std::string& name : slot.arguments) {
        if (!Counts(name)) continue;
        Settle(name);
        any |= gradients_.contains(name) || IsArray(name);
      }
    }
    if (!any || !on_path_[i]) {
      TakeGradients(op);
      return OkStatus();
    }
    if (op.type == "conditional_block") return VisitConditional(op);
    if (op.type == "while") return VisitLoop(i);
    if (op.type == "select_input") return VisitSelect(op);
    if (op.type == "read_from_array") return VisitRead(i);
    if (op.type == "write_to_array") return VisitWrite(i);
    const OpDef* def = registry_.Find(op.type);
    if (def == nullptr || !def->grad.exists()) return NoGradient(op);
    Operation grad{
        .type = op.type + "_grad", .attrs = op.attrs, .made_at = op.made_at};
    for (const GradSource& use : def->grad.uses) {
      RETURN_IF_ERROR(CheckUse(op, *def, use));
      AddUse(op, *def, use, grad);
    }
    TakeGradients(op);
    bool gives = false;
    for (int slot : def->grad.gives) {
      const std::string& name = def->inputs[slot].name;
      Slot out{name + std::string(kGradSuffix), {}};
      for (const std::string& argument : op.input(name)) {
        const bool wanted = Wanted(argument);
        out.arguments.push_back(wanted ? NewPart(argument)
                                       : std::string(kEmptyName));
        if (wanted && GivesRows(op, name)) {
          to_.Find(out.arguments.back())->kind = VariableKind::kSelectedRows;
        }
        gives |= wanted;
      }
      if (!out.arguments.empty()) grad.outputs.push_back(std::move(out));
    }
    if (gives) Append(std::move(grad));
    return OkStatus();
  }

  // Whether the gradient by input `slot` holds some rows only.
  static bool GivesRows(const Operation& op, const std::string& slot) {
    const AttrValue* sparse = op.attr("is_sparse");
    return op.type.starts_with("lookup_table") && slot == "W" &&
           sparse != nullptr && std::get<bool>(sparse->value);
  }

  Status NoGradient(const Operation& op) const {
    return Unimplemented(Where(op), " has no gradient, but ",
                         op.outputs[0].arguments[0],
                         " needs one; set stop_gradient on its inputs if none "
                         "should flow through it");
  }

  // The gradients of the outputs of `op`. Where an operation before it wrote
  // the same variable, or it works in place, further gradients by this name are
  // those of the older value.
  Gradients TakeGradients(const Operation& op) {
    Gradients taken;
    for (const Slot& slot : op.outputs) {
      for (const std::string& name : slot.arguments) {
        auto found = gradients_.find(name);
        if (found == gradients_.end() || !Counts(name)) continue;
        taken.emplace(*found);
        if (IsIn(op.inputs, name) || made_[name] > 1) gradients_.erase(found);
      }
    }
    for (const Slot& slot : op.outputs) {
      for (const std::string& name : slot.arguments) {
        if (Counts(name)) --made_[name];
      }
    }
    return taken;
  }

  static bool IsIn(const Slots& slots, const std::string& name) {
    return std::any_of(slots.begin(), slots.end(), [&](const Slot& slot) {
      return std::find(slot.arguments.begin(), slot.arguments.end(), name) !=
             slot.arguments.end();
    });
  }

  // The gradient must not read a variable that has another value by then.
  Status CheckUse(const Operation& op, const OpDef& def,
                  const GradSource& use) const {
    if (use.kind == GradSource::kOutputGrad) return OkStatus();
    const bool is_input = use.kind == GradSource::kInput;
    const std::vector<std::string>& names =
        is_input ? op.input(def.inputs[use.slot].name)
                 : op.output(def.outputs[use.slot].name);
    for (const std::string& name : names) {
      if (IsUnchanged(op, name, is_input)) continue;
      return Unimplemented(
          Where(op), ": its gradient needs the value that the variable ", name,
          " had then, but a later operation overwrites it; give that one's "
          "result another name");
    }
    return OkStatus();
  }

  // Whether no operation behind `op` changes the value that `name` has as its
  // input, or its output.
  bool IsUnchanged(const Operation& op, const std::string& name,
                   bool is_input) const {
    auto found = made_.find(name);
    if (found == made_.end()) return true;
    int version = found->second;
    if (is_input && IsIn(op.outputs, name)) --version;
    const auto last = static_cast<int>(depends_.at(name).size());
    const Variable* variable = from_.Find(name);
    return version == last || variable == nullptr || variable->persistable;
  }

  void AddUse(Operation& op, const OpDef& def, const GradSource& use,
              Operation& grad) {
    if (use.kind == GradSource::kInput) {
      const std::string& name = def.inputs[use.slot].name;
      if (!op.input(name).empty())
        grad.inputs.push_back({name, op.input(name)});
      return;
    }
    const std::string& name = def.outputs[use.slot].name;
    if (use.kind == GradSource::kOutput) {
      if (op.output(name).empty() && !def.outputs[use.slot].variadic) {
        AddOutput(op, name);
      }
      grad.inputs.push_back({name, op.output(name)});
      return;
    }
    Slot slot{name + std::string(kGradSuffix), {}};
    for (const std::string& argument : op.output(name)) {
      slot.arguments.push_back(GradientOrZeros(argument));
    }
    grad.inputs.push_back(std::move(slot));
  }

  // An output that only the gradient needs, and that whoever made the
  // operation left out.
  void AddOutput(Operation& op, const std::string& slot) {
    const std::string name =
        Unused(op.outputs[0].arguments[0] + "@" + slot, from_);
    std::erase_if(op.outputs, [&](const Slot& s) { return s.name == slot; });
    op.outputs.push_back({slot, {name}});
    from_.AddVariable({.name = name, .stop_gradient = true});
    // It was possible before, so it is now; its types are of no consequence.
    static_cast<void>(from_.InferTypes(registry_, op));
  }

  // An output that the targets do not depend on has a gradient of zeros.
  std::string GradientOrZeros(const std::string& name) {
    auto found = gradients_.find(name);
    if (found != gradients_.end()) return found->second;
    const std::string zeros = Unused(PlainName(name), to_);
    AddGradient(name, zeros);
    Append(Fill(name, zeros, 0.0));
    return zeros;
  }

  // ---- control flow

  // Only the chosen one of X gets a gradient; the others get no value.
  Status VisitSelect(const Operation& op) {
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

  int BodyOf(const Operation& op) const {
    const AttrValue* body = op.attr(kSubBlock);
    FLEET_CHECK(body != nullptr, op.type, " without sub_block");
    return static_cast<int>(std::get<int64_t>(body->value));
  }

  static Operation WithBody(const std::string& type, const Operation& forward,
                            const Block& body) {
    return {.type = type,
            .attrs = {{std::string(kSubBlock),
                       {AttrKind::kBlock, int64_t{body.index()}}}},
            .made_at = forward.made_at};
  }

  // The gradient of a branch is a branch under the same condition. What it
  // needs of the forward body's own variables becomes variables of this block.
  Status VisitConditional(Operation& op) {
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
    Backward inner(registry_, program_, body, grad_body, no_grad_, records_,
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

  // Variables of `body` that `grad_body` reads move to the block around it.
  void Hoist(Block& body, const Block& grad_body) {
    for (const std::string& name : UsesOf(program_, grad_body.index()).reads) {
      const Variable* variable = body.FindHere(name);
      if (variable == nullptr) continue;
      Variable moved = *variable;
      body.RemoveVariable(name);
      from_.AddVariable(std::move(moved));
    }
  }

  // Which outputs of a loop a gradient may be asked of: a value that is
  // constant at first may depend on others after the first turn.
  std::set<std::string> DependingOnLoop(const Operation& op) {
    Block& body = program_.block(BodyOf(op));
    std::set<std::string> wanted;
    for (const std::string& name : op.input("X")) {
      if (Wanted(name)) wanted.insert(name);
    }
    for (;;) {
      Backward inner(
          registry_, program_, body, body, no_grad_, records_,
          [&](const std::string& name) { return wanted.contains(name); });
      const size_t before = wanted.size();
      for (const std::string& name : inner.FindDepending(0)) {
        if (body.FindHere(name) == nullptr) wanted.insert(name);
      }
      if (wanted.size() == before) return wanted;
    }
  }

  // The gradient of a loop is a loop that goes back through its turns. The
  // forward body writes what that needs into arrays, one place for each turn.
  Status VisitLoop(size_t position) {
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
    Backward inner(
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

  // Hands the gradients of one turn to the turn before it, and adds up those of
  // what does not change from turn to turn.
  void EndTurn(const Gradients& gradients, const Gradients& state,
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

  Variable& AddCounter(Block& block, const std::string& name) {
    return block.AddVariable(
        {.name = name, .type = {DType::kInt64, {1}}, .stop_gradient = true});
  }

  static Operation Constant(const std::string& out) {
    return {.type = "fill_constant",
            .outputs = {{"Out", {out}}},
            .attrs = {{"shape", {AttrKind::kLongs, std::vector<int64_t>{1}}},
                      {"dtype",
                       {AttrKind::kInt, static_cast<int64_t>(DType::kInt64)}},
                      {"value", {AttrKind::kFloat, 0.0}}}};
  }

  static Operation Count(const std::string& counter, double step) {
    return {.type = "increment",
            .inputs = {{"X", {counter}}},
            .outputs = {{"Out", {counter}}},
            .attrs = {{"step", {AttrKind::kFloat, step}}}};
  }

  // A count of all turns of this loop, also when a loop around it begins it
  // again, says where things are saved. `start` is the count when it began, so
  // the gradient goes back to there.
  void JoinLoops(size_t position, Block& body, Block& grad_body) {
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

  // One more operation among those that are differentiated.
  void InsertForward(size_t position, Operation op) {
    SetRole(op, OpRole::kBackward);
    from_.Insert(position, std::move(op));
    ++end_;
    if (&from_ == &to_) ++appended_;
    on_path_.insert(on_path_.begin() + static_cast<ptrdiff_t>(position), false);
  }

  // ---- arrays

  const std::string& ArrayOfGradients(const std::string& array) {
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

  // The place that the operation at `position` reads or writes, under a name
  // that nobody changes: loops often count in place.
  std::string PlaceIn(size_t position) {
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

  Status VisitRead(size_t position) {
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

  // Also where no gradient is wanted: what was at this place before has none.
  Status VisitWrite(size_t position) {
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

  // ---- names

  // The name that people ask for. In a body it is another one: the block around
  // it may still give the plain one to its own.
  std::string PlainName(const std::string& name) const {
    std::string plain = GradName(name);
    if (&from_ != &to_) plain += "@block" + std::to_string(to_.index());
    return plain;
  }

  // A new variable for one more part of the gradient of `name`.
  std::string NewPart(const std::string& name) {
    std::vector<std::string>& parts = parts_[name];
    std::string part = PlainName(name);
    if (!parts.empty() || to_.Find(part) != nullptr) {
      part = Unused(part + "@RENAME@block" + std::to_string(to_.index()) + "@" +
                        std::to_string(parts.size()),
                    to_);
    }
    parts.push_back(part);
    own_.insert(part);
    AddGradient(name, part);
    return part;
  }

  static std::string Unused(std::string name, const Block& block) {
    while (block.Find(name) != nullptr) name += "@AGAIN";
    return name;
  }

  void AddGradient(const std::string& name, const std::string& gradient) {
    const Variable* variable = from_.Find(name);
    to_.AddVariable({.name = gradient,
                     .type = variable->type,
                     .lod_level = variable->lod_level,
                     .lod = variable->lod});
  }

  // The parts of the gradient of `name` are all there: adds them up.
  void Settle(const std::string& name) {
    auto found = parts_.find(name);
    if (found == parts_.end()) return;
    std::vector<std::string> parts = std::move(found->second);
    parts_.erase(found);
    if (parts.size() == 1) {
      gradients_[name] = parts[0];
      return;
    }
    // The sum gets the plain name, which people ask for.
    std::string sum = PlainName(name);
    auto plain = std::find(parts.begin(), parts.end(), sum);
    if (plain != parts.end() && own_.contains(sum)) {
      *plain = Unused(
          sum + "@RENAME@block" + std::to_string(to_.index()) + "@0", to_);
      AddGradient(name, *plain);
      to_.Find(*plain)->kind = to_.Find(sum)->kind;
      RenameIn(program_, to_, appended_, to_.num_ops(), sum, *plain);
    } else {
      sum = Unused(sum + "@SUM", to_);
      AddGradient(name, sum);
    }
    const bool rows =
        std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
          return to_.Find(part)->kind == VariableKind::kSelectedRows;
        });
    to_.Find(sum)->kind =
        rows ? VariableKind::kSelectedRows : VariableKind::kTensor;
    gradients_[name] = sum;
    Append({.type = "sum",
            .inputs = {{"X", std::move(parts)}},
            .outputs = {{"Out", {sum}}}});
  }

  void Append(Operation op) { AppendTo(to_, std::move(op)); }

  void AppendTo(Block& block, Operation op) {
    SetRole(op, OpRole::kBackward);
    block.Append(std::move(op));
  }

  const OpRegistry& registry_;
  Program& program_;
  Block& from_;
  Block& to_;
  const std::set<std::string>& no_grad_;
  Records& records_;
  const WantsOuter wants_outer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t appended_ = 0;              // the first operation that was added
  std::map<std::string, int> made_;  // how many operations write it
  // For each value that a variable gets, in order: whether a gradient can be
  // asked of it.
  std::map<std::string, std::vector<bool>> depends_;
  std::vector<bool> on_path_;
  std::map<std::string, std::vector<std::string>> parts_;
  std::set<std::string> own_;  // parts that were made here
  Gradients gradients_;
};

}  // namespace

std::string GradName(std::string_view variable) {
  return std::string(variable) + std::string(kGradSuffix);
}

OpRole RoleOf(const Operation& op) {
  const AttrValue* role = op.attr(kOpRole);
  const auto* number =
      role == nullptr ? nullptr : std::get_if<int64_t>(&role->value);
  return number == nullptr ? OpRole::kForward : static_cast<OpRole>(*number);
}

void SetRole(Operation& op, OpRole role) {
  op.attrs.insert_or_assign(
      std::string(kOpRole),
      AttrValue{AttrKind::kInt, static_cast<int64_t>(role)});
}

Result<std::map<std::string, std::string>> AppendBackward(
    const OpRegistry& registry, Program& program,
    const std::vector<BackwardTarget>& targets,
    const std::set<std::string>& no_grad) {
  Block& main = program.block(0);
  Records records{.arrays = FindArrays(program, targets)};
  Backward backward(registry, program, main, main, no_grad, records,
                    [](const std::string&) { return true; });
  Result<Gradients> gradients = backward.Run(0, targets);
  for (Operation& op : records.beginnings) {
    SetRole(op, OpRole::kBackward);
    main.Insert(0, std::move(op));
  }
  return gradients;
}

}  // namespace fleet::program
