// SPDX-License-Identifier: Apache-2.0

// Programs as text: what is read, and written again, is the same.

#include "fleet/program/text.h"

#include "tests/fuzz_bytes/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace program = fleet::program;
  fleet::fuzz::Input input(data, size);
  (void)input.TakeByte();
  const auto parsed = program::ParseText(input.rest());
  if (!parsed.ok()) return 0;
  ++fleet::fuzz::num_taken;
  const std::string text = program::ToString(**parsed);
  const auto again = program::ParseText(text);
  FLEET_CHECK(again.ok(), again.status(), "\n", text);
  FLEET_CHECK(program::ToString(**again) == text, text);
  return 0;
}
