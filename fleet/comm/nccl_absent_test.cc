// SPDX-License-Identifier: Apache-2.0

// Where there is no CUDA driver, the answer says what is missing. On a machine
// with a GPU, nccl_check.cc is the test.

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/comm/in_process.h"
#include "fleet/comm/nccl.h"

namespace fleet::comm {
namespace {

TEST(NcclAbsent, SaysHowToGetIt) {
  auto made = ConnectNccl(std::move(MakeInProcess(1)[0]), 0, {},
                          Deadline::After(std::chrono::seconds(60)));
  if (made.ok()) {
    EXPECT_EQ((*made)->backend(), "nccl");
  } else {
    EXPECT_THAT(made.status(),
                StatusIs(StatusCode::kUnimplemented,
                         testing::HasSubstr("a CUDA build of torch")));
  }
}

}  // namespace
}  // namespace fleet::comm
