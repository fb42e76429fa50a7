// SPDX-License-Identifier: Apache-2.0

// Which elementwise nodes run as one pass. A group of them runs where one of
// them stood: behind everything that it reads, before everybody who reads what
// it makes. Nodes between its first and its last may so come to stand on either
// side, as long as that is true.
//
// What one group makes and only others read, as in forward and backward, they
// compute again if that takes a few products and sums: in the cache these are
// faster than memory, and the value needs none. Sums over what is spread, and
// over everything, are part of the pass.

#include <algorithm>
#include <optional>
#include <utility>

#include "fleet/exec/chain.h"
#include "fleet/exec/chain_forms.h"
#include "fleet/exec/direct.h"

namespace fleet::exec {
namespace {

// Beyond this the search for a larger group costs more than it can save.
constexpr size_t kMaxMembers = 128;
// Smaller values stay in a cache from one pass to the next.
constexpr int64_t kMinRecomputed = 16384;
// In products or sums, for each value: measured, 0.06 ns an element each;
// writing and reading an element of a large value again takes 0.6 ns.
constexpr int kMaxCost = 4;

int CostOf(base::BlockOp op) {
  switch (op) {
    case base::BlockOp::kTanh:
    case base::BlockOp::kTanhGrad:
    case base::BlockOp::kSigmoid:
    case base::BlockOp::kSigmoidGrad:
    case base::BlockOp::kExp:
    case base::BlockOp::kLog:
    case base::BlockOp::kSqrt:
    case base::BlockOp::kDivide:
    case base::BlockOp::kDivideNumber:
    case base::BlockOp::kDivideInto:
      return kMaxCost + 1;
    default:
      return 1;
  }
}

class Pass {
 public:
  explicit Pass(Graph& graph)
      : g_(graph),
        forms_(graph.nodes.size()),
        group_of_(graph.nodes.size(), kNone),
        aliases_(graph.values.size()),
        changers_(graph.values.size()),
        dropped_(graph.values.size(), false) {
    for (size_t v = 0; v < g_.values.size(); ++v) {
      aliases_[g_.Home(static_cast<int>(v))].push_back(static_cast<int>(v));
    }
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      const Node& node = g_.nodes[i];
      forms_[i] = FindChainForm(g_, static_cast<int>(i));
      // Its kernel moves the running mean and variance, which are inputs.
      if (g_.Is(static_cast<int>(i), "batch_norm")) {
        for (size_t slot : {1, 2}) {
          const int running = g_.In(node, slot);
          if (running == kNone) continue;
          changers_[g_.Home(running)].push_back(static_cast<int>(i));
        }
      }
      if (node.gone || node.step->in_place.empty()) continue;
      for (int out : node.outputs) {
        if (out != kNone) changers_[out].push_back(static_cast<int>(i));
      }
    }
  }

