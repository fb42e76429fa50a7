// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/lookups.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "fleet/program/control.h"

namespace fleet::plan {
namespace {

using program::AttrKind;
using program::Operation;
using program::OpRole;

constexpr std::string_view kGradient = "_grad";

bool IsLookup(const Operation& op) {
  return op.type == "lookup_table" || op.type == "lookup_table_v2";
}

bool IsLookupGradient(const Operation& op) {
  return op.type == "lookup_table_grad" || op.type == "lookup_table_v2_grad";
}

bool IsDistributed(const Operation& op) {
  return FlagOf(op, "is_distributed") || FlagOf(op, "remote_prefetch");
}

int64_t PaddingOf(const Operation& op) {
  return static_cast<int64_t>(NumberOf(op, "padding_idx", -1.0));
}

// The attributes that all operations on a table have.
program::AttrMap TableAttrs(const ServedTable& table, const std::string& type,
                            int64_t padding_idx, bool is_test) {
  const auto id = static_cast<int64_t>(table.spec.id);
  const int64_t bound = table.bounded ? table.shape[0] : -1;
  return {{"table_id", {AttrKind::kInt, id}},
          {"table_name", {AttrKind::kString, table.parameter}},
          {"dim", {AttrKind::kInt, table.shape[1]}},
          {"bound", {AttrKind::kLong, bound}},
          {"padding_idx", {AttrKind::kLong, padding_idx}},
          {"is_test", {AttrKind::kBool, is_test}},
          {"lookup_table_version", {AttrKind::kString, type}}};
}

// Look-ups that one operation answers, before position `at`.
struct Group {
  size_t at = 0;
  std::vector<const Lookup*> lookups;
};

// Whether one of the operations [begin, end) that stay writes `name`.
bool Written(const ProgramIndex& index, const std::string& name, size_t begin,
             size_t end) {
  const std::vector<size_t>& writers = index.writers(name);
  return std::any_of(writers.begin(), writers.end(),
                     [&](size_t i) { return i >= begin && i < end; });
}

bool Read(const ProgramIndex& index, const std::string& name, size_t begin,
          size_t end) {
  const std::vector<size_t>& readers = index.readers(name);
  return std::any_of(readers.begin(), readers.end(),
                     [&](size_t i) { return i >= begin && i < end; });
}

// Takes `lookup` into the group, up to the group's place if its ids are there
// by then, or with the group down to its own place if nobody needs the rows
// before that.
bool Join(const ProgramIndex& index, const Lookup& lookup, Group& group) {
  if (!Written(index, lookup.ids, group.at, lookup.at) &&
      !Read(index, lookup.out, group.at, lookup.at)) {
    group.lookups.push_back(&lookup);
    return true;
  }
  for (const Lookup* other : group.lookups) {
    if (Read(index, other->out, group.at, lookup.at) ||
        Written(index, other->ids, group.at, lookup.at)) {
      return false;
    }
  }
  group.at = lookup.at;
  group.lookups.push_back(&lookup);
  return true;
}

std::vector<Group> MakeGroups(const ProgramIndex& index,
                              const SparseParameter& parameter, bool is_test) {
  using Kind = std::tuple<std::string, int64_t, bool>;
  std::vector<Group> groups;
  std::map<Kind, size_t> open;  // the last group of each kind
  for (const Lookup& lookup : parameter.lookups) {
    const Kind kind(lookup.type, lookup.padding_idx, lookup.is_test || is_test);
    auto found = open.find(kind);
    if (found != open.end() && Join(index, lookup, groups[found->second])) {
      continue;
    }
    open[kind] = groups.size();
    groups.push_back({.at = lookup.at, .lookups = {&lookup}});
  }
  return groups;
}

// Everything between backward and the update of a sparse parameter.
class GradientChain final {
 public:
  GradientChain(const ProgramIndex& index, const SparseParameter& parameter)
      : index_(index), parameter_(parameter) {}

  Status Follow(const std::string& gradient) {
    for (size_t at : index_.writers(gradient)) {
      if (!all_.insert(at).second) continue;
      const Operation& op = index_.op(at);
      if (IsLookupGradient(op) && op.input("W")[0] == parameter_.name) {
        parts_.insert(at);
      } else if (op.type == "sum") {
        for (const std::string& part : op.input("X")) {
          RETURN_IF_ERROR(Follow(part));
        }
      } else {
        return Unimplemented(
            "the gradient of its rows comes from ", Describe(op),
            ", and servers take what look-ups give alone. A clip by norm makes "
            "such a gradient: leave the parameter out of it (need_clip=False) "
            "or clip by value; or look it up with is_sparse=False, so that "
            "workers hold the whole parameter");
      }
    }
    return OkStatus();
  }

