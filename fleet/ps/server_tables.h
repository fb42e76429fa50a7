// SPDX-License-Identifier: Apache-2.0

// The tables that a server has. Private to ps/.

#ifndef FLEET_PS_SERVER_TABLES_H_
#define FLEET_PS_SERVER_TABLES_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/ps/server.h"
#include "fleet/ps/wire.h"
#include "fleet/table/dense_table.h"
#include "fleet/table/sparse_table.h"

namespace fleet::ps {

// One of the two is null.
struct ServerTable {
  std::unique_ptr<table::SparseTable> sparse;
  std::unique_ptr<table::DenseTable> dense;
  std::string spec;  // what it was made from, if workers described it
  // What a delta of it would build on; nothing before its first save or load.
  // Written by who saves and loads, one at a time.
  std::optional<LastSave> saved;

  const std::string& name() const;
  // 0: it is dense.
  uint32_t num_shards() const;
};

// Tables are added and never removed, so a pointer to one stays good.
// Thread-safe.
class ServerTables final {
 public:
  ServerTables();
  ServerTables(const ServerTables&) = delete;
  ServerTables& operator=(const ServerTables&) = delete;

  // InvalidArgument for an id that is taken.
  Status Add(TableId id, ServerTable table);
  Result<ServerTable*> Find(TableId id);
  Result<table::DenseTable*> FindDense(TableId id);
  // Whether there is one that was made from this spec. FailedPrecondition when
  // its id is that of another one.
  Result<bool> IsThere(const TableSpec& spec);
  std::vector<ServerTable*> All();
  std::vector<std::pair<TableId, ServerTable*>> ById();
  // Ends what their BeginSave began; see table::SparseTable::EndSave.
  void EndSaves(bool counts);

  std::vector<TableInfo> Describe() const;
  PsServerHoldings holdings();
  // No request is larger: a part, or one row where rows are larger than that.
  uint64_t max_request() const { return max_request_; }

  // Rates that were told, by name.
  void NoteRate(const std::string& name, double rate);
  void NoteRatesIfNew(std::map<std::string, double> rates);
  std::map<std::string, double> rates() const;

 private:
  std::atomic<uint64_t> max_request_;
  mutable base::Mutex mutex_;
  std::map<TableId, ServerTable> tables_ GUARDED_BY(mutex_);
  std::map<std::string, double> rates_ GUARDED_BY(mutex_);
};

}  // namespace fleet::ps

#endif  // FLEET_PS_SERVER_TABLES_H_
