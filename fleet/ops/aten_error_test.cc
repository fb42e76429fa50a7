// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/aten_error.h"

#include <cerrno>
#include <new>
#include <stdexcept>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace fleet::ops {
namespace {

template <class F>
Status Caught(F f) {
  try {
    f();
  } catch (const std::exception& error) {
    return FromException(error);
  }
  return OkStatus();
}

TEST(AtenErrorTest, DropsTheBacktraceAndSpellsTypesAsWeDo) {
  Status status = Caught([] {
    TORCH_CHECK(false, "X is ", at::kFloat, " and 'Long', not Longer");
  });
  EXPECT_EQ(status, InvalidArgument("X is float32 and 'int64', not Longer"));
}

TEST(AtenErrorTest, OtherExceptionsKeepTheirText) {
  EXPECT_EQ(Caught([] { throw std::runtime_error("no"); }),
            InvalidArgument("no"));
}

TEST(AtenErrorTest, LackOfMemoryIsToldApart) {
  Status status = Caught([] { at::empty({int64_t{1} << 50}); });
  EXPECT_EQ(status.error_number(), ENOMEM);
  EXPECT_EQ(
      status.message(),
      "failed to allocate 4503599627370496 bytes: Cannot allocate memory");
  EXPECT_EQ(Caught([] { throw std::bad_alloc(); }).error_number(), ENOMEM);
}

}  // namespace
}  // namespace fleet::ops
