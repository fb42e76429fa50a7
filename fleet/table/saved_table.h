// SPDX-License-Identifier: Apache-2.0

// Rows on disk, as docs/table_format.md describes them: a save of a table by
// several servers is some files of sorted rows from each, and a list from each
// that is written last. A save counts only when the lists of all its servers
// are there, so that one which was broken off leaves the last good one whole.

#ifndef FLEET_TABLE_SAVED_TABLE_H_
#define FLEET_TABLE_SAVED_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
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
};

struct LoadStats {
  uint64_t number = 0;    // of the newest save that was read
  uint64_t num_rows = 0;  // that belong here
  uint64_t step = 0;
  // The files' rows held another optimizer's state: only values were read.
  bool values_only = false;
};

// What a file says of its rows.
struct RowsHeader {
  std::string table;
  std::string layout;  // RowLayout::text
  uint32_t dim = 0;
  uint32_t row_floats = 0;
  uint64_t num_rows = 0;
  uint64_t num_erased = 0;
};

// One file, written once. A failure leaves nothing behind.
class RowsWriter final {
 public:
  static Result<RowsWriter> Create(const base::Path& path,
                                   const RowsHeader& header);
  // Keys ascend; as many as the header says.
  Status AddRow(Key key, std::span<const float> row);
  Status AddErased(Key key);
  Status Commit();

  uint64_t byte_size() const { return file_.byte_size(); }
  // Of all bytes.
  uint32_t checksum() const { return checksum_; }

 private:
  RowsWriter(base::AtomicFile file, const RowsHeader& header);
  Status Append(std::span<const std::byte> bytes);
  Status EndBlock();

  base::AtomicFile file_;
  RowsHeader header_;
  uint32_t checksum_ = 0;
  uint64_t num_added_ = 0;
  std::vector<Key> keys_;  // of the block that is being filled
  std::vector<float> rows_;
};

// What a reader does with the rows of a file: blocks of them, in the order of
// their keys. `rows` is empty for keys that were erased.
using VisitRows =
    std::function<Status(const RowsHeader& header, std::span<const Key> keys,
                         std::span<const float> rows)>;

// DataLoss names the file, and where in it, when it is truncated, damaged or no
// such file.
Status ReadRows(const base::Path& path, const VisitRows& visit);

// The list of a server's files, which makes a save count.
struct SaveList {
  std::string table;
  SaveId id;
  uint64_t step = 0;
  struct File {
    std::string name;
    uint64_t byte_size = 0;
    uint32_t checksum = 0;
  };
  std::vector<File> files;
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
