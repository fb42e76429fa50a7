// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/parameter_server.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fleet/plan/lookups.h"
#include "fleet/plan/make_tables.h"
#include "fleet/plan/program_index.h"
#include "fleet/plan/read_updates.h"
#include "fleet/plan/remove_unread.h"

namespace fleet::plan {
namespace {

using program::AttrKind;
using program::Block;
using program::Operation;
using program::OpRole;
using program::Program;
using program::Variable;

Status CheckRole(const cluster::Role& role) {
  if (!role.is_collective && role.server_num > 0) return OkStatus();
  return FailedPrecondition("a plan for servers, but ", cluster::ToString(role),
                            " has none in its job");
}

// `type` on dense parameters or their gradients, with the ids of their tables.
struct DenseList {
  std::vector<std::string> names;
  std::vector<int64_t> ids;

  void Add(const std::string& name, table::TableId id) {
    names.push_back(name);
    ids.push_back(static_cast<int64_t>(id));
  }
};

Operation MakeDenseOp(const std::string& type, const DenseList& list,
                      bool in_place, OpRole role) {
  Operation op{.type = type,
               .inputs = {{"X", list.names}},
               .outputs = {},
               .attrs = {{"table_ids", {AttrKind::kInts, list.ids}}},
               .made_at = ""};
  if (in_place) op.outputs = {{"Out", list.names}};
  program::SetRole(op, role);
  return op;
}

std::string EndOf(PsMode mode) {
  if (mode == PsMode::kGeo) return "geo_step";
  return mode == PsMode::kAsync ? "recv" : "send_barrier";
}

bool IsEnd(const Operation& op) {
  return op.type == "geo_step" || op.type == "recv" ||
         op.type == "send_barrier";
}

// Reads the programs; changes nothing before all is known to work.
class Server final {
 public:
  Server(Program& main, Program& startup,
         const ParameterServerStrategy& strategy, const cluster::Role& role)
      : main_(main),
        startup_(startup),
        strategy_(strategy),
        role_(role),
        index_(main),
        startup_index_(startup) {}

  Status Read() {
    ASSIGN_OR_RETURN(sparse_, FindSparseParameters(main_, index_));
    std::set<std::string> with_rule;
    for (const auto& [name, parameter] : sparse_) with_rule.insert(name);
    ASSIGN_OR_RETURN(updates_, ReadUpdates(main_, index_, startup_index_,
                                           strategy_.schedules,
                                           is_geo() ? &with_rule : nullptr));
    // What nobody trains stays here, unless no worker could hold it.
    std::erase_if(sparse_, [&](const auto& entry) {
      return !entry.second.distributed && Find(entry.first) == nullptr &&
             UpdateOf(entry.first) == nullptr;
    });
    if (updates_.empty() && sparse_.empty()) {
      return FailedPrecondition(
          "the program updates no parameter and looks up no rows of servers, "
          "so that there is nothing to serve; call minimize on its loss first");
    }
    return MakeAllTables();
  }

  // After Read(). What can fail comes before the first change.
  Result<ParameterServerPlan> Run() {
    ParameterServerPlan plan;
    Rewrite rewrite;
    for (const auto& [name, parameter] : sparse_) {
      RewriteLookups(index_, parameter, *Find(name), false, rewrite);
      RETURN_IF_ERROR(RewriteRowGradients(index_, parameter, *Find(name),
                                          UpdateOf(name), rewrite)
                          .WithContext("parameter " + name));
    }
    if (!sparse_.empty()) plan.passes.emplace_back("serve_lookups");
    if (SendGradients(rewrite)) plan.passes.emplace_back("send_gradients");
    std::set<std::string> unread = RemoveUpdates(rewrite);
    EndStep(rewrite);
    const std::set<std::string> rates = Rates();
    rewrite.Apply(main_.block(0));  // from here on, index_ is of the past
    const std::set<std::string> state =
        RemoveUnread(main_, std::move(unread), rates);
    plan.passes.emplace_back("remove_updates");
    RewriteStartup(state);
    plan.passes.emplace_back("startup_of_worker");
    plan.tables = std::move(tables_);
    return plan;
  }

 private:
  bool is_geo() const { return strategy_.mode == PsMode::kGeo; }

  const ParameterUpdate* UpdateOf(const std::string& name) const {
    for (const ParameterUpdate& update : updates_) {
      if (update.parameter == name) return &update;
    }
    return nullptr;
  }

  // The table of a parameter, of this call or an earlier one.
  const ServedTable* Find(const std::string& name) const {
    for (const auto* tables : {&tables_, &strategy_.served}) {
      for (const ServedTable& table : *tables) {
        if (table.parameter == name) return &table;
      }
    }
    return nullptr;
  }

