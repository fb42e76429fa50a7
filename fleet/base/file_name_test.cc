// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/file_name.h"

#include <random>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

TEST(FileName, OfMostNamesIsTheName) {
  for (const char* name :
       {"emb", "fc_0.w_0", "a.b..c", "100%", "%", "%%", "a%2", "%zz", "my emb",
        "w@GRAD", "größe", "a.", "x~", "-rf"}) {
    EXPECT_EQ(FileNameOf(name), name);
    EXPECT_EQ(NameOfFile(name), name);
  }
}

TEST(FileName, EscapesWhatLeadsElsewhere) {
  EXPECT_EQ(FileNameOf("enc/w"), "enc%2Fw");
  EXPECT_EQ(FileNameOf("../evil"), "%2E.%2Fevil");
  EXPECT_EQ(FileNameOf(".."), "%2E.");
  EXPECT_EQ(FileNameOf("."), "%2E");
  EXPECT_EQ(FileNameOf(".hidden"), "%2Ehidden");
  EXPECT_EQ(FileNameOf("/etc/passwd"), "%2Fetc%2Fpasswd");
  EXPECT_EQ(FileNameOf(std::string("a\0b", 3)), "a%00b");
  EXPECT_EQ(FileNameOf("enc%2Fw"), "enc%252Fw");
}

TEST(FileName, GivesEveryNameItsOwnFile) {
  std::mt19937 draw(1);
  const std::string letters("/.%2F5Ee\0a", 10);
  std::set<std::string> names;
  std::set<std::string> files;
  for (int i = 0; i < 20'000; ++i) {
    std::string name;
    for (size_t size = draw() % 9; size > 0; --size) {
      name += letters[draw() % letters.size()];
    }
    const std::string file = FileNameOf(name);
    EXPECT_EQ(NameOfFile(file), name);
    EXPECT_EQ(file.find('/'), file.npos);
    EXPECT_EQ(file.find('\0'), file.npos);
    EXPECT_FALSE(file.starts_with('.'));
    names.insert(name);
    files.insert(file);
  }
  EXPECT_EQ(names.size(), files.size());
}

TEST(NameUnderConstruction, IsThatOfTheFile) {
  EXPECT_EQ(NameUnderConstruction(".emb.7.0-of-2.0.rows.4711.3.tmp"),
            "emb.7.0-of-2.0.rows");
  for (const char* other : {"emb.rows.1.2.tmp", ".emb.rows.1.2", ".emb.tmp",
                            ".emb.1.x.tmp", ".1.2.", ".emb.1..tmp", ""}) {
    EXPECT_EQ(NameUnderConstruction(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace fleet::base
