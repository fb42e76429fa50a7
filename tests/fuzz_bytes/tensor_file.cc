// SPDX-License-Identifier: Apache-2.0

// Files of tensors in Paddle's form. The first byte says how many there are.

#include "fleet/saved/tensor_file.h"

#include <deque>
#include <string>
#include <vector>

#include "tests/fuzz_bytes/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace saved = fleet::saved;
  fleet::fuzz::Input input(data, size);
  const std::vector<std::string> names(input.TakeByte() % 4, "w");
  const std::string bytes = input.rest();
  std::deque<std::string> rooms;
  std::vector<saved::TensorHeader> headers;
  const fleet::Status parsed = saved::ParseTensors(
      bytes, names, "file",
      [&](saved::TensorHeader header) -> fleet::Result<std::span<std::byte>> {
        const auto byte_size = saved::ByteSize(header.type);
        // No more is asked for than the file has.
        FLEET_CHECK(byte_size.has_value() && *byte_size <= bytes.size());
        headers.push_back(std::move(header));
        rooms.emplace_back(*byte_size, '\0');
        return std::as_writable_bytes(std::span(rooms.back()));
      });
  if (!parsed.ok()) return 0;
  ++fleet::fuzz::num_taken;
  std::string written;
  for (size_t i = 0; i < headers.size(); ++i) {
    FLEET_CHECK(
        saved::WriteTensor({headers[i].type, std::as_bytes(std::span(rooms[i])),
                            headers[i].lod},
                           [&](std::span<const std::byte> more) {
                             written += fleet::base::TextOf(more);
                             return fleet::OkStatus();
                           })
            .ok());
  }
  const fleet::Status again = saved::ParseTensors(
      written, names, "file again",
      [&](const saved::TensorHeader&) -> fleet::Result<std::span<std::byte>> {
        std::string room = std::move(rooms.front());
        rooms.pop_front();
        rooms.push_back(std::move(room));
        return std::as_writable_bytes(std::span(rooms.back()));
      });
  FLEET_CHECK(again.ok(), again);
  return 0;
}
