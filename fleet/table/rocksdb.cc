// SPDX-License-Identifier: Apache-2.0

#include <utility>

#include "fleet/base/module.h"
#include "fleet/table/cold_store.h"
#include "fleet/table/rocksdb_module.h"

namespace fleet::table {

Result<std::vector<std::unique_ptr<ColdStore>>> OpenRocksDb(
    const std::string& folder, uint32_t num_shards, size_t row_floats) {
  ASSIGN_OR_RETURN(
      void* entry,
      base::LoadModule("libfleet_rocksdb.so", kRocksDbEntry,
                       "tables on disk need RocksDB (Debian: librocksdb-dev) "
                       "when Fleet is built and when it runs"));
  RocksDbOpening opening{folder, num_shards, row_floats};
  reinterpret_cast<RocksDbEntry*>(entry)(&opening);
  RETURN_IF_ERROR(opening.status);
  return std::move(opening.stores);
}

}  // namespace fleet::table
