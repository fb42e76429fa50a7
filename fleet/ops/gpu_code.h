// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_GPU_CODE_H_
#define FLEET_OPS_GPU_CODE_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include <c10/core/Device.h>

#include "fleet/base/mutex.h"
#include "fleet/base/status.h"

namespace fleet::ops {

struct GpuFunctions;  // what is called of CUDA's libraries

// A source in CUDA C++, compiled for the GPUs that ask for it when they do. The
// compiler, NVRTC, and the driver are found when the process runs. Thread-safe.
class GpuCode final {
 public:
  // The kernels of `source` are extern "C".
  explicit GpuCode(std::string source) : source_(std::move(source)) {}
  GpuCode(const GpuCode&) = delete;
  GpuCode& operator=(const GpuCode&) = delete;

  // Compiles for `device`, once. Unimplemented where a library is missing or
  // the compiler does not know the GPU; the same again at every later call.
  Status Prepare(c10::Device device);

  // Queues a kernel on a stream of `device`, for which Prepare() was good.
  // `arguments` point to one value each. Throws c10::Error.
  void Launch(c10::Device device, const char* kernel, unsigned blocks,
              unsigned threads, void* stream, void** arguments);

 private:
  struct Loaded {
    Status status;
    void* context = nullptr;
    void* module = nullptr;
    std::map<std::string, void*, std::less<>> kernels;
  };

  Status Load(c10::Device device, Loaded& loaded);
  Status Compile(const GpuFunctions& cuda, int architecture,
                 std::string& binary);

  const std::string source_;
  base::Mutex mutex_;
  std::map<int, Loaded> by_device_ GUARDED_BY(mutex_);
};

}  // namespace fleet::ops

#endif  // FLEET_OPS_GPU_CODE_H_
