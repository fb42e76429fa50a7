// SPDX-License-Identifier: Apache-2.0

// Which elementwise nodes run as one pass. A group of them runs where one of
// them stood: behind everything that it reads, before everybody who reads what
// it makes. Nodes between its first and its last may so come to stand on either
// side, as long as that is true.

#include <algorithm>
#include <optional>
#include <utility>

#include "fleet/exec/chain.h"
#include "fleet/exec/chain_forms.h"
#include "fleet/exec/direct.h"
#include "fleet/exec/spread.h"

namespace fleet::exec {
namespace {

// Beyond this the search for a larger group costs more than it can save.
constexpr size_t kMaxMembers = 64;

class Pass {
 public:
  explicit Pass(Graph& graph)
      : g_(graph),
        forms_(graph.nodes.size()),
        group_of_(graph.nodes.size(), kNone),
        aliases_(graph.values.size()),
        changers_(graph.values.size()) {
    for (size_t v = 0; v < g_.values.size(); ++v) {
      aliases_[g_.Home(static_cast<int>(v))].push_back(static_cast<int>(v));
    }
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      const Node& node = g_.nodes[i];
      forms_[i] = FindChainForm(g_, static_cast<int>(i));
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
    for (const Group& group : groups_) Install(group);
  }

 private:
  struct Group {
    std::vector<int> members;  // nodes, in their order
    int at = kNone;            // that of them where the group runs
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
      if (group != kNone && g_.numel(value) == forms_[node]->numel &&
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
        if (maker == kNone || Has(group, maker)) continue;
        after = std::max(after, Position(maker));
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
    auto settle = [&](ChainOperand operand) {
      if (operand.from == ChainOperand::kTemporary) {
        operand.index += num_temporaries;
      } else if (operand.from == ChainOperand::kValue) {
        // What a member made may be read under another name.
        const int maker = MakerOf(operand.index);
        if (maker != kNone && Has(group, maker)) {
          operand.index = g_.Home(operand.index);
        }
      }
      return operand;
    };
    for (int member : group.members) {
      for (ChainStep step : forms_[member]->steps) {
        step.a = settle(step.a);
        step.b = settle(step.b);
        step.c = settle(step.c);
        step.out = settle(step.out);
        steps.push_back(step);
      }
      num_temporaries += forms_[member]->num_temporaries;
    }
    return Chain::Make(forms_[group.members[0]]->numel, steps,
                       [&](int value) { return IsNeeded(group, value); });
  }

  void Install(const Group& group) {
    if (group.members.empty()) return;
    const auto steps = std::count_if(
        group.members.begin(), group.members.end(),
        [&](int member) { return !forms_[member]->steps.empty(); });
    // One operation alone has a form that knows more about it.
    if (steps == 1 && g_.nodes[group.at].direct) return;
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
};

}  // namespace

void SplitGradients(Graph& graph) {
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    nodes.push_back(std::move(graph.nodes[i]));
    Node& node = nodes.back();
    if (node.kernel == nullptr || !node.kernel->backward ||
        node.kernel->def->name != "elementwise_mul") {
      continue;
    }
    const int dx = graph.Out(node, 0), dy = graph.Out(node, 1);
    if (!graph.AreFloat({dx, dy}) || graph.numel(dx) == graph.numel(dy)) {
      continue;
    }
    const auto spread = ReadSpread(graph, node, graph.In(node, 0),
                                   graph.In(node, 1), graph.In(node, 2));
    if (!spread || spread->same()) continue;
    Node sums = node;
    node.outputs = {dx, kNone};
    sums.outputs = {kNone, dy};
    nodes.push_back(std::move(sums));
  }
  graph.nodes = std::move(nodes);
  graph.CountReaders();
}

void FuseChains(Graph& graph) { Pass(graph).Run(); }

}  // namespace fleet::exec