  void Run() {
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      if (forms_[i]) Take(static_cast<int>(i));
    }
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      if (!forms_[i] || forms_[i]->numel < kMinRecomputed) continue;
      for (int value : Made(static_cast<int>(i))) {
        if (g_.numel(value) == forms_[i]->numel) Drop(value);
      }
    }
    for (const Group& group : groups_) Install(group);
  }

 private:
  struct Group {
    std::vector<int> members;  // nodes, in their order
    int at = kNone;            // that of them where the group runs
    std::vector<int> again;    // values of other groups that it computes, too
    std::shared_ptr<const Chain> chain;
  };

  // Where a node runs.
  int Position(int node) const {
    const int group = group_of_[node];
    return group == kNone ? node : groups_[group].at;
  }

  // The node whose step makes the memory of a value, or kNone.
  int MakerOf(int value) const {
    const Value& home = g_.values[g_.Home(value)];
    return home.origin == Value::kMade ? home.maker : kNone;
  }

  // Puts a node into the groups that make what it reads, if it can be, or into
  // one of its own.
  void Take(int node) {
    std::vector<int> makers;
    for (int value : g_.nodes[node].reads) {
      const int maker = MakerOf(value);
      const int group = maker == kNone ? kNone : group_of_[maker];
      if (group != kNone && NumelOf(groups_[group]) == forms_[node]->numel &&
          std::find(makers.begin(), makers.end(), group) == makers.end()) {
        makers.push_back(group);
      }
    }
    std::sort(makers.rbegin(), makers.rend());
    if (makers.size() > 1 && Join(node, makers)) return;
    for (int group : makers) {
      if (Join(node, {group})) return;
    }
    if (!forms_[node]->steps.empty()) Join(node, {});
  }

  // Makes one group of all of these and the node; the first takes them in.
  bool Join(int node, const std::vector<int>& groups) {
    Group joined;
    joined.members = {node};
    for (int group : groups) {
      const std::vector<int>& members = groups_[group].members;
      joined.members.insert(joined.members.end(), members.begin(),
                            members.end());
    }
    if (joined.members.size() > kMaxMembers) return false;
    std::sort(joined.members.begin(), joined.members.end());
    if (!FindPlace(joined)) return false;
    joined.chain = MakeChain(joined);
    if (joined.chain == nullptr) return false;
    const int into =
        groups.empty() ? static_cast<int>(groups_.size()) : groups[0];
    if (groups.empty()) groups_.emplace_back();
    for (int group : groups) groups_[group] = {};
    for (int member : joined.members) group_of_[member] = into;
    groups_[into] = std::move(joined);
    return true;
  }

  int64_t NumelOf(const Group& group) const {
    return forms_[group.members[0]]->numel;
  }

  static bool Has(const Group& group, int node) {
    return std::binary_search(group.members.begin(), group.members.end(), node);
  }

  // Finds the last member with steps that stands behind all that the group
  // reads and before all who read what it makes; false if there is none.
  bool FindPlace(Group& group) const {
    int after = kNone;
    int before = static_cast<int>(g_.nodes.size());
    for (int member : group.members) {
      for (int value : Used(member)) {
        const int maker = MakerOf(value);
        if (maker == kNone) continue;
        if (!Has(group, maker)) {
          after = std::max(after, Position(maker));
        } else if (g_.numel(value) != NumelOf(group)) {
          return false;  // a sum is there when all is done
        }
      }
      for (int value : Made(member)) {
        for (int alias : aliases_[value]) {
          for (int reader : g_.values[alias].readers) {
            if (!Has(group, reader))
              before = std::min(before, Position(reader));
          }
        }
      }
    }
    group.at = kNone;
    for (int member : group.members) {
      if (member < before && !forms_[member]->steps.empty()) group.at = member;
    }
    if (group.at <= after) return false;
    return std::all_of(
        group.members.begin(), group.members.end(),
        [&](int member) { return SeesTheSame(member, group.at); });
  }

  // Whether a node reads the same at another place: nobody changes the memory
  // of what it reads between the two.
  bool SeesTheSame(int node, int at) const {
    for (int value : Used(node)) {
      for (int changer : changers_[g_.Home(value)]) {
        if ((changer < node) != (changer < at)) return false;
      }
    }
    return true;
  }

  // Values that the steps of a node read or write.
  std::vector<int> Used(int node) const {
    std::vector<int> used;
    for (const ChainStep& step : forms_[node]->steps) {
      for (const ChainOperand* operand :
           {&step.a, &step.b, &step.c, &step.s, &step.t}) {
        if (operand->from == ChainOperand::kValue ||
            operand->from == ChainOperand::kNumber) {
          used.push_back(operand->index);
        }
      }
    }
    std::erase(used, kNone);
    return used;
  }
  std::vector<int> Made(int node) const {
    std::vector<int> made;
    for (const ChainStep& step : forms_[node]->steps) {
      if (step.out.from == ChainOperand::kValue) made.push_back(step.out.index);
    }
    return made;
  }

  // Whether the group becomes one node: one operation alone has a form that
  // knows more about it.
  bool IsInstalled(const Group& group) const {
    const auto steps = std::count_if(
        group.members.begin(), group.members.end(),
        [&](int member) { return !forms_[member]->steps.empty(); });
    return steps > 1 || (steps == 1 && !g_.nodes[group.at].direct);
  }

  // ---- values that are computed again

  // Lets the readers of a value compute it, if all of them can.
  void Drop(int value) {
    const int home_group = group_of_[MakerOf(value)];
    if (home_group == kNone || !IsInstalled(groups_[home_group])) return;
    std::vector<std::pair<int, Group>> readers;  // as they would be
    for (int alias : aliases_[value]) {
      const Value& v = g_.values[alias];
      if (v.needed_after || v.pinned) return;
      for (int reader : v.readers) {
        const int group = group_of_[reader];
        if (group == home_group) continue;
        if (group == kNone || !IsInstalled(groups_[group])) return;
        if (std::none_of(readers.begin(), readers.end(),
                         [&](const auto& r) { return r.first == group; })) {
          readers.emplace_back(group, groups_[group]);
        }
      }
    }
    if (readers.empty()) return;
    for (auto& [number, group] : readers) {
      int cost = 0;
      if (!Recompute(value, group, cost)) return;
      group.chain = MakeChain(group);
      if (group.chain == nullptr) return;
    }
    dropped_[value] = true;
    std::shared_ptr<const Chain> without = MakeChain(groups_[home_group]);
    if (without == nullptr) {
      dropped_[value] = false;
      return;
    }
    groups_[home_group].chain = std::move(without);
    for (auto& [number, group] : readers) groups_[number] = std::move(group);
  }

  // Adds a value, and those that it is made of and that are not in memory, to
  // what a group computes again. False where it costs too much, or where what
  // it takes is not there any more; then the group is of no use.
  bool Recompute(int value, Group& group, int& cost) const {
    if (std::find(group.again.begin(), group.again.end(), value) !=
        group.again.end()) {
      return true;
    }
    const int maker = MakerOf(value);
    if (!SeesTheSame(maker, group.at)) return false;
    for (const ChainStep& step : StepsOf(value)) {
      cost += CostOf(step.op);
      if (cost > kMaxCost) return false;
      for (const ChainOperand* operand :
           {&step.a, &step.b, &step.c, &step.s, &step.t}) {
        if (operand->index == kNone ||
            operand->from == ChainOperand::kTemporary) {
          continue;
        }
        const int home = g_.Home(operand->index);
        if (IsInMemory(home)) {
          if (!LivesUntil(home, group.at)) return false;
        } else if (!Recompute(home, group, cost)) {
          return false;
        }
      }
    }
    group.again.push_back(value);
    return true;
  }

  // The steps that make a value out of others.
  std::vector<ChainStep> StepsOf(int value) const {
    const std::vector<ChainStep>& all = forms_[MakerOf(value)]->steps;
    std::vector<ChainStep> steps;
    std::vector<int> wanted;  // temporaries
    for (size_t i = all.size(); i-- > 0;) {
      const ChainOperand& out = all[i].out;
      const bool makes_it = out.from == ChainOperand::kTemporary
                                ? std::find(wanted.begin(), wanted.end(),
                                            out.index) != wanted.end()
                                : out.index == value;
      if (!makes_it) continue;
      for (const ChainOperand* operand : {&all[i].a, &all[i].b, &all[i].c}) {
        if (operand->from == ChainOperand::kTemporary) {
          wanted.push_back(operand->index);
        }
      }
      steps.insert(steps.begin(), all[i]);
    }
    return steps;
  }

  bool IsInMemory(int home) const {
    const int maker = MakerOf(home);
    const int group = maker == kNone ? kNone : group_of_[maker];
    if (group == kNone || !IsInstalled(groups_[group])) return true;
    return !dropped_[home] && IsNeeded(groups_[group], home);
  }

  // Whether its memory is kept until then anyway.
  bool LivesUntil(int home, int position) const {
    if (g_.values[home].origin != Value::kMade) return true;
    return std::any_of(
        aliases_[home].begin(), aliases_[home].end(), [&](int alias) {
          const Value& v = g_.values[alias];
          return v.needed_after ||
                 std::any_of(
                     v.readers.begin(), v.readers.end(),
                     [&](int reader) { return Position(reader) >= position; });
        });
  }

  // ---- chains

  // Whether somebody besides the group wants a value that it makes.
  bool IsNeeded(const Group& group, int value) const {
    return std::any_of(
        aliases_[value].begin(), aliases_[value].end(), [&](int alias) {
          const Value& v = g_.values[alias];
          return v.needed_after || v.pinned ||
                 std::any_of(v.readers.begin(), v.readers.end(),
                             [&](int reader) { return !Has(group, reader); });
        });
  }

  std::shared_ptr<const Chain> MakeChain(const Group& group) const {
    std::vector<ChainStep> steps;
    int num_temporaries = 0;
    auto is_again = [&](int value) {
      return std::find(group.again.begin(), group.again.end(), value) !=
             group.again.end();
    };
    auto settle = [&](ChainOperand operand) {
      if (operand.from == ChainOperand::kTemporary) {
        operand.index += num_temporaries;
      } else if (operand.from == ChainOperand::kValue) {
        // What the chain makes may be read under another name.
        const int maker = MakerOf(operand.index);
        const int home = g_.Home(operand.index);
        if ((maker != kNone && Has(group, maker)) || is_again(home)) {
          operand.index = home;
        }
      }
      return operand;
    };
    auto add = [&](const std::vector<ChainStep>& list, int node) {
      for (ChainStep step : list) {
        step.a = settle(step.a);
        step.b = settle(step.b);
        step.c = settle(step.c);
        step.out = settle(step.out);
        steps.push_back(step);
      }
      num_temporaries += forms_[node]->num_temporaries;
    };
    for (int value : group.again) add(StepsOf(value), MakerOf(value));
    for (int member : group.members) add(forms_[member]->steps, member);
    return Chain::Make(NumelOf(group), steps, [&](int value) {
      return !is_again(value) && !dropped_[value] && IsNeeded(group, value);
    });
  }

  void Install(const Group& group) {
    if (group.members.empty() || !IsInstalled(group)) return;
    for (int member : group.members) {
      Node& node = g_.nodes[member];
      node.gone = member != group.at;
      node.outputs.clear();
      node.reads.clear();
    }
    Node& node = g_.nodes[group.at];
    node.fused = true;
    node.outputs = group.chain->writes();
    g_.Reads(group.at, group.chain->reads());
    node.direct = [chain = group.chain](void* const* m) { chain->Run(m); };
  }

  Graph& g_;
  std::vector<std::optional<ChainForm>> forms_;  // by node
  std::vector<Group> groups_;                    // an empty one was taken in
  std::vector<int> group_of_;                    // by node
  std::vector<std::vector<int>> aliases_;   // by value: who lives in its memory
  std::vector<std::vector<int>> changers_;  // by value: nodes
  std::vector<bool> dropped_;  // by value: its readers compute it again
};

}  // namespace

void FuseChains(Graph& graph) { Pass(graph).Run(); }

}  // namespace fleet::exec
