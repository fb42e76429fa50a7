// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/dense_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::table {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::TemporaryFolder;

DenseTableOptions Whole(uint64_t size) {
  DenseTableOptions options;
  options.name = "fc.w";
  options.size = size;
  options.part = {0, size};
  options.update.learning_rate.base = 0.5;
  return options;
}

std::unique_ptr<DenseTable> Make(const DenseTableOptions& options) {
  auto table = DenseTable::Make(options);
  EXPECT_OK(table.status());
  return std::move(table).value();
}

std::vector<float> Pulled(const DenseTable& table) {
  std::vector<float> values(table.part().size());
  EXPECT_OK(table.Pull(values));
  return values;
}

TEST(DensePart, CoversTheParameterOnce) {
  for (const uint64_t size : {1u, 1000u, 1024u, 5000u, 1'000'003u}) {
    for (const uint32_t num_servers : {1u, 2u, 3u, 7u}) {
      for (const uint32_t spread : {0u, 5u}) {
        std::vector<DensePart> parts;
        uint64_t total = 0;
        for (uint32_t i = 0; i < num_servers; ++i) {
          parts.push_back(PartOfServer(size, i, num_servers, spread));
          total += parts.back().size();
          EXPECT_TRUE(parts.back().size() == 0 ||
                      parts.back().begin % kDenseBlock == 0);
        }
        EXPECT_EQ(total, size);
      }
    }
  }
  EXPECT_EQ(PartOfServer(4096, 1, 2), (DensePart{2048, 4096}));
  EXPECT_EQ(PartOfServer(10, 0, 2).size() + PartOfServer(10, 1, 2).size(), 10u);
}

