// SPDX-License-Identifier: Apache-2.0

// Descriptions of tables as bytes: workers tell them to servers that begin with
// none.

#ifndef FLEET_PS_TABLE_SPEC_H_
#define FLEET_PS_TABLE_SPEC_H_

#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/table/table_spec.h"

namespace fleet::ps {

using table::DenseSpec;
using table::TableId;
using table::TableSpec;

// Two specs are the same table when their bytes are equal.
std::string Encode(const TableSpec& spec);
// DataLoss for what is no spec.
Result<TableSpec> DecodeTableSpec(std::string_view bytes);

// Encoded specs as the bodies of requests, of which each has as many as a
// server takes at once; and what such a body says.
std::vector<std::string> RequestsToCreate(
    const std::vector<std::string>& specs);
Result<std::vector<TableSpec>> DecodeTableSpecs(std::string_view bytes);

}  // namespace fleet::ps

#endif  // FLEET_PS_TABLE_SPEC_H_
