// SPDX-License-Identifier: Apache-2.0

// The tables of a save or a checkpoint on their way to the disk, by a thread of
// their own: requests go on meanwhile, and whoever asked for the save may die.

#ifndef FLEET_PS_TABLES_WRITER_H_
#define FLEET_PS_TABLES_WRITER_H_

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/file_system.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/ps/wire.h"
#include "fleet/table/dense_table.h"
#include "fleet/table/saved_table.h"
#include "fleet/table/sparse_table.h"

namespace fleet::ps {

// Thread-safe.
class TablesWriter final {
 public:
  struct Table {
    TableId id{};
    // One is null. It outlives the writer, and its save has begun.
    table::SparseTable* sparse = nullptr;
    table::DenseTable* dense = nullptr;
  };

  // Writing begins after `delay`, which is for tests of slow disks.
  TablesWriter(const base::Path& folder, std::vector<Table> tables,
               std::chrono::milliseconds delay);
  TablesWriter(const TablesWriter&) = delete;
  TablesWriter& operator=(const TablesWriter&) = delete;
  // Gives up.
  ~TablesWriter() { GiveUp(); }

  // Returns when the table is written, or with the reason why it cannot be.
  Result<table::WrittenTable> Wait(TableId id, base::Deadline deadline);
  // When all are, or one failed.
  bool done() const;
  // DeadlineExceeded names the table that is being written.
  Status WaitUntilDone(base::Deadline deadline) const;
  // What of all tables together was put aside; after they are written.
  table::SaveStats stats() const;

  // What is not written stays so; the tables are written no further on return,
  // which waits for the block or file on its way to the disk. Saves that have
  // not ended do not count.
  void GiveUp();

 private:
  void WriteAll();
  Status Write(const Table& table);
  static const std::string& NameOf(const Table& table);

  const base::Path folder_;
  const std::vector<Table> tables_;
  const std::chrono::milliseconds delay_;
  mutable base::Mutex mutex_;
  mutable base::CondVar written_;
  std::map<TableId, table::WrittenTable> done_ GUARDED_BY(mutex_);
  Status failure_ GUARDED_BY(mutex_);  // of the first table that failed
  bool ended_ GUARDED_BY(mutex_) = false;
  bool given_up_ GUARDED_BY(mutex_) = false;
  table::SaveStats stats_ GUARDED_BY(mutex_);
  base::Mutex joining_;
  std::jthread thread_ GUARDED_BY(joining_);  // last: it uses all of the above
};

}  // namespace fleet::ps

#endif  // FLEET_PS_TABLES_WRITER_H_