  Status MakeAllTables() {
    uint32_t next = strategy_.first_table_id;
    for (const ServedTable& table : strategy_.served) {
      next = std::max(next, static_cast<uint32_t>(table.spec.id) + 1);
    }
    const TableMaker maker(index_, startup_index_, strategy_, role_);
    for (const ParameterUpdate& update : updates_) {
      RETURN_IF_ERROR(Add(maker, update.parameter, &update, next)
                          .WithContext("parameter " + update.parameter));
    }
    for (const auto& [name, parameter] : sparse_) {
      if (UpdateOf(name) != nullptr) continue;
      RETURN_IF_ERROR(
          Add(maker, name, nullptr, next).WithContext("parameter " + name));
    }
    return OkStatus();
  }

  Status Add(const TableMaker& maker, const std::string& name,
             const ParameterUpdate* update, uint32_t& next) {
    if (const ServedTable* known = Find(name)) {
      if (update == nullptr) return OkStatus();
      return CheckSameUpdate(*known, update->options);
    }
    auto sparse = sparse_.find(name);
    const auto id = static_cast<table::TableId>(next);
    Result<ServedTable> table = sparse == sparse_.end()
                                    ? maker.Dense(id, *update)
                                    : maker.Sparse(id, sparse->second, update);
    RETURN_IF_ERROR(table.status());
    tables_.push_back(*std::move(table));
    ++next;
    return OkStatus();
  }

  static Status CheckSameUpdate(const ServedTable& known,
                                const table::UpdateOptions& update) {
    if (known.spec.update().rule == update.rule) return OkStatus();
    return InvalidArgument(
        "another program of this job updates it by another rule, and a "
        "table has one");
  }

  bool IsDense(const ParameterUpdate& update) const {
    return !sparse_.contains(update.parameter);
  }

  // All dense gradients leave together, when the last of them is complete.
  bool SendGradients(Rewrite& rewrite) const {
    if (is_geo()) return false;
    DenseList gradients;
    size_t complete = 0;
    for (const ParameterUpdate& update : updates_) {
      if (!IsDense(update)) continue;
      gradients.Add(update.gradient, Find(update.parameter)->spec.id);
      for (size_t at : index_.writers(update.gradient)) {
        if (at < update.op) complete = std::max(complete, at + 1);
      }
    }
    if (gradients.names.empty()) return false;
    rewrite.InsertBefore(
        complete, MakeDenseOp("send", gradients, false, OpRole::kBackward));
    return true;
  }

  // Returns what they read.
  std::set<std::string> RemoveUpdates(Rewrite& rewrite) const {
    for (const ParameterUpdate& update : updates_) {
      if (!is_geo() || !IsDense(update)) rewrite.Remove(update.op);
    }
    std::set<std::string> unread;
    for (size_t at : rewrite.removed()) {
      const std::set<std::string>& reads = index_.reads(at);
      unread.insert(reads.begin(), reads.end());
    }
    return unread;
  }

  // The last operation; that of an earlier call with it.
  void EndStep(Rewrite& rewrite) const {
    DenseList parameters;
    for (size_t at = 0; at < index_.block().num_ops(); ++at) {
      const Operation& op = index_.op(at);
      if (!IsEnd(op)) continue;
      rewrite.Remove(at);
      const auto& ids =
          std::get<std::vector<int64_t>>(op.attr("table_ids")->value);
      const std::vector<std::string>& names = op.input("X");
      for (size_t i = 0; i < names.size(); ++i) {
        parameters.Add(names[i], static_cast<table::TableId>(ids[i]));
      }
    }
    for (const ParameterUpdate& update : updates_) {
      if (!IsDense(update)) continue;
      parameters.Add(update.parameter, Find(update.parameter)->spec.id);
    }
    rewrite.InsertBefore(index_.block().num_ops(),
                         MakeDenseOp(EndOf(strategy_.mode), parameters, true,
                                     OpRole::kOptimize));
  }

  // Learning rates stay where people set and fetch them.
  std::set<std::string> Rates() const {
    std::set<std::string> rates;
    for (const ParameterUpdate& update : updates_) {
      for (std::string name : index_.op(update.op).input("LearningRate")) {
        for (const Operation* op = index_.maker(name);
             op != nullptr && op->type == "scale"; op = index_.maker(name)) {
          name = op->input("X")[0];
        }
        rates.insert(name);
      }
    }
    return rates;
  }

  // Without the state of rules and the rows of sparse tables; at its end the
  // workers agree on the values of dense parameters.
  void RewriteStartup(const std::set<std::string>& state) {
    Block& block = startup_.block(0);
    Rewrite rewrite;
    for (size_t at = 0; at < block.num_ops(); ++at) {
      const std::set<std::string>& writes = startup_index_.writes(at);
      if (writes.empty()) continue;
      if (std::includes(state.begin(), state.end(), writes.begin(),
                        writes.end())) {
        rewrite.Remove(at);
      } else if (writes.size() == 1 && sparse_.contains(*writes.begin()) &&
                 block.op(at).type != "fake_init") {
        rewrite.Remove(at);
        rewrite.InsertBefore(at, MakeFakeInit(*writes.begin()));
      }
    }
    DenseList parameters;
    for (const ServedTable& table : tables_) {
      if (table.sparse) continue;
      parameters.Add(table.parameter, table.spec.id);
      if (block.FindHere(table.parameter) == nullptr) {
        block.AddVariable(*main_.block(0).Find(table.parameter));
      }
    }
    if (!parameters.names.empty()) {
      rewrite.InsertBefore(
          block.num_ops(),
          MakeDenseOp("ps_init", parameters, true, OpRole::kForward));
    }
    rewrite.Apply(block);
    for (const std::string& name : state) {
      main_.block(0).RemoveVariable(name);
      block.RemoveVariable(name);
    }
  }

