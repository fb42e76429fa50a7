// SPDX-License-Identifier: Apache-2.0

// For tests of servers and clients: a cluster of servers in this process.

#ifndef FLEET_TESTING_PS_FIXTURES_H_
#define FLEET_TESTING_PS_FIXTURES_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/base/status_matchers.h"
#include "fleet/channel/message.h"
#include "fleet/ps/client.h"
#include "fleet/ps/connect.h"
#include "fleet/ps/ledger.h"
#include "fleet/ps/server.h"
#include "fleet/testing/deadlines.h"

namespace fleet::ps {

using namespace std::chrono_literals;
using testing::Soon;

inline constexpr TableId kEmb{0};
inline constexpr TableId kDense{1};
inline constexpr uint64_t kDenseSize = 100'000;

// Rows of four that begin at 1 and a dense parameter, SGD with a rate of 0.5.
inline void AddTables(PsServer& server, uint32_t rank, uint32_t num_servers,
                      int num_geo_workers = 0) {
  table::SparseTableOptions options;
  options.name = "emb";
  options.dim = 4;
  options.initializer = table::ConstantInit{1.0f};
  options.update.learning_rate.base = 0.5;
  options.num_shards = 2;
  options.count_unseen_days = true;
  options.num_geo_workers = num_geo_workers;
  auto sparse = table::SparseTable::Make(options);
  ASSERT_OK(sparse);
  ASSERT_OK(server.AddSparse(kEmb, std::move(sparse).value()));
  table::DenseTableOptions dense_options;
  dense_options.name = "fc.w";
  dense_options.size = kDenseSize;
  dense_options.part = table::PartOfServer(kDenseSize, rank, num_servers);
  dense_options.update.learning_rate.base = 0.5;
  auto dense = table::DenseTable::Make(dense_options);
  ASSERT_OK(dense);
  ASSERT_OK(server.AddDense(kDense, std::move(dense).value()));
}

// For calls that take several dense tables. `values` outlive the call.
inline std::vector<DenseGradient> One(TableId table,
                                      const std::vector<float>& values) {
  return {{table, values}};
}

// A hello on a channel of its own, as a worker without a turn says it. What the
// server answered.
inline Result<std::string> SayHello(channel::Channel& channel, uint32_t worker,
                                    uint32_t lane = 0,
                                    uint64_t incarnation = 0) {
  RequestHead head;
  head.op = Op::kHello;
  return Ask(channel, head,
             channel::MessageWriter()
                 .U32(worker)
                 .U32(lane)
                 .U64(incarnation)
                 .U64(0)
                 .Take(),
             Soon());
}

enum class Way { kInProcess, kSharedMemory, kTcp, kUcx };

inline channel::Carrier CarrierOf(Way way) {
  return way == Way::kUcx ? channel::Carrier::kUcx : channel::Carrier::kTcp;
}

class Cluster final {
 public:
  Cluster(Way way, uint32_t num_servers, int num_workers) : way_(way) {
    for (uint32_t i = 0; i < num_servers; ++i) {
      PsServerOptions options;
      options.rank = static_cast<int32_t>(i);
      options.num_servers = num_servers;
      options.num_workers = num_workers;
      options.shared_memory = way == Way::kSharedMemory;
      options.carrier = CarrierOf(way);
      options.worker_grace = 50ms;
      auto server = std::make_unique<PsServer>(options);
      AddTables(*server, i, num_servers, num_workers);
      if (way != Way::kInProcess) {
        channel::Address any;
        any.host = "127.0.0.1";
        EXPECT_OK(server->Listen(any));
        addresses_.push_back(server->address());
      }
      servers_.push_back(std::move(server));
    }
  }

  std::unique_ptr<PsClient> Client(int worker, PsClientOptions options = {}) {
    options.worker = worker;
    options.shared_memory = way_ == Way::kSharedMemory;
    options.carrier = CarrierOf(way_);
    auto client = way_ == Way::kInProcess
                      ? PsClient::Connect(
                            static_cast<uint32_t>(servers_.size()),
                            [this, worker](uint32_t server, Deadline)
                                -> Result<std::unique_ptr<channel::Channel>> {
                              return servers_[server]->ConnectInProcess(
                                  base::Concat("worker ", worker));
                            },
                            options, Soon())
                      : PsClient::Connect(addresses_, options, Soon());
    EXPECT_OK(client.status());
    return std::move(client).value();
  }

  PsServer& server(size_t i) { return *servers_[i]; }
  const std::vector<channel::Address>& addresses() const { return addresses_; }

 private:
  const Way way_;
  std::vector<std::unique_ptr<PsServer>> servers_;
  std::vector<channel::Address> addresses_;
};

}  // namespace fleet::ps

#endif  // FLEET_TESTING_PS_FIXTURES_H_
