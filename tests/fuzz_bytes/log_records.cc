// SPDX-License-Identifier: Apache-2.0

// A server's log: its records, requests in them, and the order in which they
// are done again. By the first byte: 1, heads and checksums of records are made
// right.

#include <vector>

#include "fleet/base/log_file.h"
#include "fleet/ps/request_log.h"

#include "tests/fuzz_bytes/bytes.h"
#include "tests/fuzz_bytes/segment.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace ps = fleet::ps;
  fleet::fuzz::Input input(data, size);
  const uint8_t mode = input.TakeByte();
  const fleet::base::Path& folder = fleet::fuzz::EmptyFolder();
  fleet::fuzz::Put(folder / "log.1", (mode & 1) != 0
                                         ? fleet::fuzz::SegmentOf(input)
                                         : input.rest());
  const auto records = fleet::base::LogRecords::Read(folder, 1);
  if (!records.ok()) return 0;
  std::vector<ps::LoggedRequest> requests;
  for (const std::span<const std::byte> record : records->all()) {
    const auto request = ps::DecodeLogged(record);
    if (!request.ok()) continue;
    (void)ps::DecodeLoggedStep(request->body);
    requests.push_back(*request);
    ++fleet::fuzz::num_taken;
  }
  uint64_t num_turns = 0;
  for (const ps::LoggedRequest& request : requests) {
    num_turns += request.turns.size();
  }
  uint64_t num_done = 0;
  (void)ps::Redo(requests, 1, {{{ps::TableId{0}, 0}, 2}},
                 [&](const ps::LoggedRequest&, const ps::LoggedTurn&) {
                   ++num_done;
                   return fleet::OkStatus();
                 });
  FLEET_CHECK(num_done <= num_turns);
  return 0;
}
