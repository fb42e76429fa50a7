// SPDX-License-Identifier: Apache-2.0

// Files of rows, sorted by key and with checksums, as docs/table_format.md
// describes them.

#ifndef FLEET_TABLE_ROWS_FILE_H_
#define FLEET_TABLE_ROWS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/table/key.h"

namespace fleet::table {

// What a file says of its rows.
struct RowsHeader {
  std::string table;
  std::string layout;  // RowLayout::text
  uint32_t dim = 0;
  uint32_t row_floats = 0;
  uint64_t num_rows = 0;
  uint64_t num_erased = 0;
};

// Puts `keys.size()` rows there, the next in the order of keys.
using FillRows =
    std::function<Status(std::span<Key> keys, std::span<float> rows)>;

// One file, written once. A failure leaves nothing behind. Where there is more
// than a block of rows, a thread writes while the caller brings the next.
class RowsWriter final {
 public:
  // `rest` is called between pieces of the writing, by the thread that writes,
  // and says whether it had to rest, so that small ones are wanted; may be
  // empty.
  static Result<RowsWriter> Create(const base::Path& path,
                                   const RowsHeader& header,
                                   std::function<bool()> rest = {});
  RowsWriter(RowsWriter&&) noexcept;
  RowsWriter& operator=(RowsWriter&&) noexcept;
  ~RowsWriter();

  // Keys ascend; as many as the header says. A failure may be that of a write
  // before.
  Status AddRow(Key key, std::span<const float> row);
  // `count` rows. Calls `fill` with places for some of them, until all are
  // there, and does not wait for the disk while it runs.
  Status AddRows(size_t count, const FillRows& fill);
  Status AddErased(Key key);
  Status Commit();

  // After Commit.
  uint64_t byte_size() const;
  // The CRC-32C of all bytes.
  uint32_t checksum() const;

 private:
  class File;
  explicit RowsWriter(std::unique_ptr<File> file);

  std::unique_ptr<File> file_;
};

// What a reader does with the rows of a file: blocks of them, in the order of
// their keys. `rows` is empty for keys that were erased.
using VisitRows =
    std::function<Status(const RowsHeader& header, std::span<const Key> keys,
                         std::span<const float> rows)>;

// Calls `begin` (may be empty) with the header, then `visit` with every block,
// on this thread. A second one reads ahead. DataLoss names the file, and where
// in it, when it is truncated, damaged or no such file. A header that comes to
// `begin` promises no more rows than the file has bytes for; `row_floats` is at
// least `dim`, and not what a layout needs: that is for the caller to compare.
Status ReadRows(const base::Path& path, const VisitRows& visit,
                const std::function<Status(const RowsHeader&)>& begin = {});

}  // namespace fleet::table

#endif  // FLEET_TABLE_ROWS_FILE_H_
