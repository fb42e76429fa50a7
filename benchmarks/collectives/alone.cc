// SPDX-License-Identifier: Apache-2.0

// No peer: two ranks made by fork.

#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

#include "fleet/testing/forked_ranks.h"

#include "benchmarks/collectives/peer.h"

namespace {

class NoPeer final : public Peer {
 public:
  NoPeer() : child_(fork()) {}
  ~NoPeer() override {
    if (child_ > 0) waitpid(child_, nullptr, 0);
  }

  int rank() const override { return child_ > 0 ? 0 : 1; }
  int size() const override { return 2; }
  fleet::cluster::Store& store() override { return store_; }
  bool exists() const override { return false; }
  void AllReduce(float*, size_t) override {}
  void AllReduce(const float*, float*, size_t) override {}

 private:
  fleet::comm::ForkedStore store_;  // made before the fork
  const pid_t child_;
};

}  // namespace

std::unique_ptr<Peer> MakePeer(int*, char***) {
  return std::make_unique<NoPeer>();
}
