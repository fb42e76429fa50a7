// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/gpu_code.h"

#include <dlfcn.h>
#include <string_view>
#include <vector>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

namespace fleet::ops {

// The functions of the driver and of NVRTC that are needed, by hand: both are
// interfaces in C that keep to what they once were.
struct GpuFunctions {
  int (*DeviceGet)(int*, int);
  int (*DeviceGetAttribute)(int*, int, int);
  int (*DevicePrimaryCtxRetain)(void**, int);
  int (*CtxGetCurrent)(void**);
  int (*CtxPushCurrent)(void*);
  int (*CtxPopCurrent)(void**);
  int (*ModuleLoadData)(void**, const void*);
  int (*ModuleGetFunction)(void**, void*, const char*);
  int (*LaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, unsigned, void*, void**, void**);
  int (*GetErrorString)(int, const char**);

  int (*CreateProgram)(void**, const char*, const char*, int,
                       const char* const*, const char* const*);
  int (*CompileProgram)(void*, int, const char* const*);
  int (*GetProgramLogSize)(void*, size_t*);
  int (*GetProgramLog)(void*, char*);
  int (*GetCubinSize)(void*, size_t*);
  int (*GetCubin)(void*, char*);
  int (*DestroyProgram)(void**);
};

namespace {

constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_...

template <class Function>
bool Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

// LibTorch ships NVRTC where only its own libraries find it; one of those needs
// it, and what it needs is found through it.
void* OpenNvrtc() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&c10::cuda::device_synchronize), &info);
  std::string folder = info.dli_fname == nullptr ? "" : info.dli_fname;
  folder.resize(folder.find_last_of('/') + 1);
  const std::string ours = folder + "libcaffe2_nvrtc.so";
  const char* names[] = {ours.c_str(), "libnvrtc.so.13", "libnvrtc.so.12",
                         "libnvrtc.so"};
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      if (dlsym(library, "nvrtcCompileProgram") != nullptr) return library;
    }
  }
  return nullptr;
}

Result<GpuFunctions> Open() {
  GpuFunctions f{};
  void* cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (cuda == nullptr) return Unimplemented("there is no CUDA driver");
  void* nvrtc = OpenNvrtc();
  if (nvrtc == nullptr) {
    return Unimplemented("NVRTC, which comes with torch, is not there");
  }
  const bool all =
      Find(cuda, "cuDeviceGet", f.DeviceGet) &&
      Find(cuda, "cuDeviceGetAttribute", f.DeviceGetAttribute) &&
      Find(cuda, "cuDevicePrimaryCtxRetain", f.DevicePrimaryCtxRetain) &&
      Find(cuda, "cuCtxGetCurrent", f.CtxGetCurrent) &&
      Find(cuda, "cuCtxPushCurrent_v2", f.CtxPushCurrent) &&
      Find(cuda, "cuCtxPopCurrent_v2", f.CtxPopCurrent) &&
      Find(cuda, "cuModuleLoadData", f.ModuleLoadData) &&
      Find(cuda, "cuModuleGetFunction", f.ModuleGetFunction) &&
      Find(cuda, "cuLaunchKernel", f.LaunchKernel) &&
      Find(cuda, "cuGetErrorString", f.GetErrorString) &&
      Find(nvrtc, "nvrtcCreateProgram", f.CreateProgram) &&
      Find(nvrtc, "nvrtcCompileProgram", f.CompileProgram) &&
      Find(nvrtc, "nvrtcGetProgramLogSize", f.GetProgramLogSize) &&
      Find(nvrtc, "nvrtcGetProgramLog", f.GetProgramLog) &&
      Find(nvrtc, "nvrtcGetCUBINSize", f.GetCubinSize) &&
      Find(nvrtc, "nvrtcGetCUBIN", f.GetCubin) &&
      Find(nvrtc, "nvrtcDestroyProgram", f.DestroyProgram);
  if (!all) return Unimplemented("the CUDA driver or NVRTC is too old");
  return f;
}

const Result<GpuFunctions>& Functions() {
  static const Result<GpuFunctions> functions = Open();
  return functions;
}

