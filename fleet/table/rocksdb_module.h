// SPDX-License-Identifier: Apache-2.0

// What libfleet_core and the module of RocksDB say to each other.

#ifndef FLEET_TABLE_ROCKSDB_MODULE_H_
#define FLEET_TABLE_ROCKSDB_MODULE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/table/cold_store.h"

namespace fleet::table {

// The arguments of OpenRocksDb and its answer.
struct RocksDbOpening {
  std::string folder;
  uint32_t num_shards;
  size_t row_floats;

  Status status;
  std::vector<std::unique_ptr<ColdStore>> stores;
};

using RocksDbEntry = void(RocksDbOpening*);
inline constexpr char kRocksDbEntry[] = "FleetOpenRocksDb";

}  // namespace fleet::table

#endif  // FLEET_TABLE_ROCKSDB_MODULE_H_
