// SPDX-License-Identifier: Apache-2.0

// Look-ups of rows that live on servers: which there are, and how they become
// operations that ask for rows and give gradients of rows away.

#ifndef FLEET_PLAN_LOOKUPS_H_
#define FLEET_PLAN_LOOKUPS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/plan/parameter_server.h"
#include "fleet/plan/program_index.h"
#include "fleet/plan/read_updates.h"

namespace fleet::plan {

// A lookup_table or lookup_table_v2.
struct Lookup {
  size_t at = 0;
  std::string ids;
  std::string out;
  std::string type;
  int64_t padding_idx = -1;
  bool is_test = false;
};

// A parameter that is_sparse or is_distributed look-ups read.
struct SparseParameter {
  std::string name;
  bool distributed = false;  // any 64-bit id
  std::vector<Lookup> lookups;
  std::string entry;        // "", "count_filter_entry:10", ...
  std::string table_class;  // "", "MemorySparseTable", "SSDSparseTable"
};

// By name. Unimplemented for one whose look-ups stand in a branch or loop.
Result<std::map<std::string, SparseParameter>> FindSparseParameters(
    const program::Program& program, const ProgramIndex& index);

// "count_filter_entry:10", "probability_entry:0.1", "none" and "" as rules.
// show_click_entry admits all. InvalidArgument for other words.
Result<table::EntryRule> ParseEntry(const std::string& text);
// The variables of "show_click_entry:SHOW:CLICK"; empty for other entries.
struct ShowClickNames {
  std::string shows;
  std::string clicks;
};
ShowClickNames ParseShowClick(const std::string& entry);

// One operation for all look-ups that can be answered together: equal in
// padding and shape of ids, none of whose ids depend on rows of another.
void RewriteLookups(const ProgramIndex& index, const SparseParameter& parameter,
                    const ServedTable& table, bool is_test, Rewrite& rewrite);

// The operations that give the rows' gradients of `parameter` away, and without
// those that made a gradient for `update` of them. Unimplemented when
// something else reads that gradient, or makes a part of it.
Status RewriteRowGradients(const ProgramIndex& index,
                           const SparseParameter& parameter,
                           const ServedTable& table,
                           const ParameterUpdate* update, Rewrite& rewrite);

}  // namespace fleet::plan

#endif  // FLEET_PLAN_LOOKUPS_H_
