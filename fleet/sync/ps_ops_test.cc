// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/ps_ops.h"

#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/sync/ps_cluster.h"

namespace fleet::sync {
namespace {

TEST(ServedPrograms, RefuseATableThatIsNotServed) {
  PsCluster cluster(1, 1);
  auto client = cluster.Client(0);
  ASSERT_OK_AND_ASSIGN(auto sync, Synchronizer::Make(*client, {}, {}));
  DenseHomes homes;
  ServedPrograms programs(*sync, homes);
  program::Operation op;
  op.type = "distributed_lookup_table";
  EXPECT_EQ(programs.Prepare(op).status().code(),
            StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace fleet::sync
