// SPDX-License-Identifier: Apache-2.0

// A save of all tables by all servers, as docs/table_format.md describes it.
// Its manifest, save.N.manifest, is written last and names every file of it
// with size and checksum: a save without one does not count, so that one which
// was broken off, wherever, leaves the saves before it as they were.
//
//   ASSIGN_OR_RETURN(const SavedModel model, FindModel(folder));
//   ASSIGN_OR_RETURN(const std::vector<SaveList> lists, model.ListsOf("emb"));

#ifndef FLEET_TABLE_SAVE_MANIFEST_H_
#define FLEET_TABLE_SAVE_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/table/saved_table.h"

namespace fleet::table {

struct SaveManifest {
  uint64_t number = 0;  // from 1
  SaveKind kind = SaveKind::kBase;
  uint64_t since = 0;  // the save that a delta builds on; 0 for a base
  // The view of the job at the moment of the save: its number, the incarnations
  // of workers, and the epochs of servers; empty where nobody told them.
  uint64_t view = 0;
  std::map<uint32_t, uint64_t> incarnations;
  std::vector<uint64_t> epochs;
  std::string job;  // who wrote it
  // By server: what it knows of workers, for a server that is started again
  // within the job. Opaque here.
  std::vector<std::string> ledgers;
  // What every server wrote of every table. Numbers and kinds are the
  // manifest's.
  std::vector<SaveList> lists;

  uint32_t num_servers() const { return static_cast<uint32_t>(ledgers.size()); }
  uint64_t byte_size() const;  // of all files
};

std::string Encode(const SaveManifest& manifest);
// DataLoss says what does not fit.
Result<SaveManifest> DecodeManifest(std::string_view text);

// What one server wrote of one table, as bytes on its way to who writes the
// manifest.
std::string Encode(const SaveList& list);
Result<SaveList> DecodeSaveList(std::string_view text);

// Makes the save count.
Status WriteManifest(const base::Path& folder, const SaveManifest& manifest);

// A save, and the saves that it builds on.
struct SavedModel {
  base::Path folder;
  // 0: the folder is of the time before manifests. A table's newest complete
  // lists count then (FindSave).
  uint64_t number = 0;
  std::vector<SaveManifest> saves;  // the base first

  // What a table is read from, oldest first. NotFound when it was not saved.
  Result<std::vector<SaveList>> ListsOf(const std::string& table) const;
  uint64_t base_byte_size() const;
  uint64_t deltas_byte_size() const;
};

// Deltas make a load longer: a row of one takes two to three times as long as a
// row of the base. When their bytes exceed a sixth of the base's, or there are
// a hundred, the next save should be a base.
bool WantsNewBase(const SavedModel& model);

enum class CheckFiles {
  kBySize,      // they are there, and as large as they were
  kByChecksum,  // every byte is read
};

// Which saves of a folder may be taken.
struct WhichSave {
  uint64_t at_most = UINT64_MAX;  // their numbers
  // Beyond it those that this job has written; empty: none.
  std::string or_of_job;
};

// The newest of these saves in `folder` whose files and those of the saves that
// it builds on are all there. A save of which that is
// not so is left with a warning that names the file. NotFound when nothing was
// saved, DataLoss when all saves are damaged.
Result<SavedModel> FindModel(const base::Path& folder, CheckFiles check,
                             const WhichSave& which = {});
// The save of that number (0: of the time before manifests), with files of the
// right size, and no other.
Result<SavedModel> OpenModel(const base::Path& folder, uint64_t number);

// The highest number that a file of a save in the folder has, also of one that
// was broken off. 0: there is none.
Result<uint64_t> HighestSaveNumber(const base::Path& folder);

// Removes what saves before `number` left, but for the newest of them that is
// whole, with what it builds on: two saves stay, so that one may be damaged.
// Call it when that save, a base, counts.
Status RemoveSavesBefore(const base::Path& folder, uint64_t number);

}  // namespace fleet::table

#endif  // FLEET_TABLE_SAVE_MANIFEST_H_
