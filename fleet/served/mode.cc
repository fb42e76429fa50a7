// SPDX-License-Identifier: Apache-2.0
#include "fleet/served/mode.h"

#include <utility>

namespace fleet::served {

Status Mode::AddTables(std::vector<ServedTable> tables) {
  tables_.Add(std::move(tables));
  return OkStatus();
}

Status Mode::Initialize(std::span<const DenseValues> values) {
  return InitializeDense(client_, options_.worker == 0, values, deadline());
}

Status Mode::Fetch(TableId table, std::span<const RowsOfIds> lookups,
                   const LookupOptions& options) {
  ASSIGN_OR_RETURN(const ServedTable* const served, tables_.FindSparse(table));
  return PullRows(client_, *served, lookups, options, pool_, deadline());
}

Status Mode::PullDense(std::span<const DenseValues> values) {
  if (values.empty()) return OkStatus();
  return client_.PullDenseMany(values, deadline());
}

}  // namespace fleet::served
