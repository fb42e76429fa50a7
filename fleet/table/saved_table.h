// SPDX-License-Identifier: Apache-2.0

// Rows on disk, as docs/table_format.md describes them: a save of a table by
// several servers is some files of sorted rows from each, and a list of them.
//
// Lists are part of the manifest of a save (save_manifest.h). Before there were
// manifests, each was a file of its own, written last, and a save of a table
// counted when the lists of all its servers were there. A table that is saved
// by itself still does so.

#ifndef FLEET_TABLE_SAVED_TABLE_H_
#define FLEET_TABLE_SAVED_TABLE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/table/key.h"

namespace fleet::table {

enum class SaveKind { kBase, kDelta };

// Which save this is. Servers that save together say the same, each with its
// own `server`.
struct SaveId {
  uint64_t number = 0;  // higher than that of earlier saves into the folder
  SaveKind kind = SaveKind::kBase;
  uint32_t server = 0;
  uint32_t num_servers = 1;
};

struct SaveStats {
  uint64_t num_rows = 0;
  uint64_t num_erased = 0;
  uint64_t byte_size = 0;
  // Rows that changed before they were written and were put aside; the most
  // memory that they and erased ones took; how long requests had to wait.
  uint64_t num_put_aside = 0;
  uint64_t most_kept_byte_size = 0;
  std::chrono::nanoseconds waited{0};
};

struct LoadStats {
  uint64_t number = 0;    // of the newest save that was read
  uint64_t num_rows = 0;  // that belong here
  uint64_t step = 0;
  // The files' rows held another optimizer's state: only values were read.
  bool values_only = false;
};

// The list of a server's files of a table.
struct SaveList {
  std::string table;
  SaveId id;
  uint64_t step = 0;
  uint64_t time = 0;  // of the clock by which rows live; 0 where they do not
  struct File {
    std::string name;
    uint64_t byte_size = 0;
    uint32_t checksum = 0;
  };
  std::vector<File> files;
};

// What a table has written of a save.
struct WrittenTable {
  SaveList list;
  SaveStats stats;
  // Where SaveOptions::cut asked for what belongs to the rows: keys that the
  // entry rule held back, and how often each had been pulled.
  std::vector<std::pair<Key, uint64_t>> candidates;
};

std::string RowsFileName(const std::string& table, const SaveId& id,
                         uint32_t shard);
Status WriteSaveList(const base::Path& folder, const SaveList& list);

// The lists of the newest complete base save of `table` in `folder` and of the
// complete deltas after it, oldest first. NotFound when there is none, and the
// message names saves that are incomplete. DataLoss for a damaged list.
Result<std::vector<SaveList>> FindSave(const base::Path& folder,
                                       const std::string& table);

// Removes what saves of `table` before base save `number` left. Call it when
// all servers have finished that save.
Status RemoveOlderSaves(const base::Path& folder, const std::string& table,
                        uint64_t number);

}  // namespace fleet::table

#endif  // FLEET_TABLE_SAVED_TABLE_H_
