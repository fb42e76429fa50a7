// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/recompute.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "fleet/program/control.h"
#include "fleet/program/op_role.h"

namespace fleet::plan {
namespace {

using program::Block;
using program::kEmptyName;
using program::OpDef;
using program::Operation;
using program::OpRegistry;
using program::OpRole;
using program::Program;
using program::Slot;
using program::Uses;
using program::Variable;
using program::VariableKind;

constexpr size_t kNowhere = static_cast<size_t>(-1);

bool IsBackward(const Operation& op) {
  return (static_cast<int>(RoleOf(op)) & static_cast<int>(OpRole::kBackward)) !=
         0;
}

// Whether it draws numbers, so that it makes something else every time.
bool Draws(const OpDef& def) {
  return def.AttrIndex("seed") >= 0 || def.AttrIndex("dropout_prob") >= 0 ||
         def.name == "bernoulli" || def.name == "poisson" ||
         def.name == "multinomial";
}

class Pass {
 public:
  Pass(const OpRegistry& registry, Program& program)
      : registry_(registry), program_(program), block_(program.block(0)) {}

  Result<size_t> Run(const std::vector<std::string>& checkpoints) {
    RETURN_IF_ERROR(Look());
    std::set<size_t> ends;  // of segments: the operations that make checkpoints
    for (const std::string& name : checkpoints) {
      auto found = made_by_.find(name);
      if (found == made_by_.end()) {
        return NotFound("recompute: no operation of forward makes ", name,
                        ", which is given as a checkpoint");
      }
      ends.insert(found->second.back());
      kept_.insert(name);
    }
    std::vector<Repeat> repeats;
    size_t begin = 0;
    for (size_t end : ends) {
      if (Repeat repeat = Choose(begin, end + 1); !repeat.ops.empty()) {
        repeats.push_back(std::move(repeat));
      }
      begin = end + 1;
    }
    return Rewrite(std::move(repeats));
  }

 private:
  // What is computed again of one segment.
  struct Repeat {
    std::vector<size_t> ops;      // in order
    std::set<std::string> names;  // that backward reads
    size_t before = kNowhere;     // the first operation of backward that does
  };

  // Where backward begins, and who reads and writes what.
  Status Look() {
    end_ = block_.num_ops();
    while (end_ > 0 && IsBackward(block_.op(end_ - 1))) --end_;
    if (end_ == block_.num_ops()) {
      return FailedPrecondition(
          "recompute: the program does not end with backward");
    }
    for (size_t i = 0; i < block_.num_ops(); ++i) {
      const Uses uses = UsesOf(program_, block_.op(i));
      for (const std::string& name : uses.writes) {
        made_by_[name].push_back(i);
      }
      if (i < end_) continue;
      for (const std::string& name : uses.reads) read_at_.try_emplace(name, i);
    }
    return OkStatus();
  }

  bool HasOneValue(const std::string& name) const {
    auto found = made_by_.find(name);
    return found == made_by_.end() || found->second.size() == 1;
  }

  // Whether operation `i` makes the same from the same a second time, and
  // changes nothing else.
  bool CanRepeat(size_t i) const {
    const Operation& op = block_.op(i);
    const OpDef* def = registry_.Find(op.type);
    if (def == nullptr || def->external || IsBackward(op) ||
        !BodiesOf(op).empty()) {
      return false;
    }
    if (Draws(*def)) return false;
    for (const Slot& slot : op.inputs) {
      for (const std::string& name : slot.arguments) {
        if (!HasOneValue(name)) return false;
      }
    }
    for (const Slot& slot : op.outputs) {
      for (const std::string& name : slot.arguments) {
        if (name == kEmptyName) continue;
        const Variable* variable = block_.Find(name);
        if (variable == nullptr || variable->persistable ||
            variable->kind != VariableKind::kTensor || !HasOneValue(name)) {
          return false;
        }
      }
    }
    return true;
  }

  // Chooses those of the operations [begin, end) that backward needs something
  // of, directly or by others.
  Repeat Choose(size_t begin, size_t end) const {
    Repeat repeat;
    std::set<std::string> needed;
    for (size_t i = end; i-- > begin;) {
      if (!CanRepeat(i)) continue;
      bool is_needed = false;
      for (const Slot& slot : block_.op(i).outputs) {
        for (const std::string& name : slot.arguments) {
          if (kept_.contains(name)) continue;
          auto reader = read_at_.find(name);
          if (reader != read_at_.end()) {
            repeat.names.insert(name);
            repeat.before = std::min(repeat.before, reader->second);
            is_needed = true;
          }
          is_needed |= needed.contains(name);
        }
      }
      if (!is_needed) continue;
      repeat.ops.push_back(i);
      for (const Slot& slot : block_.op(i).inputs) {
        needed.insert(slot.arguments.begin(), slot.arguments.end());
      }
    }
    std::reverse(repeat.ops.begin(), repeat.ops.end());
    return repeat;
  }

  std::string AddCopy(const std::string& name) {
    std::string copy = name + "@AGAIN";
    while (block_.Find(copy) != nullptr) copy += "@AGAIN";
    Variable variable = *block_.Find(name);
    variable.name = copy;
    block_.AddVariable(std::move(variable));
    return copy;
  }

  size_t Rewrite(std::vector<Repeat> repeats) {
    size_t count = 0;
    std::multimap<size_t, Operation> added;  // by the position they go before
    for (const Repeat& repeat : repeats) {
      std::map<std::string, std::string> names;
      for (size_t i : repeat.ops) {
        Operation op = block_.op(i);
        for (Slot& slot : op.inputs) {
          for (std::string& name : slot.arguments) {
            auto found = names.find(name);
            if (found != names.end()) name = found->second;
          }
        }
        for (Slot& slot : op.outputs) {
          for (std::string& name : slot.arguments) {
            if (name == kEmptyName) continue;
            const std::string copy = AddCopy(name);
            // A checkpoint is made again beside others, and read as it was.
            if (!kept_.contains(name)) names[name] = copy;
            name = copy;
          }
        }
        SetRole(op, OpRole::kBackward);
        added.emplace(repeat.before, std::move(op));
        ++count;
      }
      for (const std::string& name : repeat.names) {
        RenameIn(program_, block_, end_, block_.num_ops(), name,
                 names.at(name));
      }
    }
    size_t shift = 0;
    for (auto& [before, op] : added) {
      block_.Insert(before + shift++, std::move(op));
    }
    return count;
  }

  const OpRegistry& registry_;
  Program& program_;
  Block& block_;
  size_t end_ = 0;  // of forward
  std::map<std::string, std::vector<size_t>> made_by_;
  std::map<std::string, size_t> read_at_;  // first, by backward
  std::set<std::string> kept_;
};

}  // namespace

Result<size_t> Recompute(const OpRegistry& registry, Program& program,
                         const std::vector<std::string>& checkpoints) {
  return Pass(registry, program).Run(checkpoints);
}

}  // namespace fleet::plan
