// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/secret.h"

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "fleet/base/status_matchers.h"

namespace fleet::channel {
namespace {

// The flags of the memory around `address`, as the kernel names them: "rd wr".
std::string FlagsOfMemoryAt(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(smaps, line)) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= wanted && wanted < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line;
    }
  }
  return "not found";
}

TEST(Secret, HoldsItsText) {
  const Secret none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.text(), "");
  const Secret secret = "xyzzy";
  const Secret copy = secret;  // NOLINT(performance-unnecessary-copy-*)
  EXPECT_EQ(copy.text(), "xyzzy");
  EXPECT_EQ(copy, secret);
  EXPECT_NE(copy, none);
}

TEST(Secret, LiesInMemoryThatNoCoreFileContains) {
  const Secret secret = "xyzzy";
  EXPECT_THAT(FlagsOfMemoryAt(secret.text().data()), testing::HasSubstr(" dd"));
  const std::string other = "xyzzy";
  EXPECT_THAT(FlagsOfMemoryAt(other.data()),
              testing::Not(testing::HasSubstr(" dd")));
}

TEST(Secret, RandomOnesDiffer) {
  ASSERT_OK_AND_ASSIGN(const Secret a, Secret::Random());
  ASSERT_OK_AND_ASSIGN(const Secret b, Secret::Random());
  EXPECT_EQ(a.text().size(), 64u);
  EXPECT_NE(a, b);
}

TEST(Secret, TextIsStretchedAndAKeyIsNot) {
  ASSERT_OK_AND_ASSIGN(const Secret random, Secret::Random());
  EXPECT_EQ(Secret::FromText(random.text()).value(), random);
  ASSERT_OK_AND_ASSIGN(const Secret key, Secret::FromText("xyzzy"));
  // As Python computes it: hashlib.scrypt(b"xyzzy", salt=b"fleet job secret",
  // n=2**15, r=8, p=1, maxmem=2**26, dklen=32).
  EXPECT_EQ(key.text(),
            "a11c9904ed1f4439eeeb628caa2294a44e8c66684ccf8f7257c6816c7ad230d8");
  EXPECT_NE(Secret::FromText("xyzzz").value(), key);
  EXPECT_TRUE(Secret::FromText("").value().empty());
}

}  // namespace
}  // namespace fleet::channel
