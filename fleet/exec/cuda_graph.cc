// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/cuda_graph.h"

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
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
// so it is always the same, and one thread at a time uses it.
class SideStream final {
 public:
  explicit SideStream(c10::Device device)
      : lock_(mutex()), before_(Current(device)), guard_(Get(device)) {
    Wait(before_);
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  static void Wait(c10::Stream stream) {
    c10::impl::VirtualGuardImpl(stream.device_type()).synchronizeStream(stream);
  }
  static c10::Stream Current(c10::Device device) {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  // With the mutex.
  static c10::Stream Get(c10::Device device) {
    static std::map<int, c10::Stream> streams;
    auto found = streams.find(device.index());
    if (found == streams.end()) {
      const c10::cuda::CUDAStream made =
          c10::cuda::getStreamFromPool(false, device.index());
      found = streams.emplace(device.index(), made.unwrap()).first;
    }
    return found->second;
  }

  const std::lock_guard<std::mutex> lock_;
  const c10::Stream before_;
  const c10::StreamGuard guard_;
};

// ---- who waits

// What this thread's rehearsal has seen; null outside of one.
thread_local std::string* waited = nullptr;

// Operations that wait, and say so by their name alone: their results have as
// many elements as the device says.
bool AlwaysWaits(std::string_view operation) {
  static const std::set<std::string_view> kNames = {"aten::_local_scalar_dense",
                                                    "aten::nonzero",
                                                    "aten::masked_select",
                                                    "aten::_unique2",
                                                    "aten::unique_dim",
                                                    "aten::unique_consecutive",
                                                    "aten::bincount",
                                                    "aten::_coalesce",
                                                    "aten::repeat_interleave"};
  return kNames.contains(operation);
}

bool CopiesToOrFromTheHost(const at::RecordFunction& call) {
  if (std::string_view(call.name()) != "aten::copy_") return false;
  const auto inputs = call.inputs();
  return inputs.size() >= 2 && inputs[0].isTensor() && inputs[1].isTensor() &&
         inputs[0].toTensor().device() != inputs[1].toTensor().device();
}

std::unique_ptr<at::ObserverContext> Look(const at::RecordFunction& call) {
  if (waited != nullptr && waited->empty() &&
      (AlwaysWaits(call.name()) || CopiesToOrFromTheHost(call))) {
    *waited = call.name();
  }
  return nullptr;
}

// While it lives, what the operations of this thread do is looked at.
class Watch final {
 public:
  Watch()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(Look).needsInputs(true).scopes(
                {at::RecordScope::FUNCTION}))) {
    waited = &seen_;
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() {
    waited = nullptr;
    at::removeCallback(handle_);
  }

 private:
  std::string seen_;
  const at::CallbackHandle handle_;
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
    const SideStream side(device);
    Status status;
    {
      const Watch watch;
      status = Guarded(body);
    }
    SideStream::Wait(SideStream::Current(device));
    return status;
  });
}

Status CudaGraph::Waited() {
  if (waited == nullptr || waited->empty()) return OkStatus();
  return FailedPrecondition(*waited, " waits for the device");
}

Result<std::unique_ptr<CudaGraph>> CudaGraph::Record(
    c10::Device device, Pool pool, const std::function<Status()>& body) {
  auto graph = std::make_unique<Recorded>();
  const Status status = Guarded([&] {
    const c10::DeviceGuard guard(device);
    const SideStream side(device);
    return graph->Record(device, pool, body);
  });
  RETURN_IF_ERROR(status);
  return std::unique_ptr<CudaGraph>(std::move(graph));
}

}  // namespace fleet::exec