  void Add(const std::vector<size_t>& ops) {
    all_.insert(ops.begin(), ops.end());
  }

  // Nobody else may read what goes.
  Status Check(const ParameterUpdate* update) const {
    for (size_t at : all_) {
      for (const std::string& name : index_.writes(at)) {
        for (size_t reader : index_.readers(name)) {
          if (all_.contains(reader)) continue;
          if (update != nullptr && reader == update->op) continue;
          return Unimplemented(
              "its gradient ", name, " is read by ",
              Describe(index_.op(reader)),
              ", but goes to servers as the rows of its look-ups; look it up "
              "with is_sparse=False, so that workers hold the whole parameter");
        }
      }
    }
    return OkStatus();
  }

  const std::set<size_t>& all() const { return all_; }
  const std::set<size_t>& parts() const { return parts_; }

 private:
  const ProgramIndex& index_;
  const SparseParameter& parameter_;
  std::set<size_t> all_;
  std::set<size_t> parts_;  // gradients of look-ups
};

// Rows that are read by something else than look-ups would have to be here.
Status CheckReaders(const ProgramIndex& index, const SparseParameter& parameter,
                    const ParameterUpdate* update,
                    const std::set<size_t>& gone) {
  for (size_t at : index.readers(parameter.name)) {
    const Operation& op = index.op(at);
    if (IsLookup(op) || IsLookupGradient(op) || gone.contains(at) ||
        (update != nullptr && at == update->op)) {
      continue;
    }
    return Unimplemented("it is read by ", Describe(op),
                         " besides its look-ups, but its rows live on servers "
                         "only; look it up with is_sparse=False, so that "
                         "workers hold the whole parameter");
  }
  return OkStatus();
}

void Push(const ProgramIndex& index, const SparseParameter& parameter,
          const ServedTable& table, const std::set<size_t>& parts,
          Rewrite& rewrite) {
  using Kind = std::pair<std::string, int64_t>;
  std::map<Kind, std::pair<program::Slot, program::Slot>> kinds;
  for (size_t at : parts) {
    const Operation& op = index.op(at);
    const std::string type =
        op.type.substr(0, op.type.size() - kGradient.size());
    auto& [ids, grads] = kinds[Kind(type, PaddingOf(op))];
    ids.name = "Ids";
    grads.name = "Grads";
    ids.arguments.push_back(op.input("Ids")[0]);
    grads.arguments.push_back(op.input("Out@GRAD")[0]);
  }
  const ShowClickNames seen = ParseShowClick(parameter.entry);
  for (auto& [kind, slots] : kinds) {
    Operation push{.type = "distributed_push_sparse",
                   .inputs = {std::move(slots.first), std::move(slots.second)},
                   .outputs = {},
                   .attrs = TableAttrs(table, kind.first, kind.second, false),
                   .made_at = index.op(*parts.begin()).made_at};
    if (!seen.shows.empty()) {
      push.inputs.push_back({"Shows", {seen.shows}});
      push.inputs.push_back({"Clicks", {seen.clicks}});
    }
    program::SetRole(push, OpRole::kBackward);
    rewrite.InsertBefore(*parts.rbegin(), std::move(push));
  }
}

}  // namespace

Result<std::map<std::string, SparseParameter>> FindSparseParameters(
    const program::Program& program, const ProgramIndex& index) {
  std::map<std::string, SparseParameter> found;
  std::set<std::string> sparse;
  for (size_t at = 0; at < index.block().num_ops(); ++at) {
    const Operation& op = index.op(at);
    if (!IsLookup(op)) continue;
    const std::string& name = op.input("W")[0];
    if (FlagOf(op, "is_sparse") || IsDistributed(op)) sparse.insert(name);
    SparseParameter& parameter = found[name];
    parameter.name = name;
    parameter.distributed |= IsDistributed(op);
    if (parameter.entry.empty()) parameter.entry = WordOf(op, "entry");
    if (parameter.table_class.empty()) {
      parameter.table_class = WordOf(op, "table_class");
    }
    parameter.lookups.push_back({.at = at,
                                 .ids = op.input("Ids")[0],
                                 .out = op.output("Out")[0],
                                 .type = op.type,
                                 .padding_idx = PaddingOf(op),
                                 .is_test = FlagOf(op, "is_test")});
  }
  for (size_t b = 1; b < program.num_blocks(); ++b) {
    for (size_t i = 0; i < program.block(b).num_ops(); ++i) {
      const Operation& op = program.block(b).op(i);
      if (!IsLookup(op)) continue;
      const std::string& name = op.input("W")[0];
      if (!FlagOf(op, "is_sparse") && !IsDistributed(op) &&
          !sparse.contains(name)) {
        continue;
      }
      return Unimplemented(
          "parameter ", name, " is looked up by ", Describe(op),
          " in a branch or loop, where servers cannot be asked; look it up "
          "before, or with is_sparse=False");
    }
  }
  std::erase_if(found,
                [&](const auto& p) { return !sparse.contains(p.first); });
  return found;
}

Result<table::EntryRule> ParseEntry(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string rest =
      colon == std::string::npos ? "" : text.substr(colon + 1);
  const char* end = rest.data() + rest.size();
  if (kind.empty() || kind == "none" || kind == "show_click_entry") {
    return table::EntryRule(table::AdmitAll{});
  }
  if (kind == "count_filter_entry") {
    uint32_t count = 0;
    const auto [at, error] = std::from_chars(rest.data(), end, count);
    if (error == std::errc() && at == end) {
      return table::EntryRule(table::AdmitByCount{count});
    }
  } else if (kind == "probability_entry") {
    double probability = 0.0;
    const auto [at, error] = std::from_chars(rest.data(), end, probability);
    if (error == std::errc() && at == end) {
      return table::EntryRule(table::AdmitByProbability{probability});
    }
  }
  return InvalidArgument("entry '", text,
                         "' is none of count_filter_entry:COUNT, "
                         "probability_entry:PROBABILITY and "
                         "show_click_entry:SHOW:CLICK");
}

ShowClickNames ParseShowClick(const std::string& entry) {
  constexpr std::string_view kPrefix = "show_click_entry:";
  if (!entry.starts_with(kPrefix)) return {};
  const std::string names = entry.substr(kPrefix.size());
  const size_t colon = names.find(':');
  if (colon == std::string::npos) return {};
  return {names.substr(0, colon), names.substr(colon + 1)};
}

void RewriteLookups(const ProgramIndex& index, const SparseParameter& parameter,
                    const ServedTable& table, bool is_test, Rewrite& rewrite) {
  for (const Lookup& lookup : parameter.lookups) rewrite.Remove(lookup.at);
  for (const Group& group : MakeGroups(index, parameter, is_test)) {
    const Lookup& first = *group.lookups[0];
    const Operation& original = index.op(first.at);
    program::Slot ids{"Ids", {}};
    program::Slot outputs{"Outputs", {}};
    for (const Lookup* lookup : group.lookups) {
      ids.arguments.push_back(lookup->ids);
      outputs.arguments.push_back(lookup->out);
    }
    Operation op{.type = "distributed_lookup_table",
                 .inputs = {std::move(ids)},
                 .outputs = {std::move(outputs)},
                 .attrs = TableAttrs(table, first.type, first.padding_idx,
                                     first.is_test || is_test),
                 .made_at = original.made_at};
    program::SetRole(op, program::RoleOf(original));
    rewrite.InsertBefore(group.at, std::move(op));
  }
}

Status RewriteRowGradients(const ProgramIndex& index,
                           const SparseParameter& parameter,
                           const ServedTable& table,
                           const ParameterUpdate* update, Rewrite& rewrite) {
  GradientChain chain(index, parameter);
  if (update != nullptr) {
    RETURN_IF_ERROR(chain.Follow(update->gradient));
    chain.Add(update->folded);
  }
  // Gradients of another backward, which nobody may read.
  std::vector<size_t> unused;
  for (size_t at : index.readers(parameter.name)) {
    if (IsLookupGradient(index.op(at)) && !chain.all().contains(at)) {
      unused.push_back(at);
    }
  }
  chain.Add(unused);
  RETURN_IF_ERROR(chain.Check(update));
  RETURN_IF_ERROR(CheckReaders(index, parameter, update, chain.all()));
  for (size_t at : chain.all()) rewrite.Remove(at);
  if (!chain.parts().empty()) {
    Push(index, parameter, table, chain.parts(), rewrite);
  }
  return OkStatus();
}

}  // namespace fleet::plan
