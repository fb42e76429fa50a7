// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SAVED_LOAD_VARIABLE_H_
#define FLEET_SAVED_LOAD_VARIABLE_H_

#include <cstdint>
#include <string>

#include "fleet/base/status.h"
#include "fleet/table/dense_table.h"
#include "fleet/table/sparse_table.h"

namespace fleet::saved {

// First values of a server's table from a file of its name, as programs save
// variables (tensor_file.h): a model that one process trained. Of a
// sparse table, row i is that of key i; what belongs to other servers is left
// out. One of the two tables is null. Ok when there is no such file.
// InvalidArgument for a tensor of another size or type.
Status LoadVariable(const std::string& folder, uint32_t server,
                    uint32_t num_servers, table::SparseTable* sparse,
                    table::DenseTable* dense);

}  // namespace fleet::saved

#endif  // FLEET_SAVED_LOAD_VARIABLE_H_
