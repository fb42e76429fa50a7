// SPDX-License-Identifier: Apache-2.0

// Tables by their descriptions: what a plan makes of a program's parameters,
// and what workers tell servers that begin with no tables. The bytes that cross
// the wire are those of ps/table_spec.h.

#ifndef FLEET_TABLE_TABLE_SPEC_H_
#define FLEET_TABLE_TABLE_SPEC_H_

#include <cstdint>
#include <string>
#include <variant>

#include "fleet/table/options.h"

namespace fleet::table {

// Names one table on all servers and workers of a job.
enum class TableId : uint32_t {};

// A dense parameter; each server takes its part (PartOfServer with the table's
// id as `spread`).
struct DenseSpec {
  std::string name;
  uint64_t size = 0;
  UpdateOptions update;
};

struct TableSpec {
  TableId id{};
  std::variant<SparseTableOptions, DenseSpec> table;

  const std::string& name() const {
    return std::visit(
        [](const auto& held) -> const std::string& { return held.name; },
        table);
  }
  const UpdateOptions& update() const {
    return std::visit(
        [](const auto& held) -> const UpdateOptions& { return held.update; },
        table);
  }
};

}  // namespace fleet::table

#endif  // FLEET_TABLE_TABLE_SPEC_H_
