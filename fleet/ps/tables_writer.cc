// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/tables_writer.h"

#include <algorithm>
#include <utility>

#include "fleet/base/exceptions.h"

namespace fleet::ps {

using base::Deadline;

TablesWriter::TablesWriter(const base::Path& folder, std::vector<Table> tables,
                           std::chrono::milliseconds delay)
    : folder_(folder), tables_(std::move(tables)), delay_(delay) {
  base::MutexLock lock(joining_);
  thread_ = std::jthread([this] { WriteAll(); });
}

const std::string& TablesWriter::NameOf(const Table& table) {
  return table.sparse != nullptr ? table.sparse->name() : table.dense->name();
}

Status TablesWriter::Write(const Table& table) {
  ASSIGN_OR_RETURN(table::WrittenTable written,
                   table.sparse != nullptr ? table.sparse->WriteRows(folder_)
                                           : table.dense->WriteRows(folder_));
  base::MutexLock lock(mutex_);
  const table::SaveStats& stats = written.stats;
  stats_.num_rows += stats.num_rows;
  stats_.byte_size += stats.byte_size;
  stats_.num_put_aside += stats.num_put_aside;
  stats_.most_kept_byte_size += stats.most_kept_byte_size;
  stats_.waited += stats.waited;
  done_[table.id] = std::move(written);
  written_.NotifyAll();
  return OkStatus();
}

void TablesWriter::WriteAll() {
  if (delay_.count() > 0) {
    const Deadline begin = Deadline::After(delay_);
    base::MutexLock lock(mutex_);
    while (!given_up_ && written_.WaitUntil(mutex_, begin)) {
    }
  }
  Status failed;
  for (const Table& table : tables_) {
    failed = base::CatchExceptions([&] { return Write(table); });
    if (!failed.ok()) break;
  }
  // Nobody writes the others, so nothing of them must be kept.
  for (const Table& table : tables_) {
    if (failed.ok()) break;
    if (table.sparse != nullptr) {
      table.sparse->EndSave(false);
    } else {
      table.dense->EndSave();
    }
  }
  base::MutexLock lock(mutex_);
  failure_ = failed;
  ended_ = true;
  written_.NotifyAll();
}

Result<table::WrittenTable> TablesWriter::Wait(TableId id, Deadline deadline) {
  base::MutexLock lock(mutex_);
  while (true) {
    const auto found = done_.find(id);
    if (found != done_.end()) return found->second;
    RETURN_IF_ERROR(failure_);
    if (ended_) {
      return NotFound("the save has no table with id ",
                      static_cast<uint32_t>(id));
    }
    if (!written_.WaitUntil(mutex_, deadline)) {
      return DeadlineExceeded("a table is still being written to ",
                              folder_.string());
    }
  }
}

bool TablesWriter::done() const {
  base::MutexLock lock(mutex_);
  return ended_;
}

Status TablesWriter::WaitUntilDone(Deadline deadline) const {
  base::MutexLock lock(mutex_);
  while (!ended_) {
    if (written_.WaitUntil(mutex_, deadline)) continue;
    // All of them may be, and the thread about to say so.
    const size_t at = std::min(done_.size(), tables_.size() - 1);
    return DeadlineExceeded("table ", NameOf(tables_[at]),
                            " is still being written to ", folder_.string());
  }
  return OkStatus();
}

table::SaveStats TablesWriter::stats() const {
  base::MutexLock lock(mutex_);
  return stats_;
}

void TablesWriter::GiveUp() {
  base::MutexLock lock(joining_);
  if (!thread_.joinable()) return;
  {
    base::MutexLock inner(mutex_);
    given_up_ = true;
    written_.NotifyAll();
  }
  for (const Table& table : tables_) {
    if (done()) break;
    if (table.sparse != nullptr) {
      table.sparse->EndSave(false);
    } else {
      table.dense->EndSave();
    }
  }
  thread_.join();
}

}  // namespace fleet::ps
