// SPDX-License-Identifier: Apache-2.0

// Program files in Paddle's form: what is read can be written, and read again.

#include "fleet/program/define_ops.h"
#include "fleet/program/text.h"
#include "fleet/program/wire.h"
#include "fleet/saved/model_file.h"

#include "tests/fuzz_bytes/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace program = fleet::program;
  namespace saved = fleet::saved;
  static const program::OpRegistry registry = [] {
    program::OpRegistry all;
    program::DefineAllOps(all);
    return all;
  }();
  fleet::fuzz::Input input(data, size);
  (void)input.TakeByte();
  const std::string bytes = input.rest();
  const auto bare = program::Parse(bytes);
  if (bare.ok()) {
    ++fleet::fuzz::num_taken;
    const std::string serialized = program::Serialize(**bare);
    const auto again = program::Parse(serialized);
    FLEET_CHECK(again.ok(), again.status());
    FLEET_CHECK(program::Serialize(**again) == serialized);
  }
  (void)program::ParseTensorType(bytes);
  const auto parsed = saved::ParseProgram(registry, bytes, "net");
  if (!parsed.ok()) return 0;
  ++fleet::fuzz::num_taken;
  (void)program::ToString(**parsed);
  (void)saved::FeedsOf(**parsed);
  (void)saved::FetchesOf(**parsed);
  (void)saved::SavedVariables(**parsed);
  const auto again = saved::ParseProgram(
      registry, saved::SerializeProgram(**parsed), "net again");
  FLEET_CHECK(again.ok(), again.status());
  (void)saved::ToPaddle(registry, **parsed, saved::Paddle::k2);
  return 0;
}
