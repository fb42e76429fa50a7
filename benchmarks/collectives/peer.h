// SPDX-License-Identifier: Apache-2.0

// The two ranks of the benchmark, and what ours is compared with. Two files
// implement it and the driver picks one: mpi.cc where there is an MPI, alone.cc
// where there is none.

#ifndef FLEET_BENCHMARKS_COLLECTIVES_PEER_H_
#define FLEET_BENCHMARKS_COLLECTIVES_PEER_H_

#include <cstddef>
#include <memory>

#include "fleet/cluster/store.h"

// One rank of the peer; the process ends with it.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Where the ranks meet.
  virtual fleet::cluster::Store& store() = 0;
  // Whether AllReduce does anything.
  virtual bool exists() const = 0;
  // The sum of `count` floats over all ranks: in place, and from one buffer
  // into another.
  virtual void AllReduce(float* data, size_t count) = 0;
  virtual void AllReduce(const float* from, float* to, size_t count) = 0;
};

std::unique_ptr<Peer> MakePeer(int* argc, char*** argv);

#endif  // FLEET_BENCHMARKS_COLLECTIVES_PEER_H_
