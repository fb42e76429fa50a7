// SPDX-License-Identifier: Apache-2.0

// Where a shard puts the rows that memory has no room for.

#ifndef FLEET_TABLE_COLD_STORE_H_
#define FLEET_TABLE_COLD_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/table/key.h"

namespace fleet::table {

// The rows of a ColdStore as they were at one moment. One thread at a time,
// which need not be the store's.
class ColdSnapshot {
 public:
  virtual ~ColdSnapshot() = default;

  // The first row, or the next after the last call, in the order of keys. False
  // when there is none. `row` stays until the next call.
  virtual Result<bool> Next(Key* key, std::span<const float>* row) = 0;
  // Next begins with the first row again.
  virtual void Rewind() = 0;
};

// The rows of one shard on disk, each as so many floats as its maker was told.
// One thread at a time.
class ColdStore {
 public:
  virtual ~ColdStore() = default;

  // Copies the rows that are there to into[i] and says so in found[i].
  virtual Status Get(std::span<const Key> keys, std::span<float* const> into,
                     std::span<bool> found) = 0;
  virtual Status Put(std::span<const Key> keys,
                     std::span<const float* const> rows) = 0;
  virtual Status Erase(std::span<const Key> keys) = 0;

  // Costs nothing but disk, until it is destroyed.
  virtual std::unique_ptr<ColdSnapshot> Snapshot() = 0;
  // In the order of keys, as they are when it begins: `visit` may Put and
  // Erase. Ends with the first failure.
  virtual Status ForEach(
      const std::function<Status(Key, std::span<const float>)>& visit) = 0;
};

// One store for each of `num_shards`, over one RocksDB in `folder`, which must
// exist and whose content is replaced. Unimplemented where Fleet or this
// machine has no RocksDB.
Result<std::vector<std::unique_ptr<ColdStore>>> OpenRocksDb(
    const std::string& folder, uint32_t num_shards, size_t row_floats);

}  // namespace fleet::table

#endif  // FLEET_TABLE_COLD_STORE_H_
