// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/remove_unread.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fleet/plan/program_index.h"

namespace fleet::plan {
namespace {

using program::Operation;
using program::OpRole;
using program::Variable;

class Remover final {
 public:
  explicit Remover(const program::Program& program) : index_(program) {}

  // Whether only operations that are gone, or that advance it and nothing
  // else (a counter of steps), read `name`.
  bool IsUnread(const std::string& name) const {
    const std::vector<size_t>& readers = index_.readers(name);
    return std::all_of(readers.begin(), readers.end(), [&](size_t at) {
      return rewrite_.removes(at) || Advances(at, name);
    });
  }

  // Removes what writes `name`; returns what that read.
  std::set<std::string> RemoveWriters(const std::string& name) {
    std::set<std::string> freed;
    for (size_t at : index_.writers(name)) {
      if (rewrite_.removes(at) || !IsOfOptimizer(at)) continue;
      const std::set<std::string>& writes = index_.writes(at);
      if (!std::all_of(writes.begin(), writes.end(),
                       [&](const std::string& w) { return IsUnread(w); })) {
        continue;
      }
      rewrite_.Remove(at);
      freed.insert(index_.reads(at).begin(), index_.reads(at).end());
      freed.insert(writes.begin(), writes.end());
    }
    freed.erase(name);
    return freed;
  }

  bool IsUntouched(const std::string& name) const {
    const std::vector<size_t>& writers = index_.writers(name);
    return IsUnread(name) &&
           std::all_of(writers.begin(), writers.end(),
                       [&](size_t at) { return rewrite_.removes(at); });
  }

  void Apply(program::Block& block) { rewrite_.Apply(block); }

 private:
  bool IsOfOptimizer(size_t at) const {
    return HasRole(index_.op(at), OpRole::kOptimize) ||
           HasRole(index_.op(at), OpRole::kSchedule);
  }
  bool Advances(size_t at, const std::string& name) const {
    return IsOfOptimizer(at) && index_.writes(at) == std::set{name};
  }

  const ProgramIndex index_;
  Rewrite rewrite_;
};

}  // namespace

std::set<std::string> RemoveUnread(program::Program& program,
                                   std::set<std::string> candidates,
                                   const std::set<std::string>& keep) {
  program::Block& block = program.block(0);
  auto may_go = [&](const std::string& name) {
    const Variable* variable = block.Find(name);
    return variable == nullptr ||
           (!variable->is_parameter && !variable->is_data);
  };
  Remover remover(program);
  std::set<std::string> seen;
  while (!candidates.empty()) {
    const std::string name = *candidates.begin();
    candidates.erase(candidates.begin());
    if (!may_go(name) || !remover.IsUnread(name)) continue;
    seen.insert(name);
    candidates.merge(remover.RemoveWriters(name));
  }
  std::set<std::string> untouched;
  for (const std::string& name : seen) {
    const Variable* variable = block.Find(name);
    if (variable != nullptr && variable->persistable && !keep.contains(name) &&
        remover.IsUntouched(name)) {
      untouched.insert(name);
    }
  }
  remover.Apply(block);
  return untouched;
}

}  // namespace fleet::plan
