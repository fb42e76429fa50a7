// SPDX-License-Identifier: Apache-2.0

// For tests of a server process's life, in this process.

#ifndef FLEET_TESTING_SERVING_FIXTURES_H_
#define FLEET_TESTING_SERVING_FIXTURES_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fleet/ps/serve.h"
#include "fleet/testing/ps_fixtures.h"
#include "fleet/testing/temporary_folder.h"

namespace fleet::ps {

inline constexpr TableId kRows{3};
inline constexpr TableId kWeights{4};

class ServingTest : public testing::Test {
 protected:
  static ServeOptions Options(int num_workers) {
    ServeOptions options;
    options.server.num_workers = num_workers;
    options.server.worker_grace = 50ms;
    options.address.host = "127.0.0.1";
    options.report_every = 0ms;
    options.name_missing_after = 0ms;
    return options;
  }

  static std::unique_ptr<PsClient> Connect(Serving& serving, int worker,
                                           PsClientOptions options = {}) {
    options.worker = worker;
    auto client = PsClient::Connect({serving.address()}, options, Soon());
    EXPECT_OK(client.status());
    return std::move(client).value();
  }

  static std::vector<table::TableSpec> Specs() {
    table::SparseTableOptions rows;
    rows.name = "rows";
    rows.dim = 2;
    rows.update.learning_rate.base = 0.5;
    table::DenseSpec weights;
    weights.name = "weights";
    weights.size = 3;
    weights.update.learning_rate.base = 0.5;
    return {{kRows, rows}, {kWeights, weights}};
  }

  testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path().string();
};

}  // namespace fleet::ps

#endif  // FLEET_TESTING_SERVING_FIXTURES_H_
