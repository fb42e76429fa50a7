// SPDX-License-Identifier: Apache-2.0

// Manifests of saves: of one as text, and of two in a folder that is looked
// through for what can be loaded. By the first byte: 1, checksums are made
// right.

#include "fleet/table/save_manifest.h"

#include "tests/fuzz_bytes/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace table = fleet::table;
  fleet::fuzz::Input input(data, size);
  const uint8_t mode = input.TakeByte();
  const fleet::base::Path& folder = fleet::fuzz::EmptyFolder();
  for (const int number : {1, 2}) {
    std::string text = input.TakePart();
    if ((mode & 1) != 0) fleet::fuzz::RepairEnd(text);
    const auto manifest = table::DecodeManifest(text);
    if (manifest.ok()) {
      const std::string encoded = Encode(*manifest);
      const auto again = table::DecodeManifest(encoded);
      FLEET_CHECK(again.ok(), again.status());
      FLEET_CHECK(Encode(*again) == encoded);
      for (const table::SaveList& list : manifest->lists) {
        for (const table::SaveList::File& file : list.files) {
          FLEET_CHECK(file.name.find('/') == std::string::npos);
        }
      }
    }
    fleet::fuzz::Put(folder / fleet::base::Concat("save.", number, ".manifest"),
                     text);
  }
  fleet::fuzz::Put(folder / "emb.1.0-of-1.0.rows", "rows");
  fleet::fuzz::Put(folder / "emb.2.0-of-1.0.rows", "");
  const auto model = table::FindModel(folder, table::CheckFiles::kByChecksum);
  if (model.ok()) {
    ++fleet::fuzz::num_taken;
    (void)model->ListsOf("emb");
    (void)table::WantsNewBase(*model);
  }
  (void)table::RemoveSavesBefore(folder, 2);
  return 0;
}
