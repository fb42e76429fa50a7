// SPDX-License-Identifier: Apache-2.0

// For tests: servers in this process, and workers as threads.

#ifndef FLEET_TESTING_PS_CLUSTER_H_
#define FLEET_TESTING_PS_CLUSTER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fleet/base/mutex.h"
#include "fleet/base/status_matchers.h"
#include "fleet/ps/client.h"
#include "fleet/ps/server.h"
#include "fleet/served/synchronizer.h"
#include "fleet/testing/deadlines.h"
#include "fleet/testing/request_faults.h"

namespace fleet::served {

using testing::Soon;

inline ServedTable SparseServed(uint32_t id, const std::string& name,
                                size_t dim, const optim::UpdateRule& rule = {},
                                double rate = 0.5) {
  table::SparseTableOptions options;
  options.name = name;
  options.dim = dim;
  options.initializer = table::ConstantInit{1.0f};
  options.update.rule = rule;
  options.update.learning_rate.base = rate;
  ServedTable served;
  served.spec = {TableId{id}, options};
  served.parameter = name;
  served.gradient = name + "@GRAD";
  served.shape = {1000, static_cast<int64_t>(dim)};
  served.sparse = true;
  return served;
}

inline ServedTable DenseServed(uint32_t id, const std::string& name,
                               uint64_t size,
                               const optim::UpdateRule& rule = {},
                               double rate = 0.5) {
  table::DenseSpec spec;
  spec.name = name;
  spec.size = size;
  spec.update.rule = rule;
  spec.update.learning_rate.base = rate;
  ServedTable served;
  served.spec = {TableId{id}, spec};
  served.parameter = name;
  served.gradient = name + "@GRAD";
  served.shape = {static_cast<int64_t>(size)};
  return served;
}

// Servers without tables.
class PsCluster final {
 public:
  PsCluster(uint32_t num_servers, int num_workers,
            const ps::PsServerOptions& given = {})
      : num_workers_(num_workers), servers_(num_servers) {
    for (uint32_t i = 0; i < num_servers; ++i) Start(i, given);
  }

  // Ends a server, as if its process died.
  void End(uint32_t i) {
    std::unique_ptr<ps::PsServer> ended;
    base::MutexLock lock(mutex_);
    ended = std::move(servers_[i]);
  }
  void Start(uint32_t i, ps::PsServerOptions options) {
    options.rank = static_cast<int32_t>(i);
    options.num_workers = num_workers_;
    options.worker_grace = std::chrono::milliseconds(50);
    base::MutexLock lock(mutex_);
    options.num_servers = static_cast<uint32_t>(servers_.size());
    servers_[i] = std::make_unique<ps::PsServer>(options);
  }

  std::unique_ptr<ps::PsClient> Client(int worker,
                                       ps::PsClientOptions options = {}) {
    options.worker = worker;
    auto client = ps::PsClient::Connect(
        static_cast<uint32_t>(num_servers()),
        [this, worker](uint32_t server, base::Deadline)
            -> Result<std::unique_ptr<channel::Channel>> {
          base::MutexLock lock(mutex_);
          if (servers_[server] == nullptr) {
            return Unavailable("server ", server, " is not there");
          }
          return std::make_unique<testing::FaultyChannel>(
              servers_[server]->ConnectInProcess(
                  base::Concat("worker ", worker)),
              faults_);
        },
        options, Soon());
    EXPECT_OK(client.status());
    return std::move(client).value();
  }

  // What happens to requests of workers.
  testing::RequestFaults& faults() { return *faults_; }
  ps::PsServer& server(size_t i) {
    base::MutexLock lock(mutex_);
    return *servers_[i];
  }
  int num_workers() const { return num_workers_; }
  size_t num_servers() {
    base::MutexLock lock(mutex_);
    return servers_.size();
  }

 private:
  const int num_workers_;
  const std::shared_ptr<testing::RequestFaults> faults_ =
      std::make_shared<testing::RequestFaults>();
  base::Mutex mutex_;
  std::vector<std::unique_ptr<ps::PsServer>> servers_ GUARDED_BY(mutex_);
};

// Runs `worker_main` once for each worker, at the same time.
inline void RunWorkers(int count, const std::function<void(int)>& worker_main) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&worker_main, i] { worker_main(i); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace fleet::served

#endif  // FLEET_TESTING_PS_CLUSTER_H_
