// SPDX-License-Identifier: Apache-2.0

// Work for a GPU that is recorded once and queued again with one call (CUDA
// calls that a graph). The build picks one of two files: cuda_graph.cc where
// LibTorch has CUDA and CUDA's headers are there, else cuda_graph_absent.cc, in
// which there are none.

#ifndef FLEET_EXEC_CUDA_GRAPH_H_
#define FLEET_EXEC_CUDA_GRAPH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <c10/core/Device.h>

#include "fleet/base/status.h"

namespace fleet::exec {

class CudaGraph {
 public:
  virtual ~CudaGraph() = default;

  // Whether Record() can succeed on `device` at all.
  static bool Possible(c10::Device device);

  // Memory that the graphs of one owner share: what one of them leaves in it
  // between two replays, another one may overwrite. When the last graph of a
  // pool is gone the next needs another pool.
  using Pool = std::pair<uint64_t, uint64_t>;
  static Pool NewPool();

  // Runs `body` on a stream of its own, after everything that was queued on the
  // current one, and waits for the end. Fails with what `body` says. Meanwhile
  // Waited() is of use. Also the libraries under LibTorch are warm afterwards.
  static Status Rehearse(c10::Device device,
                         const std::function<Status()>& body);

  // For the body of a rehearsal: FailedPrecondition when an operation of
  // LibTorch has waited for the device since the rehearsal began, which a graph
  // cannot do. The message names it. Operations that wait unseen make Record()
  // fail. OK outside of rehearsals. Knows its own thread only.
  static Status Waited();

  // A graph of what `body` queues on the current stream; nothing of it is
  // executed, and other threads may use the device meanwhile. `body` must have
  // been rehearsed. Memory that LibTorch gives it comes from `pool`, and what
  // is not given back stays for as long as the tensor. After an error
  // everything is as before.
  static Result<std::unique_ptr<CudaGraph>> Record(
      c10::Device device, Pool pool, const std::function<Status()>& body);

  // Queues everything on the current stream.
  virtual Status Replay() = 0;
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_CUDA_GRAPH_H_
