// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::base {
namespace {

using ::testing::HasSubstr;

TEST(Module, IsFoundBesideLibfleetCore) {
  // libfleet_core lies beside itself, and the name of its own function is
  // known.
  Result<void*> check_failed =
      LoadModule("libfleet_core.so",
                 "_ZN5fleet4base10LoadModuleERKNSt7__cxx1112basic_"
                 "stringIcSt11char_traitsIcESaIcEEEPKcS8_",
                 "");
  ASSERT_OK(check_failed.status());
  EXPECT_EQ(*check_failed, reinterpret_cast<void*>(&LoadModule));
}

TEST(Module, ThatIsAbsentSaysHowToGetIt) {
  EXPECT_THAT(LoadModule("libfleet_none.so", "f", "install none").status(),
              StatusIs(StatusCode::kUnimplemented,
                       testing::AllOf(HasSubstr("libfleet_none.so"),
                                      HasSubstr("install none"))));
}

TEST(Module, OfAnotherVersionIsAnError) {
  EXPECT_THAT(
      LoadModule("libfleet_core.so", "fleet_none", "build it again").status(),
      StatusIs(
          StatusCode::kUnimplemented,
          testing::AllOf(HasSubstr("another version"), HasSubstr("fleet_none"),
                         HasSubstr("build it again"))));
}

}  // namespace
}  // namespace fleet::base
