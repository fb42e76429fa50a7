// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/no_destructor.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

struct Counted {
  Counted(std::string given, int* ends) : name(std::move(given)), ends(ends) {}
  ~Counted() { ++*ends; }
  std::string name;
  int* ends;
};

TEST(NoDestructor, HoldsAValueThatDoesNotEnd) {
  static int ends = 0;
  {
    NoDestructor<Counted> value("a name that is too long to be kept inside",
                                &ends);
    EXPECT_EQ(value->name, "a name that is too long to be kept inside");
    (*value).name = "";
    (*value).name.shrink_to_fit();  // this one is on the stack: no leak
  }
  EXPECT_EQ(ends, 0);
}

TEST(NoDestructor, IsMadeOnce) {
  auto get = []() -> std::unique_ptr<int>& {
    static NoDestructor<std::unique_ptr<int>> value(std::make_unique<int>(7));
    return *value;
  };
  EXPECT_EQ(*get(), 7);
  EXPECT_EQ(&get(), &get());
}

}  // namespace
}  // namespace fleet::base
