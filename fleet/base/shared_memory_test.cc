// SPDX-License-Identifier: Apache-2.0

#include "fleet/base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fleet/base/status_matchers.h"

namespace fleet::base {
namespace {

constexpr size_t kByteSize = 4 * kPageByteSize;

TEST(SharedMemory, IsSeenByAllThatMapIt) {
  ASSERT_OK_AND_ASSIGN(const Descriptor memory,
                       MakeSharedMemory("test", kByteSize));
  ASSERT_OK_AND_ASSIGN(const Mapping first, Mapping::Of(memory, kByteSize));
  ASSERT_OK(first.Reserve(memory, 0, kByteSize));
  ASSERT_OK_AND_ASSIGN(const Mapping second, Mapping::Of(memory, kByteSize));
  EXPECT_EQ(first.data()[5000], std::byte{0});
  first.data()[5000] = std::byte{7};
  EXPECT_EQ(second.data()[5000], std::byte{7});
}

TEST(SharedMemory, APartIsMappedAlone) {
  ASSERT_OK_AND_ASSIGN(const Descriptor memory,
                       MakeSharedMemory("test", kByteSize));
  ASSERT_OK_AND_ASSIGN(const Mapping whole, Mapping::Of(memory, kByteSize));
  ASSERT_OK_AND_ASSIGN(
      const Mapping part,
      Mapping::OfPart(memory, 2 * kPageByteSize, kPageByteSize));
  EXPECT_EQ(part.byte_size(), kPageByteSize);
  ASSERT_OK(part.Reserve(memory, 0, kPageByteSize));
  part.data()[1] = std::byte{9};
  EXPECT_EQ(whole.data()[2 * kPageByteSize + 1], std::byte{9});
  EXPECT_THAT(Mapping::OfPart(memory, 3 * kPageByteSize, 2 * kPageByteSize),
              HasCode(StatusCode::kDataLoss));
}

TEST(SharedMemory, ItsSizeCannotBeChanged) {
  ASSERT_OK_AND_ASSIGN(const Descriptor memory,
                       MakeSharedMemory("test", kByteSize));
  EXPECT_NE(ftruncate(memory.get(), kPageByteSize), 0);
  EXPECT_NE(ftruncate(memory.get(), 2 * kByteSize), 0);
}

TEST(SharedMemory, ConstantMemoryStaysAsItIs) {
  ASSERT_OK_AND_ASSIGN(const Descriptor memory,
                       MakeConstantMemory("test", "xyzzy"));
  char bytes[8];
  EXPECT_EQ(pread(memory.get(), bytes, sizeof(bytes), 0), 5);
  EXPECT_EQ(std::string_view(bytes, 5), "xyzzy");
  EXPECT_LT(pwrite(memory.get(), "a", 1, 0), 0);
  EXPECT_NE(ftruncate(memory.get(), 0), 0);
  EXPECT_EQ(
      mmap(nullptr, 5, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0),
      MAP_FAILED);
}

TEST(SharedMemory, WhatIsNotSealedOrOfAnotherSizeIsRefused) {
  ASSERT_OK_AND_ASSIGN(const Descriptor memory,
                       MakeSharedMemory("test", kByteSize));
  EXPECT_THAT(Mapping::Of(memory, kPageByteSize),
              HasCode(StatusCode::kDataLoss));
  const Descriptor loose(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(loose.get(), kByteSize), 0);
  EXPECT_THAT(Mapping::Of(loose, kByteSize), HasCode(StatusCode::kDataLoss));
  EXPECT_THAT(Mapping::OfPart(loose, 0, kPageByteSize),
              HasCode(StatusCode::kDataLoss));
}

TEST(SharedMemory, MoreThanTheHostHasIsUnavailable) {
  EXPECT_THAT(CheckAvailable(size_t{1} << 60),
              StatusIs(StatusCode::kUnavailable,
                       testing::HasSubstr("shared memory of")));
  EXPECT_OK(CheckAvailable(kByteSize));
}

}  // namespace
}  // namespace fleet::base
