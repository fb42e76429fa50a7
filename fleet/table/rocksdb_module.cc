// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/rocksdb_module.h"

#include <array>
#include <cstring>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <utility>

namespace fleet::table {
namespace {

Status ToStatus(const rocksdb::Status& status) {
  if (status.ok()) return OkStatus();
  const std::string text = "RocksDB: " + status.ToString();
  if (status.IsCorruption()) return DataLoss(text);
  if (status.IsInvalidArgument()) return InvalidArgument(text);
  // Mostly a disk that is full or fails.
  return Unavailable(text);
}

// Shard and key, highest byte first, so that RocksDB's order is theirs.
constexpr size_t kKeyByteSize = 12;
using StoredKey = std::array<char, kKeyByteSize>;

StoredKey Encode(uint32_t shard, Key key) {
  StoredKey stored;
  for (size_t i = 0; i < 4; ++i) {
    stored[i] = static_cast<char>(shard >> (24 - 8 * i));
  }
  for (size_t i = 0; i < 8; ++i) {
    stored[4 + i] = static_cast<char>(key >> (56 - 8 * i));
  }
  return stored;
}

rocksdb::Slice ToSlice(const StoredKey& key) {
  return {key.data(), key.size()};
}

Key DecodeKey(const rocksdb::Slice& stored) {
  Key key = 0;
  for (size_t i = 4; i < kKeyByteSize; ++i) {
    key = key << 8 | static_cast<unsigned char>(stored[i]);
  }
  return key;
}

Status CheckSize(size_t byte_size, size_t row_floats) {
  if (byte_size == row_floats * sizeof(float)) return OkStatus();
  return DataLoss("RocksDB: a row of ", byte_size, " bytes");
}

class RocksDbSnapshot final : public ColdSnapshot {
 public:
  RocksDbSnapshot(std::shared_ptr<rocksdb::DB> db, uint32_t shard,
                  size_t row_floats)
      : db_(std::move(db)),
        snapshot_(db_->GetSnapshot()),
        first_(Encode(shard, 0)),
        row_(row_floats) {}
  RocksDbSnapshot(const RocksDbSnapshot&) = delete;
  RocksDbSnapshot& operator=(const RocksDbSnapshot&) = delete;
  ~RocksDbSnapshot() override {
    rows_.reset();
    db_->ReleaseSnapshot(snapshot_);
  }

  Result<bool> Next(Key* key, std::span<const float>* row) override {
    if (rows_ == nullptr) {
      rocksdb::ReadOptions options;
      options.snapshot = snapshot_;
      rows_.reset(db_->NewIterator(options));
      rows_->Seek(ToSlice(first_));
    } else {
      rows_->Next();
    }
    if (!rows_->Valid()) {
      RETURN_IF_ERROR(ToStatus(rows_->status()));
      return false;
    }
    const rocksdb::Slice stored = rows_->key();
    if (std::memcmp(stored.data(), first_.data(), 4) != 0) return false;
    RETURN_IF_ERROR(CheckSize(rows_->value().size(), row_.size()));
    *key = DecodeKey(stored);
    std::memcpy(row_.data(), rows_->value().data(), rows_->value().size());
    *row = row_;
    return true;
  }

  void Rewind() override { rows_.reset(); }

 private:
  const std::shared_ptr<rocksdb::DB> db_;
  const rocksdb::Snapshot* const snapshot_;
  const StoredKey first_;
  std::vector<float> row_;
  std::unique_ptr<rocksdb::Iterator> rows_;
};

class RocksDbStore final : public ColdStore {
 public:
  RocksDbStore(std::shared_ptr<rocksdb::DB> db, uint32_t shard,
               size_t row_floats)
      : db_(std::move(db)), shard_(shard), row_floats_(row_floats) {
    // The rows are not the only copy: a table that matters is saved. So neither
    // a log nor a sync.
    write_.disableWAL = true;
  }

