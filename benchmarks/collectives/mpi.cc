// SPDX-License-Identifier: Apache-2.0

// The ranks are started by mpirun, and the peer is its MPI.

#include <mpi.h>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/collectives/peer.h"

namespace {

using fleet::Result;
using fleet::Status;
using fleet::base::Deadline;

// What rank 0 sets, all ranks get, in this order: enough to meet.
class MpiStore final : public fleet::cluster::Store {
 public:
  Status Set(std::string_view, std::string_view value, Deadline) override {
    std::string text(value);
    Broadcast(text);
    return fleet::OkStatus();
  }
  Result<std::vector<std::string>> Wait(const std::vector<std::string>&,
                                        Deadline) override {
    std::string text;
    Broadcast(text);
    return std::vector<std::string>{text};
  }
  Result<std::string> Get(std::string_view, Deadline) override {
    return Unknown();
  }
  Result<int64_t> Add(std::string_view, int64_t, Deadline) override {
    return Unknown();
  }
  Result<std::optional<std::string>> CompareAndSet(
      std::string_view, std::optional<std::string_view>, std::string_view,
      Deadline) override {
    return Unknown();
  }
  Status Barrier(std::string_view, int, int, Deadline) override {
    return Unknown();
  }
  void Abort(Status) override {}

 private:
  static Status Unknown() {
    return fleet::Unimplemented("the benchmark's store only broadcasts");
  }
  static void Broadcast(std::string& text) {
    int length = static_cast<int>(text.size());
    MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
    text.resize(static_cast<size_t>(length));
    MPI_Bcast(text.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD);
  }
};

class MpiPeer final : public Peer {
 public:
  MpiPeer(int* argc, char*** argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~MpiPeer() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  fleet::cluster::Store& store() override { return store_; }
  bool exists() const override { return true; }
  void AllReduce(float* data, size_t count) override {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT,
                  MPI_SUM, MPI_COMM_WORLD);
  }
  void AllReduce(const float* from, float* to, size_t count) override {
    MPI_Allreduce(from, to, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }

 private:
  int rank_ = 0;
  int size_ = 1;
  MpiStore store_;
};

}  // namespace

std::unique_ptr<Peer> MakePeer(int* argc, char*** argv) {
  return std::make_unique<MpiPeer>(argc, argv);
}
