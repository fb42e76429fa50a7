// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SERVED_GEO_H_
#define FLEET_SERVED_GEO_H_

#include <map>
#include <memory>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/ps/sum_stream.h"
#include "fleet/served/mode.h"
#include "fleet/table/key_index.h"
#include "fleet/table/sparse_table.h"

namespace fleet::served {

// The rows of one table that this worker has met: as the local rule made them
// (latest), and as the servers had them at the last exchange (old). One thread
// at a time, which does not wait for the servers meanwhile.
class GeoRows final {
 public:
  // `num_workers` is how many changes the servers add up.
  static Result<std::unique_ptr<GeoRows>> Make(const ServedTable& table,
                                               int num_workers);
  GeoRows(std::unique_ptr<table::SparseTable> latest, TableId id,
          int num_workers);

  TableId id() const { return id_; }
  size_t dim() const { return latest_->dim(); }

  const std::vector<Key>& keys() const { return keys_; }
  // Those that are not here, each once.
  std::vector<Key> Unknown(std::span<const Key> keys) const;
  // The rows of keys, as the servers have them; of those that came meanwhile
  // the ones that are here stay.
  Status Meet(std::span<const Key> keys, std::span<const float> rows);
  // Rows that are here, and those of Unknown keys as they would begin.
  Status Get(std::span<const Key> keys, std::span<float> rows, bool training);
  // Applies the rule; a key's gradients are summed first.
  Status Learn(std::span<const Key> keys, std::span<const float> gradients);

  // What changed here since the last call, divided by the number of workers. It
  // counts as sent: who takes it brings it to the servers, now or later.
  struct Changes {
    std::vector<Key> keys;
    std::vector<float> deltas;
  };
  Result<Changes> TakeOwnChanges();
  // Keeps of keys that others changed those that are here. The others are asked
  // for when they are needed: who is asking for one now asks again, when
  // num_forgotten has changed.
  void ForgetUnknown(std::vector<Key>& keys);
  uint64_t num_forgotten() const { return num_forgotten_; }
  // Their rows, as the servers have them now.
  Status TakeTheirChanges(std::span<const Key> keys,
                          std::span<const float> rows);

  // All rows become those of the servers.
  Status Settle(ps::PsClient& client, Deadline deadline);

 private:
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
  std::vector<float> deltas_;
  uint64_t num_forgotten_ = 0;  // calls of ForgetUnknown
};

// Parameters change here, by the worker's own optimizer and the tables' rules;
// every k-th step the changes are exchanged. Of a change of `d` the servers get
// d / workers, and the rest stays here and is a part of the next change.
//
// Trainer threads go on while one of them asks the servers: what is here has a
// lock of its own, which nobody holds meanwhile.
class GeoSync final : public Mode {
 public:
  using Mode::Mode;

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
  Status Flush(std::span<const DenseValues> values) override;
  Status Stop(std::span<const DenseValues> values) override;
  void BeginThreads(int count) override;
  void EndThread() override;
  SynchronizerStats stats() const override;

 private:
  Result<GeoRows*> RowsOf(const ServedTable& table) EXCLUDES(mutex_);
  // Rows that are not here yet come from the servers.
  Status MeetKeys(GeoRows& rows, std::span<const Key> keys) EXCLUDES(mutex_);
  // Rows for a look alone: what is not here does not stay.
  Status Look(GeoRows& rows, std::span<const Key> keys, std::span<float> into)
      EXCLUDES(mutex_);
  // In a turn, so that a save has all of an exchange or nothing.
  Status Exchange(std::span<const DenseValues> values) REQUIRES(exchange_mutex_)
      EXCLUDES(mutex_);
  Status ExchangeAll(std::span<const DenseValues> values)
      REQUIRES(exchange_mutex_) EXCLUDES(mutex_);
  Status ExchangeDense(std::span<const DenseValues> values)
      REQUIRES(exchange_mutex_);
  Status ExchangeRows(GeoRows& rows) REQUIRES(exchange_mutex_) EXCLUDES(mutex_);

  // What the last exchange of a table left to be done, where it failed.
  struct Exchanged {
    GeoRows::Changes mine;
    ps::PsClient::Unfinished sending;  // of mine
    bool missed_theirs = false;
    uint64_t lost_updates = 0;  // by servers, as they were known then
  };

  // Held for the length of an exchange; before mutex_.
  base::Mutex exchange_mutex_;
  // Dense parameters as the servers had them at the last exchange.
  std::map<TableId, std::vector<float>> old_ GUARDED_BY(exchange_mutex_);
  // Their changes, as they are sent; then what comes back.
  std::map<TableId, std::vector<float>> deltas_ GUARDED_BY(exchange_mutex_);
  ps::PsClient::Unfinished sending_dense_ GUARDED_BY(exchange_mutex_);
  std::map<TableId, Exchanged> exchanged_ GUARDED_BY(exchange_mutex_);

  mutable base::Mutex mutex_;
  // Each is touched with the lock, and never goes.
  std::map<TableId, std::unique_ptr<GeoRows>> rows_ GUARDED_BY(mutex_);
  int num_threads_ GUARDED_BY(mutex_) = 1;
  uint64_t steps_since_ GUARDED_BY(mutex_) = 0;
  SynchronizerStats stats_ GUARDED_BY(mutex_);
};

}  // namespace fleet::served

#endif  // FLEET_SERVED_GEO_H_
