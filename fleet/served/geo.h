// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SERVED_GEO_H_
#define FLEET_SERVED_GEO_H_

#include <map>
#include <memory>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/ps/sum_stream.h"
#include "fleet/served/rows.h"
#include "fleet/served/synchronizer.h"
#include "fleet/table/key_index.h"
#include "fleet/table/sparse_table.h"

namespace fleet::served {

// The rows of one table that this worker has met: as the local rule made them
// (latest), and as the servers had them at the last exchange (old). One thread
// at a time.
class GeoRows final {
 public:
  // `num_workers` is how many changes the servers add up.
  static Result<std::unique_ptr<GeoRows>> Make(const ServedTable& table,
                                               int num_workers);
  GeoRows(std::unique_ptr<table::SparseTable> latest, TableId id,
          int num_workers);

  // Rows that are not here yet come from the servers.
  Status Fetch(ps::PsClient& client, std::span<const Key> keys,
               std::span<float> rows, bool training, Deadline deadline);
  // Applies the rule; a key's gradients are summed first.
  Status Learn(std::span<const Key> keys, std::span<const float> gradients);

  // What changed here goes to the servers, divided by the number of workers,
  // and what others changed comes from there.
  Status Exchange(ps::PsClient& client, Deadline deadline);
  // All rows become those of the servers.
  Status Settle(ps::PsClient& client, Deadline deadline);

 private:
  Status MeetKeys(ps::PsClient& client, std::span<const Key> keys,
                  Deadline deadline);
  Status SendChanges(ps::PsClient& client, Deadline deadline);
  Status TakeChanges(ps::PsClient& client, Deadline deadline);
  size_t dim() const { return latest_->dim(); }
  float* OldRow(size_t number) { return old_.data() + number * dim(); }
  bool Knows(Key key) const { return numbers_.Find(key) != nullptr; }

  const std::unique_ptr<table::SparseTable> latest_;
  const TableId id_;
  const float share_;  // one over the number of workers
  table::KeyIndex numbers_;
  std::vector<Key> keys_;      // by number
  std::vector<float> old_;     // rows by number
  std::vector<bool> changed_;  // since the last exchange, by number
  std::vector<Key> changes_;   // the same as a list
  ps::SumStream merging_;
  std::vector<float> sums_;
  std::vector<float> rows_;
  std::vector<float> deltas_;
};

// Parameters change here, by the worker's own optimizer and the tables' rules;
// every k-th step the changes are exchanged. Of a change of `d` the servers get
// d / workers, and the rest stays here and is a part of the next change.
class GeoSync final : public Synchronizer {
 public:
  GeoSync(ps::PsClient& client, const SynchronizerOptions& options)
      : client_(client), options_(options) {}

  Status AddTables(std::vector<ServedTable> tables) override;
  Status Initialize(std::span<const DenseValues> values) override;
  Status Fetch(TableId table, std::span<const RowsOfIds> lookups,
               const LookupOptions& options) override;
  Status Offer(TableId table, std::span<const GradientsOfIds> gradients,
               const LookupOptions& options) override;
  // Dense gradients do not leave: FailedPrecondition.
  Status OfferDense(std::span<const DenseGradient> gradients) override;
  using Synchronizer::EndStep;
  Status EndStep(std::span<const DenseValues> values,
                 HeldValues* held) override;
  Status PullDense(std::span<const DenseValues> values) override;
  Status Flush(std::span<const DenseValues> values) override;
  Status Stop(std::span<const DenseValues> values) override;
  void BeginThreads(int count) override;
  void EndThread() override;
  SynchronizerStats stats() const override;
  const SynchronizerOptions& options() const override { return options_; }
  const ServedTable* table(TableId id) const override {
    return tables_.Find(id);
  }

 private:
  Deadline deadline() const { return Deadline::After(options_.timeout); }
  Result<GeoRows*> RowsLocked(const ServedTable& table) REQUIRES(mutex_);
  // In a turn, so that a save has all of an exchange or nothing.
  Status ExchangeLocked(std::span<const DenseValues> values) REQUIRES(mutex_);
  Status ExchangeAllLocked(std::span<const DenseValues> values)
      REQUIRES(mutex_);
  Status ExchangeDenseLocked(std::span<const DenseValues> values)
      REQUIRES(mutex_);

  ps::PsClient& client_;
  const SynchronizerOptions options_;
  ServedTables tables_;
  BatchPool pool_;

  mutable base::Mutex mutex_;
  std::map<TableId, std::unique_ptr<GeoRows>> rows_ GUARDED_BY(mutex_);
  // As the servers had them at the last exchange.
  std::map<TableId, std::vector<float>> old_ GUARDED_BY(mutex_);
  std::map<TableId, std::vector<float>> deltas_ GUARDED_BY(mutex_);
  int num_threads_ GUARDED_BY(mutex_) = 1;
  uint64_t steps_since_ GUARDED_BY(mutex_) = 0;
  SynchronizerStats stats_ GUARDED_BY(mutex_);
};

}  // namespace fleet::served

#endif  // FLEET_SERVED_GEO_H_