  Operation MakeFakeInit(const std::string& name) const {
    return {.type = "fake_init",
            .inputs = {},
            .outputs = {{"Out", {name}}},
            .attrs = {{"shape", {AttrKind::kLongs, Find(name)->shape}}},
            .made_at = ""};
  }

  Program& main_;
  Program& startup_;
  const ParameterServerStrategy& strategy_;
  const cluster::Role& role_;
  const ProgramIndex index_;
  const ProgramIndex startup_index_;
  std::map<std::string, SparseParameter> sparse_;
  std::vector<ParameterUpdate> updates_;
  std::vector<ServedTable> tables_;
};

}  // namespace

std::string_view ToString(PsMode mode) {
  switch (mode) {
    case PsMode::kSync:
      return "sync";
    case PsMode::kHalfAsync:
      return "half_async";
    case PsMode::kAsync:
      return "async";
    case PsMode::kGeo:
      return "geo";
  }
  return "?";
}

Result<PsMode> ParsePsMode(std::string_view name) {
  for (const PsMode mode :
       {PsMode::kSync, PsMode::kHalfAsync, PsMode::kAsync, PsMode::kGeo}) {
    if (name == ToString(mode)) return mode;
  }
  return InvalidArgument("mode '", name,
                         "' is none of sync, half_async, async and geo");
}

Result<ParameterServerPlan> ServeParameters(
    Program& main, Program& startup, const ParameterServerStrategy& strategy,
    const cluster::Role& role) {
  RETURN_IF_ERROR(CheckRole(role));
  Server server(main, startup, strategy, role);
  RETURN_IF_ERROR(server.Read());
  return server.Run();
}

Result<size_t> ServeLookups(Program& program,
                            const std::vector<ServedTable>& tables,
                            bool is_test) {
  const ProgramIndex index(program);
  std::map<std::string, SparseParameter> all;
  ASSIGN_OR_RETURN(all, FindSparseParameters(program, index));
  Rewrite rewrite;
  size_t count = 0;
  for (const ServedTable& table : tables) {
    auto found = all.find(table.parameter);
    if (!table.sparse || found == all.end()) continue;
    RewriteLookups(index, found->second, table, is_test, rewrite);
    RETURN_IF_ERROR(
        RewriteRowGradients(index, found->second, table, nullptr, rewrite)
            .WithContext("parameter " + table.parameter));
    count += found->second.lookups.size();
  }
  rewrite.Apply(program.block(0));
  return count;
}

Status RestoreLookups(Program& program,
                      const std::vector<ServedTable>& tables) {
  Block& block = program.block(0);
  Rewrite rewrite;
  std::vector<const ServedTable*> used;
  for (size_t at = 0; at < block.num_ops(); ++at) {
    const Operation& op = block.op(at);
    if (op.type != "distributed_lookup_table") continue;
    const std::string name = WordOf(op, "table_name");
    auto table =
        std::find_if(tables.begin(), tables.end(),
                     [&](const ServedTable& t) { return t.parameter == name; });
    if (table == tables.end()) {
      return NotFound("the program looks up ", name,
                      ", which is not among the tables of this job");
    }
    used.push_back(&*table);
    rewrite.Remove(at);
    for (size_t i = 0; i < op.input("Ids").size(); ++i) {
      Operation lookup{
          .type = WordOf(op, "lookup_table_version"),
          .inputs = {{"W", {name}}, {"Ids", {op.input("Ids")[i]}}},
          .outputs = {{"Out", {op.output("Outputs")[i]}}},
          .attrs = {{"padding_idx", op.attrs.at("padding_idx")},
                    {"is_sparse", {AttrKind::kBool, true}},
                    {"is_distributed", {AttrKind::kBool, !table->bounded}}},
          .made_at = op.made_at};
      program::SetRole(lookup, program::RoleOf(op));
      rewrite.InsertBefore(at, std::move(lookup));
    }
  }
  rewrite.Apply(block);
  for (const ServedTable* table : used) {
    if (block.Find(table->parameter) != nullptr) continue;
    block.AddVariable({.name = table->parameter,
                       .type = {program::DType::kFloat32, table->shape},
                       .persistable = true,
                       .is_parameter = true});
  }
  return OkStatus();
}

}  // namespace fleet::plan
