// SPDX-License-Identifier: Apache-2.0

// main() of the tests that stand on LibTorch, whose generator begins with
// another seed in every process: every test draws the same random numbers in
// every run, whichever tests ran before it. With --gtest_shuffle they are
// others in every repetition, which shows tests that depend on them:
//
//   exec_plan_test --gtest_shuffle --gtest_repeat=100
//
// and --gtest_random_seed=N brings those of one repetition back.

#include <cstdint>
#include <memory>

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

class SameNumbers final : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo&) override {
    // Where nobody asks for one, GoogleTest's seed comes from the clock.
    const bool asked =
        GTEST_FLAG_GET(shuffle) || GTEST_FLAG_GET(random_seed) != 0;
    const int seed =
        asked ? testing::UnitTest::GetInstance()->random_seed() : 0;
    at::manual_seed(static_cast<uint64_t>(seed) + 1);
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  // The listeners own what is appended.
  testing::UnitTest::GetInstance()->listeners().Append(
      std::make_unique<SameNumbers>().release());
  return RUN_ALL_TESTS();
}
