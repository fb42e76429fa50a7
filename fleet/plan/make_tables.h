// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PLAN_MAKE_TABLES_H_
#define FLEET_PLAN_MAKE_TABLES_H_

#include <cstdint>
#include <string>

#include "fleet/base/status.h"
#include "fleet/plan/lookups.h"
#include "fleet/plan/parameter_server.h"
#include "fleet/plan/program_index.h"
#include "fleet/plan/read_updates.h"

namespace fleet::plan {

// Parameters of a program as tables.
class TableMaker final {
 public:
  // All outlive the maker.
  TableMaker(const ProgramIndex& main, const ProgramIndex& startup,
             const ParameterServerStrategy& strategy, const cluster::Role& role)
      : main_(main), startup_(startup), strategy_(strategy), role_(role) {}

  // Errors are about the parameter, whose name the caller adds.
  Result<ServedTable> Dense(table::TableId id,
                            const ParameterUpdate& update) const;
  // Without `update`, rows are never changed.
  Result<ServedTable> Sparse(table::TableId id,
                             const SparseParameter& parameter,
                             const ParameterUpdate* update) const;

 private:
  struct Rows {
    table::Initializer initializer;
    uint64_t seed = 0;
  };

  Result<const program::Variable*> FindParameter(const std::string& name) const;
  Result<Rows> ReadInitializer(const std::string& name) const;
  Status TakeExtras(const SparseParameter& parameter,
                    table::SparseTableOptions& options) const;

  const ProgramIndex& main_;
  const ProgramIndex& startup_;
  const ParameterServerStrategy& strategy_;
  const cluster::Role& role_;
};

}  // namespace fleet::plan

#endif  // FLEET_PLAN_MAKE_TABLES_H_
