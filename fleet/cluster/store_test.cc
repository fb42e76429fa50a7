// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/store.h"

#include "fleet/cluster/store_conformance.h"

namespace fleet::cluster {
namespace {

class InProcessGroup final : public StoreGroup {
 public:
  Store& member(int) override { return store_; }

 private:
  InProcessStore store_;
};

std::unique_ptr<StoreGroup> MakeInProcess(int) {
  return std::make_unique<InProcessGroup>();
}

INSTANTIATE_TEST_SUITE_P(InProcess, StoreConformance,
                         testing::Values(MakeInProcess));

TEST(InProcessStore, NamesNoMoreThanEightThatAreMissing) {
  InProcessStore store;
  EXPECT_THAT(
      store.Barrier("start", 0, 100, base::Deadline::After({})),
      StatusIs(StatusCode::kDeadlineExceeded,
               "barrier start: member 0 waits for 99 of 100 members: 1, 2, 3, "
               "4, 5, 6, 7, 8 and 91 more"));
}

}  // namespace
}  // namespace fleet::cluster