// Makes a context that of the thread, which may have none yet: LibTorch takes
// one only when it has to.
class InContext final {
 public:
  InContext(const GpuFunctions& cuda, void* context) : cuda_(cuda) {
    void* current = nullptr;
    cuda_.CtxGetCurrent(&current);
    pushed_ = current != context && cuda_.CtxPushCurrent(context) == 0;
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  ~InContext() {
    void* popped = nullptr;
    if (pushed_) cuda_.CtxPopCurrent(&popped);
  }

 private:
  const GpuFunctions& cuda_;
  bool pushed_ = false;
};

std::string Explain(const GpuFunctions& cuda, int error) {
  const char* text = nullptr;
  cuda.GetErrorString(error, &text);
  return text == nullptr ? "CUDA error " + std::to_string(error) : text;
}

}  // namespace

Status GpuCode::Prepare(c10::Device device) {
  base::MutexLock lock(mutex_);
  auto [entry, is_new] = by_device_.try_emplace(device.index());
  Loaded& loaded = entry->second;
  if (is_new) loaded.status = Load(device, loaded);
  return loaded.status;
}

Status GpuCode::Load(c10::Device device, Loaded& loaded) {
  RETURN_IF_ERROR(Functions().status());
  const GpuFunctions& cuda = *Functions();
  int handle = 0, major = 0, minor = 0;
  cuda.DeviceGet(&handle, device.index());
  cuda.DeviceGetAttribute(&major, kMajor, handle);
  cuda.DeviceGetAttribute(&minor, kMinor, handle);
  std::string binary;
  RETURN_IF_ERROR(Compile(cuda, 10 * major + minor, binary));
  int error = cuda.DevicePrimaryCtxRetain(&loaded.context, handle);
  if (error == 0) {
    const InContext in_context(cuda, loaded.context);
    error = cuda.ModuleLoadData(&loaded.module, binary.data());
  }
  if (error != 0) return Unimplemented("its kernels: ", Explain(cuda, error));
  return OkStatus();
}

Status GpuCode::Compile(const GpuFunctions& cuda, int architecture,
                        std::string& binary) {
  void* program = nullptr;
  if (cuda.CreateProgram(&program, source_.c_str(), "fleet.cu", 0, nullptr,
                         nullptr) != 0) {
    return Unimplemented("NVRTC makes no program");
  }
  const std::string target =
      "--gpu-architecture=sm_" + std::to_string(architecture);
  const char* options[] = {target.c_str(), "--std=c++17"};
  Status status;
  if (cuda.CompileProgram(program, 2, options) != 0) {
    size_t size = 0;
    cuda.GetProgramLogSize(program, &size);
    std::string log(size, '\0');
    cuda.GetProgramLog(program, log.data());
    status = Unimplemented("NVRTC, ", target, ": ", log.c_str());
  } else {
    size_t size = 0;
    cuda.GetCubinSize(program, &size);
    binary.resize(size);
    if (size == 0 || cuda.GetCubin(program, binary.data()) != 0) {
      status = Unimplemented("NVRTC gives no code for ", target);
    }
  }
  cuda.DestroyProgram(&program);
  return status;
}

void GpuCode::Launch(c10::Device device, const char* kernel, unsigned blocks,
                     unsigned threads, void* stream, void** arguments) {
  const GpuFunctions& cuda = *Functions();
  void* function = nullptr;
  void* context = nullptr;
  {
    base::MutexLock lock(mutex_);
    Loaded& loaded = by_device_[device.index()];
    context = loaded.context;
    const InContext in_context(cuda, context);
    auto found = loaded.kernels.find(std::string_view(kernel));
    if (found == loaded.kernels.end()) {
      const int error =
          cuda.ModuleGetFunction(&function, loaded.module, kernel);
      TORCH_CHECK(error == 0, kernel, ": ", Explain(cuda, error));
      found = loaded.kernels.emplace(kernel, function).first;
    }
    function = found->second;
  }
  const InContext in_context(cuda, context);
  const int error = cuda.LaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0,
                                      stream, arguments, nullptr);
  TORCH_CHECK(error == 0, kernel, ": ", Explain(cuda, error));
}

}  // namespace fleet::ops
