// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/sample_exchange.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/data/dataset.h"
#include "fleet/testing/ranks_as_threads.h"

namespace fleet::sync {
namespace {

using testing::RunRanks;

TEST(SampleExchange, AGlobalShuffleKeepsEverySampleOnce) {
  constexpr int kSize = 3;
  constexpr int64_t kEach = 4000;
  std::mutex mutex;
  std::vector<int64_t> all;
  RunRanks(kSize, [&](comm::Communicator& communicator) {
    const int rank = communicator.rank();
    const std::string path =
        ::testing::TempDir() + "/sample_exchange_" + std::to_string(rank);
    std::ofstream file(path);
    for (int64_t i = 0; i < kEach; ++i) {
      file << "1 " << rank * kEach + i << " 40";
      for (int k = 0; k < 40; ++k) file << " 0.25";
      file << "\n";
    }
    file.close();
    auto dataset = *data::InMemoryDataset::Make(
        {.slots = {
             {.name = "id", .ragged = true},
             {.name = "x", .type = data::SlotType::kFloat32, .dims = {40}}}});
    dataset->SetFiles({path});
    ASSERT_OK(dataset->Load({}));
    std::remove(path.c_str());
    SampleExchange exchange(communicator);
    const auto soon = base::Deadline::After(std::chrono::seconds(60));
    ASSERT_OK(dataset->GlobalShuffle(exchange, 11, soon));
    EXPECT_EQ(dataset->num_samples(), static_cast<uint64_t>(kEach));
    data::Batch batch;
    auto pass = dataset->BeginPass({.batch_size = 64});
    int64_t num_own = 0;
    while (*pass->Next(batch, soon)) {
      std::lock_guard<std::mutex> lock(mutex);
      for (int64_t id : batch.columns()[0].ints) {
        num_own += id / kEach == rank ? 1 : 0;
        all.push_back(id);
      }
    }
    // A third of them, about.
    EXPECT_GT(num_own, kEach / 4);
    EXPECT_LT(num_own, kEach / 2);
  });
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), static_cast<size_t>(kSize * kEach));
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i], static_cast<int64_t>(i));
  }
}

}  // namespace
}  // namespace fleet::sync