  Status Get(std::span<const Key> keys, std::span<float* const> into,
             std::span<bool> found) override {
    std::vector<StoredKey> stored(keys.size());
    std::vector<rocksdb::Slice> slices(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      stored[i] = Encode(shard_, keys[i]);
      slices[i] = ToSlice(stored[i]);
    }
    std::vector<rocksdb::PinnableSlice> values(keys.size());
    std::vector<rocksdb::Status> statuses(keys.size());
    db_->MultiGet(rocksdb::ReadOptions(), db_->DefaultColumnFamily(),
                  keys.size(), slices.data(), values.data(), statuses.data());
    for (size_t i = 0; i < keys.size(); ++i) {
      found[i] = statuses[i].ok();
      if (statuses[i].IsNotFound()) continue;
      RETURN_IF_ERROR(ToStatus(statuses[i]));
      RETURN_IF_ERROR(CheckSize(values[i].size(), row_floats_));
      std::memcpy(into[i], values[i].data(), values[i].size());
    }
    return OkStatus();
  }

  Status Put(std::span<const Key> keys,
             std::span<const float* const> rows) override {
    rocksdb::WriteBatch batch;
    for (size_t i = 0; i < keys.size(); ++i) {
      const StoredKey key = Encode(shard_, keys[i]);
      RETURN_IF_ERROR(ToStatus(batch.Put(
          ToSlice(key), rocksdb::Slice(reinterpret_cast<const char*>(rows[i]),
                                       row_floats_ * sizeof(float)))));
    }
    return ToStatus(db_->Write(write_, &batch));
  }

  Status Erase(std::span<const Key> keys) override {
    rocksdb::WriteBatch batch;
    for (Key key : keys) {
      const StoredKey stored = Encode(shard_, key);
      RETURN_IF_ERROR(ToStatus(batch.Delete(ToSlice(stored))));
    }
    return ToStatus(db_->Write(write_, &batch));
  }

  std::unique_ptr<ColdSnapshot> Snapshot() override {
    return std::make_unique<RocksDbSnapshot>(db_, shard_, row_floats_);
  }

  Status ForEach(const std::function<Status(Key, std::span<const float>)>&
                     visit) override {
    const std::unique_ptr<rocksdb::Iterator> it(
        db_->NewIterator(rocksdb::ReadOptions()));
    const StoredKey first = Encode(shard_, 0);
    std::vector<float> row(row_floats_);
    for (it->Seek(ToSlice(first)); it->Valid(); it->Next()) {
      const rocksdb::Slice key = it->key();
      if (std::memcmp(key.data(), first.data(), 4) != 0) break;
      RETURN_IF_ERROR(CheckSize(it->value().size(), row_floats_));
      std::memcpy(row.data(), it->value().data(), it->value().size());
      RETURN_IF_ERROR(visit(DecodeKey(key), row));
    }
    return ToStatus(it->status());
  }

 private:
  const std::shared_ptr<rocksdb::DB> db_;
  const uint32_t shard_;
  const size_t row_floats_;
  rocksdb::WriteOptions write_;
};

Result<std::vector<std::unique_ptr<ColdStore>>> Open(
    const RocksDbOpening& opening) {
  rocksdb::Options options;
  options.create_if_missing = true;
  // Most keys that are asked for have no row on disk: the filter says so
  // without reading.
  rocksdb::BlockBasedTableOptions blocks;
  blocks.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(blocks));
  options.compression = rocksdb::kNoCompression;  // floats do not compress
  RETURN_IF_ERROR(ToStatus(rocksdb::DestroyDB(opening.folder, options)));
  rocksdb::DB* opened = nullptr;
  RETURN_IF_ERROR(
      ToStatus(rocksdb::DB::Open(options, opening.folder, &opened)));
  const std::shared_ptr<rocksdb::DB> db(opened);
  std::vector<std::unique_ptr<ColdStore>> stores;
  stores.reserve(opening.num_shards);
  for (uint32_t shard = 0; shard < opening.num_shards; ++shard) {
    stores.push_back(
        std::make_unique<RocksDbStore>(db, shard, opening.row_floats));
  }
  return stores;
}

}  // namespace
}  // namespace fleet::table

extern "C" __attribute__((visibility("default"))) void FleetOpenRocksDb(
    fleet::table::RocksDbOpening* opening) {
  auto stores = fleet::table::Open(*opening);
  opening->status = stores.status();
  if (stores.ok()) opening->stores = std::move(stores).value();
}
