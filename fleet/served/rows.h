// SPDX-License-Identifier: Apache-2.0

// Rows between the lists of ids that a step has and the keys that servers know.

#ifndef FLEET_SERVED_ROWS_H_
#define FLEET_SERVED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/served/synchronizer.h"

namespace fleet::served {

using base::Deadline;
using table::Key;

// Tables by id; they are never removed. Thread-safe.
class ServedTables final {
 public:
  // A table that is known stays as it is.
  void Add(std::vector<ServedTable> tables);
  // Null when there is none.
  const ServedTable* Find(TableId id) const;
  // InvalidArgument when it is none or dense.
  Result<const ServedTable*> FindSparse(TableId id) const;

 private:
  mutable base::Mutex mutex_;
  std::map<TableId, const ServedTable> tables_ GUARDED_BY(mutex_);
};

// The options of a sparse table.
const table::SparseTableOptions& SparseOptions(const ServedTable& table);
inline size_t DimOf(const ServedTable& table) {
  return SparseOptions(table).dim;
}

// InvalidArgument for an id out of a bounded table, and for rows or gradients
// that are not as many as the ids.
Status CheckLists(const ServedTable& table, std::span<const RowsOfIds> lists,
                  const LookupOptions& options);
Status CheckLists(const ServedTable& table,
                  std::span<const GradientsOfIds> lists,
                  const LookupOptions& options);

// Keys with their rows, one behind the other. Memory is kept for the next use.
struct RowBatch {
  std::vector<Key> keys;
  std::vector<float> rows;
  // As many as keys, or none.
  std::vector<float> shows;
  std::vector<float> clicks;

  void Clear();
  // Adds what is not padding.
  void Append(size_t dim, const GradientsOfIds& list,
              const LookupOptions& options);
};

// A batch whose keys and rows lie in memory of the caller.
struct RowView {
  std::span<const Key> keys;
  std::span<const float> rows;
  std::span<const float> shows;
  std::span<const float> clicks;
};
RowView ViewOf(const RowBatch& batch);
// One list without padding is viewed where it is, others are copied to `batch`.
RowView Join(size_t dim, std::span<const GradientsOfIds> lists,
             const LookupOptions& options, RowBatch& batch);
// The lists where they are; empty when they have padding, shows or clicks.
std::vector<ps::ValuesOfKeys> PartsOf(std::span<const GradientsOfIds> lists,
                                      const LookupOptions& options);

// Memory that calls use one after the other. Thread-safe.
class BatchPool final {
 public:
  class Lease final {
   public:
    explicit Lease(BatchPool& pool) : pool_(pool), batch_(pool.Take()) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { pool_.Give(std::move(batch_)); }
    RowBatch& operator*() const { return *batch_; }
    RowBatch* operator->() const { return batch_.get(); }

   private:
    BatchPool& pool_;
    std::unique_ptr<RowBatch> batch_;
  };

 private:
  std::unique_ptr<RowBatch> Take();
  void Give(std::unique_ptr<RowBatch> batch);

  base::Mutex mutex_;
  std::vector<std::unique_ptr<RowBatch>> idle_ GUARDED_BY(mutex_);
};

// Rows straight from the servers; what Synchronizer::Fetch does in most modes.
Status PullRows(ps::PsClient& client, const ServedTable& table,
                std::span<const RowsOfIds> lookups,
                const LookupOptions& options, BatchPool& pool,
                Deadline deadline);

// Gives every list its rows from the joined ones, zeros for padding.
void Spread(size_t dim, std::span<const float> rows,
            std::span<const RowsOfIds> lookups, const LookupOptions& options);
// All ids that are not padding.
void Collect(std::span<const RowsOfIds> lookups, const LookupOptions& options,
             std::vector<Key>& keys);

// First values: worker 0 gives them, the others take those of the servers. See
// Synchronizer::Initialize.
Status InitializeDense(ps::PsClient& client, bool is_first_worker,
                       std::span<const DenseValues> values, Deadline deadline);

}  // namespace fleet::served

#endif  // FLEET_SERVED_ROWS_H_
