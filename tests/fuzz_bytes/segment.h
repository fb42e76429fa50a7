// SPDX-License-Identifier: Apache-2.0

// Segments of a log from records, as base/log_file.h writes them.

#ifndef FLEET_TESTS_FUZZ_BYTES_SEGMENT_H_
#define FLEET_TESTS_FUZZ_BYTES_SEGMENT_H_

#include <string>
#include <string_view>

#include "fleet/base/log_file.h"

#include "tests/fuzz_bytes/bytes.h"

namespace fleet::fuzz {

// log.NUMBER with the parts of the input as its records.
inline std::string SegmentOf(Input& input, uint64_t number = 1) {
  std::string segment;
  for (int i = 0; i < 64 && !input.empty(); ++i) {
    const std::string record = input.TakePart();
    std::string head;
    base::Append(head, uint64_t{0x676f6c7465656c66} ^ (number << 8));
    base::Append(head, uint64_t{0});  // nothing is known to be on the disk
    base::Append(head, static_cast<uint32_t>(record.size()));
    const uint32_t crc = base::Crc32c(record, base::Crc32c(head));
    base::Append(head, crc);
    segment += head + record;
    segment.resize((segment.size() + 7) / 8 * 8);
  }
  return segment;
}

// The records of a segment that a server wrote, as parts.
inline std::string PartsOf(const base::Path& folder) {
  std::string parts;
  const auto records = base::LogRecords::Read(folder, 0);
  FLEET_CHECK(records.ok(), records.status());
  for (const auto& record : records->all()) {
    AppendPart(parts, base::TextOf(record));
  }
  return parts;
}

}  // namespace fleet::fuzz

#endif  // FLEET_TESTS_FUZZ_BYTES_SEGMENT_H_
