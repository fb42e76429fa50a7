// SPDX-License-Identifier: Apache-2.0
#include "fleet/base/exceptions.h"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::base {
namespace {

using testing::HasSubstr;

TEST(CatchExceptions, ReturnsWhatTheWorkReturns) {
  EXPECT_OK(CatchExceptions([] { return OkStatus(); }));
  const auto number = CatchExceptions([]() -> Result<int> { return 3; });
  ASSERT_OK(number);
  EXPECT_EQ(*number, 3);
}

TEST(CatchExceptions, MakesAStatusOfWhatItThrows) {
  EXPECT_THAT(CatchExceptions([]() -> Status { throw std::bad_alloc(); }),
              StatusIs(StatusCode::kUnavailable, HasSubstr("no memory left")));
  EXPECT_THAT(CatchExceptions(
                  []() -> Result<int> { throw std::out_of_range("place 7"); }),
              StatusIs(StatusCode::kInternal, HasSubstr("place 7")));
}

}  // namespace
}  // namespace fleet::base
