// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/slurm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"

namespace fleet::cluster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;

std::vector<std::string> Nodes(const char* text) {
  return ParseSlurmNodeList(text, "SLURM_NODELIST").value();
}

TEST(SlurmNodeList, OfPlainNamesIsSplitAtCommas) {
  EXPECT_THAT(Nodes("localhost"), ElementsAre("localhost"));
  EXPECT_THAT(Nodes("a,b-1,c.d"), ElementsAre("a", "b-1", "c.d"));
}

TEST(SlurmNodeList, ExpandsBracketsInOrder) {
  EXPECT_THAT(Nodes("n[1-3,7],login"),
              ElementsAre("n1", "n2", "n3", "n7", "login"));
  EXPECT_THAT(Nodes("n[2,1]"), ElementsAre("n2", "n1"));
}

TEST(SlurmNodeList, KeepsTheWidthOfPaddedNumbers) {
  EXPECT_THAT(Nodes("n[08-10]"), ElementsAre("n08", "n09", "n10"));
  EXPECT_THAT(Nodes("n[9-10,007]"), ElementsAre("n9", "n10", "n007"));
}

TEST(SlurmNodeList, CountsSeveralBracketsLikeAnOdometer) {
  EXPECT_THAT(Nodes("r[1-2]n[01-02]-ib"),
              ElementsAre("r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib"));
}

TEST(SlurmNodeList, ErrorsNameTheVariableAndTheText) {
  for (const char* text :
       {"n[1-2", "n1-2]", "n[[1]]", "n[]", "n[2-1]", "n[a-b]", "n[1-]", "n[1,]",
        "a,,b", "", "a,a", "n[1,1]", "n[1-1000000000]", "a[1-60000]b[1-60000]",
        "n[1-99999999999999999999]"}) {
    EXPECT_THAT(
        ParseSlurmNodeList(text, "SLURM_NODELIST"),
        StatusIs(kInvalid, AllOf(HasSubstr("SLURM_NODELIST"), HasSubstr(text))))
        << text;
  }
}

TEST(SlurmTasksPerNode, ExpandsRepeats) {
  const auto tasks = [](const char* text) {
    return ParseSlurmTasksPerNode(text, "SLURM_TASKS_PER_NODE").value();
  };
  EXPECT_THAT(tasks("4"), ElementsAre(4));
  EXPECT_THAT(tasks("2(x3),1"), ElementsAre(2, 2, 2, 1));
}

TEST(SlurmTasksPerNode, RefusesOtherForms) {
  for (const char* text : {"", "a", "2(x)", "2(x0)", "2(x3", "2,", "2(x99999)",
                           "-1", "99999999999"}) {
    EXPECT_THAT(ParseSlurmTasksPerNode(text, "TASKS"),
                StatusIs(kInvalid, HasSubstr("TASKS")))
        << text;
  }
}

}  // namespace
}  // namespace fleet::cluster
