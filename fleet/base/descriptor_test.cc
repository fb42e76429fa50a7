// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/descriptor.h"

#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

int OpenNull() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

// What `body` returns in a forked child.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int state = 0;
  EXPECT_EQ(waitpid(child, &state, 0), child);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

TEST(Descriptor, ClosesWhatItOwns) {
  int fd = -1;
  {
    const Descriptor owner(OpenNull());
    ASSERT_TRUE(owner.valid());
    fd = owner.get();
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(Descriptor, OfNothingIsNotValid) {
  Descriptor none;
  EXPECT_FALSE(none.valid());
  EXPECT_EQ(none.Close(), 0);
  EXPECT_FALSE(Descriptor(-1).valid());
  EXPECT_FALSE(Descriptor::OfThisProcess(-1).valid());
}

TEST(Descriptor, MovesWithItsKind) {
  for (const bool of_this_process : {false, true}) {
    Descriptor first = of_this_process ? Descriptor::OfThisProcess(OpenNull())
                                       : Descriptor(OpenNull());
    const int fd = first.get();
    Descriptor second(std::move(first));
    EXPECT_FALSE(first.valid());
    Descriptor third;
    third = std::move(second);
    EXPECT_FALSE(second.valid());
    EXPECT_EQ(third.get(), fd);
    EXPECT_EQ(InChild([&] { return IsOpen(fd) ? 1 : 0; }),
              of_this_process ? 0 : 1);
    third = Descriptor();
    EXPECT_FALSE(IsOpen(fd));
  }
}

TEST(Descriptor, AnAssignmentClosesWhatWasHeldAtOnce) {
  Descriptor held(OpenNull());
  const int before = held.get();
  Descriptor next(OpenNull());
  held = std::move(next);
  EXPECT_FALSE(IsOpen(before));
  EXPECT_TRUE(IsOpen(held.get()));
}

TEST(Descriptor, OfThisProcessIsWhatWasMadeUnderTheLockOfForks) {
  const Descriptor made = Descriptor::OfThisProcess([] { return OpenNull(); });
  ASSERT_TRUE(made.valid());
  EXPECT_EQ(InChild([&] { return IsOpen(made.get()) ? 1 : 0; }), 0);
  const Descriptor failed = Descriptor::OfThisProcess([] {
    errno = EMFILE;
    return -1;
  });
  EXPECT_FALSE(failed.valid());
  EXPECT_EQ(errno, EMFILE);
}

TEST(Descriptor, AChildClosesNothingThatGotTheNumberOfItsParents) {
  Descriptor parents = Descriptor::OfThisProcess(OpenNull());
  EXPECT_EQ(InChild([&] {
              const int mine = OpenNull();
              if (mine != parents.get()) return 2;
              parents = Descriptor();
              return IsOpen(mine) ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(IsOpen(parents.get()));
}

TEST(Descriptor, WhatIsReleasedStaysOpenInAChildToo) {
  Descriptor owner = Descriptor::OfThisProcess(OpenNull());
  const int fd = owner.Release();
  EXPECT_FALSE(owner.valid());
  EXPECT_EQ(InChild([&] { return IsOpen(fd) ? 0 : 1; }), 0);
  EXPECT_EQ(close(fd), 0);
}

}  // namespace
}  // namespace fleet::base
