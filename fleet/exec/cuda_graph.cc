// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/cuda_graph.h"

#include <map>
#include <mutex>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include "fleet/base/log.h"
#include "fleet/ops/aten_error.h"
#include "fleet/ops/gpu_kernels.h"

namespace fleet::exec {
namespace {

// Runs `f`, which returns Status; what LibTorch throws is one too.
template <class F>
Status Guarded(F f) {
  try {
    return f();
  } catch (const std::exception& error) {
    return ops::FromException(error);
  }
}

// The stream of rehearsals and records: libraries keep memory for each stream,
// so it is always the same.
c10::Stream SideStream(c10::Device device) {
  static std::map<int, c10::Stream> streams;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  auto found = streams.find(device.index());
  if (found == streams.end()) {
    const c10::cuda::CUDAStream made =
        c10::cuda::getStreamFromPool(false, device.index());
    found = streams.emplace(device.index(), made.unwrap()).first;
  }
  return found->second;
}

std::shared_mutex& Waiting() {
  static std::shared_mutex mutex;
  return mutex;
}

// While it lives, whoever waits for the device gets an error.
class WaitsAreErrors final {
 public:
  WaitsAreErrors() : before_(c10::cuda::warning_state().get_sync_debug_mode()) {
    c10::cuda::warning_state().set_sync_debug_mode(
        c10::cuda::SyncDebugMode::L_ERROR);
  }
  WaitsAreErrors(const WaitsAreErrors&) = delete;
  WaitsAreErrors& operator=(const WaitsAreErrors&) = delete;
  ~WaitsAreErrors() { c10::cuda::warning_state().set_sync_debug_mode(before_); }

 private:
  const c10::cuda::SyncDebugMode before_;
};

class Recorded final : public CudaGraph {
 public:
  Status Record(c10::Device device, Pool pool,
                const std::function<Status()>& body) {
    const at::Generator random =
        at::globalContext().defaultGenerator(device).clone();
    Status status = Guarded([&] {
      // Other threads may go on meanwhile.
      graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
      return OkStatus();
    });
    if (!status.ok()) {
      PutBack(device, random);
      return status;
    }
    status = Guarded(body);
    const Status end = Guarded([&] {
      graph_.capture_end();
      return OkStatus();
    });
    if (end.ok()) return status;
    // LibTorch stops half-way here: its allocator and its generator still
    // believe that a record is being made.
    EndPool(device, pool);
    PutBack(device, random);
    return status.ok() ? end : status;
  }

  Status Replay() override {
    return Guarded([&] {
      graph_.replay();
      return OkStatus();
    });
  }

 private:
  static void EndPool(c10::Device device, Pool pool) {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    Warn(Guarded([&] {
      allocator::endAllocateToPool(device.index(), pool);
      allocator::releasePool(device.index(), pool);
      return OkStatus();
    }));
  }
  static void PutBack(c10::Device device, const at::Generator& random) {
    Warn(Guarded([&] {
      at::Generator current = at::globalContext().defaultGenerator(device);
      current.graphsafe_set_state(random);
      return OkStatus();
    }));
  }
  static void Warn(const Status& status) {
    if (status.ok()) return;
    FLEET_LOG(WARNING) << "after a CUDA graph that could not be recorded: "
                       << status.ToString();
  }

  at::cuda::CUDAGraph graph_;
};

}  // namespace

bool CudaGraph::Possible(c10::Device device) {
  return device.is_cuda() && ops::HasGpuKernels(device);
}

CudaGraph::Pool CudaGraph::NewPool() {
  const auto [first, second] = at::cuda::graph_pool_handle();
  return {first, second};
}

Status CudaGraph::Rehearse(c10::Device device,
                           const std::function<Status()>& body) {
  return Guarded([&] {
    const c10::DeviceGuard guard(device);
    c10::cuda::device_synchronize();
    Status status;
    {
      const c10::StreamGuard side(SideStream(device));
      const WaitsAreErrors watch;
      status = Guarded(body);
    }
    c10::cuda::device_synchronize();
    return status;
  });
}

Result<std::unique_ptr<CudaGraph>> CudaGraph::Record(
    c10::Device device, Pool pool, const std::function<Status()>& body) {
  auto graph = std::make_unique<Recorded>();
  const Status status = Guarded([&] {
    const c10::DeviceGuard guard(device);
    c10::cuda::device_synchronize();
    const c10::StreamGuard side(SideStream(device));
    return graph->Record(device, pool, body);
  });
  RETURN_IF_ERROR(status);
  return std::unique_ptr<CudaGraph>(std::move(graph));
}

CudaGraph::MayWait CudaGraph::HoldOffRehearsals() { return MayWait(Waiting()); }

CudaGraph::Alone CudaGraph::TryToBeAlone() {
  return Alone(Waiting(), std::try_to_lock);
}

}  // namespace fleet::exec
