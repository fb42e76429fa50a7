// SPDX-License-Identifier: Apache-2.0
#include "fleet/base/heap.h"

#include <cstdlib>
#include <cstring>
#include <sys/resource.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace fleet::base {
namespace {

// Sanitizers bring a malloc of their own, and answer for it as they like.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    !defined(__GLIBC__)
constexpr bool kIsGlibcMalloc = false;
#else
constexpr bool kIsGlibcMalloc = true;
#endif

constexpr size_t kByteSize = size_t{24} << 20;

long Faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// What a step does: some blocks at once, all of them written, then freed.
long FaultsOfStep() {
  const long before = Faults();
  void* blocks[3];
  for (void*& block : blocks) {
    block = std::malloc(kByteSize);
    std::memset(block, 1, kByteSize);
    // Or the compiler leaves it out.
    asm volatile("" : : "r"(block) : "memory");
  }
  for (void* block : blocks) std::free(block);
  return Faults() - before;
}

class HeapTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_",
          "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"}) {
      unsetenv(name);
    }
  }
};

TEST_F(HeapTest, TheEnvironmentDecides) {
  for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_",
                           "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_"}) {
    setenv(name, "131072", 1);
    EXPECT_FALSE(KeepFreedMemory()) << name;
    unsetenv(name);
  }
  setenv("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072", 1);
  EXPECT_FALSE(KeepFreedMemory());
  setenv("GLIBC_TUNABLES", "glibc.rtld.nns=4", 1);
  EXPECT_TRUE(KeepFreedMemory() || !kIsGlibcMalloc);
}

TEST_F(HeapTest, TheSecondStepTakesNoPageFromTheKernel) {
  ASSERT_TRUE(KeepFreedMemory() || !kIsGlibcMalloc);
  FaultsOfStep();
  const long faults = FaultsOfStep();
  const long few = static_cast<long>(kByteSize) / getpagesize() / 10;
  EXPECT_TRUE(faults < few || !kIsGlibcMalloc) << faults;
}

TEST_F(HeapTest, MayBeCalledAgain) {
  EXPECT_EQ(KeepFreedMemory(), KeepFreedMemory());
}

}  // namespace
}  // namespace fleet::base
