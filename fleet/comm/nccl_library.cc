// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/nccl_library.h"

#include <dlfcn.h>
#include <string>

namespace fleet::comm {
namespace {

constexpr char kRemedy[] =
    "collectives between GPUs need a CUDA driver and NCCL 2.14 or newer, which "
    "a CUDA build of torch brings along";

// Functions of one library. The first that is missing is the failure.
class Functions final {
 public:
  static Result<Functions> Open(const char* file) {
    // One that the process already has is found by this name too.
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return Functions(library);
    const char* why = dlerror();
    return Unimplemented(why == nullptr ? file : why, "; ", kRemedy);
  }

  template <typename Function>
  Functions& Find(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr && status_.ok()) {
      status_ = Unimplemented("no function ", name, "; ", kRemedy);
    }
    return *this;
  }
  const Status& status() const { return status_; }

 private:
  explicit Functions(void* library) : library_(library) {}

  void* library_;
  Status status_;
};

Result<NcclLibrary> Load() {
  NcclLibrary library;
  ASSIGN_OR_RETURN(Functions cuda, Functions::Open("libcuda.so.1"));
  CudaFunctions& c = library.cuda;
  cuda.Find("cuInit", c.Init)
      .Find("cuGetErrorString", c.GetErrorString)
      .Find("cuDeviceGet", c.DeviceGet)
      .Find("cuDevicePrimaryCtxRetain", c.DevicePrimaryCtxRetain)
      .Find("cuCtxPushCurrent_v2", c.CtxPushCurrent)
      .Find("cuCtxPopCurrent_v2", c.CtxPopCurrent)
      .Find("cuMemAlloc_v2", c.MemAlloc)
      .Find("cuMemFree_v2", c.MemFree)
      .Find("cuMemsetD8Async", c.MemsetD8Async)
      .Find("cuMemcpyDtoHAsync_v2", c.MemcpyDtoHAsync)
      .Find("cuMemcpyHtoDAsync_v2", c.MemcpyHtoDAsync)
      .Find("cuStreamQuery", c.StreamQuery)
      .Find("cuPointerGetAttribute", c.PointerGetAttribute);
  RETURN_IF_ERROR(cuda.status());
  ASSIGN_OR_RETURN(Functions nccl, Functions::Open("libnccl.so.2"));
  NcclFunctions& n = library.nccl;
  nccl.Find("ncclGetUniqueId", n.GetUniqueId)
      .Find("ncclCommInitRankConfig", n.CommInitRankConfig)
      .Find("ncclCommFinalize", n.CommFinalize)
      .Find("ncclCommDestroy", n.CommDestroy)
      .Find("ncclCommAbort", n.CommAbort)
      .Find("ncclCommGetAsyncError", n.CommGetAsyncError)
      .Find("ncclGetErrorString", n.GetErrorString)
      .Find("ncclGetLastError", n.GetLastError)
      .Find("ncclAllReduce", n.AllReduce)
      .Find("ncclReduce", n.Reduce)
      .Find("ncclBroadcast", n.Broadcast)
      .Find("ncclAllGather", n.AllGather)
      .Find("ncclReduceScatter", n.ReduceScatter)
      .Find("ncclSend", n.Send)
      .Find("ncclRecv", n.Recv)
      .Find("ncclGroupStart", n.GroupStart)
      .Find("ncclGroupEnd", n.GroupEnd);
  RETURN_IF_ERROR(nccl.status());
  RETURN_IF_ERROR(library.Check(library.cuda.Init(0), "cuInit"));
  return library;
}

}  // namespace

Result<const NcclLibrary*> NcclLibrary::Get() {
  static const Result<NcclLibrary> library = Load();
  RETURN_IF_ERROR(library.status());
  return &*library;
}

Result<int> NcclLibrary::FindGpu(int number) const {
  int handle = 0;
  RETURN_IF_ERROR(
      Check(cuda.DeviceGet(&handle, number), base::Concat("GPU ", number)));
  return handle;
}

Status NcclLibrary::Check(CudaResult result, std::string_view what) const {
  if (result == CudaResult::kSuccess) return OkStatus();
  const char* text = nullptr;
  cuda.GetErrorString(result, &text);
  return Unavailable(what, ": ", text == nullptr ? "CUDA error" : text, " (",
                     static_cast<int>(result), ")");
}

Status NcclLibrary::Check(NcclResult result, ncclComm* comm,
                          std::string_view what) const {
  if (result == NcclResult::kSuccess || result == NcclResult::kInProgress) {
    return OkStatus();
  }
  const char* last = nccl.GetLastError(comm);
  const std::string more =
      last == nullptr || *last == '\0' ? "" : base::Concat(": ", last);
  return Unavailable(what, ": NCCL: ", nccl.GetErrorString(result), more);
}

}  // namespace fleet::comm
