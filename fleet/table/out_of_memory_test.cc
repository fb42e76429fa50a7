// SPDX-License-Identifier: Apache-2.0

// What saves and loads do when there is no memory: every allocation of some
// size fails once. Small ones do not: std::filesystem does not survive that.

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/table/sparse_table.h"
#include "fleet/testing/temporary_folder.h"

namespace {

constexpr long kNever = std::numeric_limits<long>::max();
constexpr size_t kLarge = 512;
// How many large allocations, of any thread, succeed before one that fails.
std::atomic<long> allocations_left = kNever;

void* Allocate(size_t size, size_t alignment) {
  if (size >= kLarge && allocations_left != kNever && allocations_left-- == 0) {
    throw std::bad_alloc();
  }
  void* const at = std::aligned_alloc(
      alignment, (size + alignment - 1) / alignment * alignment);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size, alignof(max_align_t)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete(void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete(void* at, size_t, std::align_val_t) noexcept {
  std::free(at);
}

namespace fleet::table {
namespace {

constexpr size_t kNumRows = 60'000;  // several blocks of a file

std::unique_ptr<SparseTable> MakeTable() {
  SparseTableOptions options;
  options.name = "emb";
  options.dim = 2;
  options.num_shards = 2;
  auto table = SparseTable::Make(options);
  EXPECT_OK(table);
  return std::move(table).value();
}

// Calls `work` with the first allocation failing, then with the second, until
// none is left to fail. Returns how many did.
template <typename Work>
int ForEachAllocation(const Work& work) {
  for (int count = 0;; ++count) {
    allocations_left = count;
    const Status outcome = work();
    const bool failed = allocations_left < 0;
    allocations_left = kNever;
    if (!failed) {
      EXPECT_OK(outcome);
      return count;
    }
    // An allocation that was for nothing important may fail.
    if (!outcome.ok()) {
      EXPECT_THAT(outcome, HasCode(StatusCode::kUnavailable)) << count;
    }
  }
}

TEST(OutOfMemory, ASaveOrALoadThatHasNoneFailsAndTheNextOneWorks) {
  testing::TemporaryFolder folder;
  auto table = MakeTable();
  std::vector<Key> keys(kNumRows);
  std::iota(keys.begin(), keys.end(), 1);
  std::vector<float> rows(kNumRows * 2);
  std::iota(rows.begin(), rows.end(), 0.0f);
  ASSERT_OK(table->Assign(keys, rows));
  EXPECT_GT(ForEachAllocation(
                [&] { return table->Save(folder.path(), {}).status(); }),
            3);
  auto other = MakeTable();
  EXPECT_GT(ForEachAllocation(
                [&] { return other->Load(folder.path(), 0, 1).status(); }),
            3);
  EXPECT_EQ(other->stats().num_rows, kNumRows);
  std::vector<float> got(rows.size());
  ASSERT_OK(other->Pull(keys, got));
  EXPECT_EQ(got, rows);
}

}  // namespace
}  // namespace fleet::table
