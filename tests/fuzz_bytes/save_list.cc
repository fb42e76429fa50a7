// SPDX-License-Identifier: Apache-2.0

// Lists of the files of a save: as files of the time before manifests, and as
// servers send them. By the first byte: 1, the checksum is made right; 2, as
// servers send them.

#include "fleet/table/save_manifest.h"
#include "fleet/table/saved_table.h"

#include "tests/fuzz_bytes/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace table = fleet::table;
  fleet::fuzz::Input input(data, size);
  const uint8_t mode = input.TakeByte();
  std::string text = input.rest();
  if ((mode & 2) != 0) {
    const auto list = table::DecodeSaveList(text);
    if (!list.ok()) return 0;
    ++fleet::fuzz::num_taken;
    const auto again = table::DecodeSaveList(table::Encode(*list));
    FLEET_CHECK(again.ok(), again.status());
    FLEET_CHECK_EQ(again->files.size(), list->files.size());
    return 0;
  }
  if ((mode & 1) != 0) fleet::fuzz::RepairEnd(text);
  const fleet::base::Path& folder = fleet::fuzz::EmptyFolder();
  fleet::fuzz::Put(folder / "emb.1.0-of-1.list", text);
  const auto lists = table::FindSave(folder, "emb");
  if (lists.ok()) {
    if (!lists->empty()) ++fleet::fuzz::num_taken;
    for (const table::SaveList& list : *lists) {
      for (const table::SaveList::File& file : list.files) {
        FLEET_CHECK(file.name.find('/') == std::string::npos);
      }
    }
  }
  (void)table::HighestSaveNumber(folder);
  return 0;
}
