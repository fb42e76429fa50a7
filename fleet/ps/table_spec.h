// SPDX-License-Identifier: Apache-2.0

// Tables as a worker describes them to servers that begin with none.

#ifndef FLEET_PS_TABLE_SPEC_H_
#define FLEET_PS_TABLE_SPEC_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "fleet/base/status.h"
#include "fleet/ps/wire.h"
#include "fleet/table/options.h"

namespace fleet::ps {

// A dense parameter; each server takes its part (table::PartOfServer with the
// table's id as `spread`).
struct DenseSpec {
  std::string name;
  uint64_t size = 0;
  table::UpdateOptions update;
};

struct TableSpec {
  TableId id{};
  std::variant<table::SparseTableOptions, DenseSpec> table;

  const std::string& name() const;
};

// Two specs are the same table when their bytes are equal.
std::string Encode(const TableSpec& spec);
// DataLoss for what is no spec.
Result<TableSpec> DecodeTableSpec(std::string_view bytes);

}  // namespace fleet::ps

#endif  // FLEET_PS_TABLE_SPEC_H_