TEST(DenseTable, AssignsPushesAndPulls) {
  auto table = Make(Whole(3));
  EXPECT_FALSE(table->initialized());
  ASSERT_OK(table->Assign(std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(table->initialized());
  ASSERT_OK(table->Push(std::vector<float>{1, 0, -1}));
  EXPECT_THAT(Pulled(*table), ElementsAre(0.5, 2, 3.5));
  ASSERT_OK(table->Add(std::vector<float>{1, 1, 1}));
  EXPECT_THAT(Pulled(*table), ElementsAre(1.5, 3, 4.5));
}

TEST(DenseTable, AppliesTheMeanOfWhatWorkersPushed) {
  auto table = Make(Whole(2));
  ASSERT_OK(table->ApplyAccumulated(0.5));  // nothing waits
  ASSERT_OK(table->Accumulate(0, std::vector<float>{1, 2}));
  ASSERT_OK(table->Accumulate(1, std::vector<float>{3, 4}));
  EXPECT_THAT(Pulled(*table), ElementsAre(0, 0));
  ASSERT_OK(table->ApplyAccumulated(0.5));
  EXPECT_THAT(Pulled(*table), ElementsAre(-1, -1.5));
  ASSERT_OK(table->ApplyAccumulated(0.5));
  EXPECT_THAT(Pulled(*table), ElementsAre(-1, -1.5));
}

TEST(DenseTable, SumsDoNotDependOnWhoCameFirst) {
  // In another order these sums have other bits.
  const std::vector<float> of_worker = {1e8f, 1.0f, -1e8f, 3e-3f};
  std::vector<int> order = {0, 1, 2, 3};
  std::vector<float> first;
  do {
    auto table = Make(Whole(1));
    for (const int w : order) {
      ASSERT_OK(table->Accumulate(w, std::vector<float>{of_worker[w]}));
    }
    ASSERT_OK(table->ApplyAccumulated(0.25));
    const std::vector<float> values = Pulled(*table);
    if (first.empty()) first = values;
    EXPECT_EQ(values, first);
  } while (std::ranges::next_permutation(order).found);
}

TEST(DenseTable, LeavesOutWhatWaitsOfAWorkerThatIsGone) {
  auto table = Make(Whole(2));
  ASSERT_OK(table->Accumulate(0, std::vector<float>{1, 2}));
  ASSERT_OK(table->Accumulate(1, std::vector<float>{3, 4}));
  table->DropAccumulated(0);
  table->DropAccumulated(7);
  ASSERT_OK(table->ApplyAccumulated(1.0));
  EXPECT_EQ(Pulled(*table), (std::vector<float>{-1.5f, -2.0f}));
}

TEST(DenseTable, KeepsWhatIsOfALaterStep) {
  auto table = Make(Whole(1));
  ASSERT_OK(table->Accumulate(0, std::vector<float>{1}));
  ASSERT_OK(table->Accumulate(1, std::vector<float>{4}));
  ASSERT_OK(table->ApplyAccumulated(1.0, {1}));
  EXPECT_THAT(Pulled(*table), ElementsAre(-0.5));
  ASSERT_OK(table->ApplyAccumulated(1.0));
  EXPECT_THAT(Pulled(*table), ElementsAre(-2.5));
}

TEST(DenseTable, FollowsAdamAndItsSchedule) {
  DenseTableOptions options = Whole(1);
  options.update.rule = optim::Adam{.beta1 = 0.8, .beta2 = 0.95};
  options.update.learning_rate.schedule = InverseTimeDecay{1.0};
  auto table = Make(options);
  double p = 0;
  double m = 0;
  double v = 0;
  for (int t = 1; t <= 10; ++t) {
    const double g = std::sin(t);
    ASSERT_OK(table->Push(std::vector<float>{static_cast<float>(g)}));
    table->EndStep();
    m = 0.8 * m + 0.2 * g;
    v = 0.95 * v + 0.05 * g * g;
    const double c2 = std::sqrt(1 - std::pow(0.95, t));
    p -= 0.5 / t * c2 / (1 - std::pow(0.8, t)) * m / (std::sqrt(v) + 1e-8 * c2);
  }
  EXPECT_NEAR(Pulled(*table)[0], p, 1e-5);
}

TEST(DenseTable, CountsGradientsThatAreNoNumbers) {
  DenseTableOptions options = Whole(2);
  options.update.drop_nonfinite = true;
  auto table = Make(options);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ASSERT_OK(table->Push(std::vector<float>{1, nan}));
  EXPECT_THAT(Pulled(*table), ElementsAre(0, 0));
  EXPECT_EQ(table->num_nonfinite(), 1u);
}

TEST(DenseTable, SaysWhatDoesNotFit) {
  auto table = Make(Whole(3));
  EXPECT_THAT(table->Push(std::vector<float>{1}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("table fc.w: push of 1 values")));
  DenseTableOptions options = Whole(5000);
  options.part = {10, 5000};
  EXPECT_THAT(DenseTable::Make(options), HasCode(StatusCode::kInvalidArgument));
}

// Each save beside updates has what a save that nobody disturbs has.
TEST(DenseTable, SavesItsMomentWhateverComesAfter) {
  constexpr uint64_t kSize = 20'000;
  testing::TemporaryFolder folder;
  const base::Path still = folder.path() / "still";
  ASSERT_OK(base::MakeFolders(still));
  DenseTableOptions options;
  options.name = "w";
  options.size = kSize;
  options.part = {0, kSize};
  options.update.rule = optim::Adam();
  auto table = DenseTable::Make(options);
  ASSERT_OK(table);
  std::mt19937_64 random(5);
  const auto disturb = [&](std::mt19937_64& own) {
    std::vector<float> values(kSize);
    for (float& x : values) x = static_cast<float>(own() % 1000) * 1e-3f;
    switch (own() % 4) {
      case 0:
        EXPECT_OK((*table)->Add(values));
        break;
      case 1:
        EXPECT_OK((*table)->Accumulate(0, values));
        EXPECT_OK((*table)->ApplyAccumulated(0.5));
        (*table)->EndStep();
        break;
      case 2:
        EXPECT_OK((*table)->Assign(values));
        break;
      default:
        EXPECT_OK((*table)->Push(values));
    }
  };
  const auto bytes = [](const base::Path& path, const WrittenTable& written) {
    return base::ReadFile(path / written.list.files[0].name).value();
  };
  for (uint64_t number = 1; number <= 20; ++number) {
    disturb(random);
    ASSERT_OK_AND_ASSIGN(const WrittenTable expected,
                         (*table)->WriteSave(still, {number}));
    (*table)->BeginSave({number});
    if (number % 2 == 0) disturb(random);
    std::thread disturbing([&] {
      std::mt19937_64 own(number);
      for (int i = 0; i < 3; ++i) disturb(own);
    });
    const Result<WrittenTable> written = (*table)->WriteRows(folder.path());
    disturbing.join();
    ASSERT_OK(written.status());
    EXPECT_TRUE(bytes(folder.path(), *written) == bytes(still, expected));
    EXPECT_EQ(written->list.step, expected.list.step);
    EXPECT_EQ((*table)->save_byte_size(), 0u);
  }
  // One that is not written holds nothing back.
  (*table)->BeginSave({21});
  disturb(random);
  EXPECT_GT((*table)->save_byte_size(), 0u);
  (*table)->EndSave();
  EXPECT_EQ((*table)->save_byte_size(), 0u);
  EXPECT_THAT((*table)->WriteRows(folder.path()).status(),
              HasCode(StatusCode::kFailedPrecondition));
}

// Whether its values were set is known as of that moment, too.
TEST(DenseTable, ACutTellsWhetherValuesHadBeenSet) {
  TemporaryFolder folder;
  auto table = Make(Whole(2));
  ASSERT_OK(table->Push(std::vector<float>{1, 2}));
  TableCut cut;
  table->BeginSave({1}, &cut);
  ASSERT_OK(table->Assign(std::vector<float>{7, 8}));
  ASSERT_OK_AND_ASSIGN(const WrittenTable written,
                       table->WriteRows(folder.path()));
  ASSERT_OK(WriteSaveList(folder.path(), written.list));
  EXPECT_FALSE(cut.initialized);
  auto again = Make(Whole(2));
  ASSERT_OK(again->Load(folder.path()));
  again->TakeCut(cut);
  EXPECT_FALSE(again->initialized());
  EXPECT_THAT(Pulled(*again), ElementsAre(-0.5, -1));
  table->BeginSave({2}, &cut);
  EXPECT_TRUE(cut.initialized);
  table->EndSave();
  // Where there are no values, nobody sets some.
  DenseTableOptions empty = Whole(5000);
  empty.part = {5000, 5000};
  auto nothing = Make(empty);
  nothing->BeginSave({1}, &cut);
  EXPECT_TRUE(cut.initialized);
}

TEST(DenseTable, IsReadByAnyNumberOfServers) {
  TemporaryFolder folder;
  constexpr uint64_t kSize = 10'000;
  std::vector<float> values(kSize);
  for (size_t i = 0; i < kSize; ++i) values[i] = static_cast<float>(i);
  DenseTableOptions options = Whole(kSize);
  options.update.rule = optim::Momentum();
  for (uint32_t i = 0; i < 3; ++i) {
    options.part = PartOfServer(kSize, i, 3);
    auto table = Make(options);
    const std::vector<float> own(
        values.begin() + static_cast<ptrdiff_t>(options.part.begin),
        values.begin() + static_cast<ptrdiff_t>(options.part.end));
    ASSERT_OK(table->Assign(own));
    ASSERT_OK(table->Push(own));
    table->EndStep();
    ASSERT_OK(table->Save(folder.path(), {.server = i, .num_servers = 3}));
  }
  for (uint32_t i = 0; i < 2; ++i) {
    options.part = PartOfServer(kSize, i, 2);
    auto table = Make(options);
    ASSERT_OK_AND_ASSIGN(const LoadStats loaded, table->Load(folder.path()));
    EXPECT_FALSE(loaded.values_only);
    EXPECT_EQ(table->step(), 1u);
    EXPECT_TRUE(table->initialized());
    // One more step shows the velocity: half of 0.9 * x.
    ASSERT_OK(table->Push(std::vector<float>(options.part.size(), 0.0f)));
    const std::vector<float> got = Pulled(*table);
    for (size_t k = 0; k < got.size(); ++k) {
      const float x = values[options.part.begin + k];
      ASSERT_NEAR(got[k], 0.5 * x - 0.45 * x, 1e-3 + 1e-6 * x);
    }
  }
}

}  // namespace
}  // namespace fleet::table
