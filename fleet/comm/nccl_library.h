// SPDX-License-Identifier: Apache-2.0

// NCCL and the CUDA driver as this process has them: functions found by name,
// declared here as the two libraries document them, so that Fleet builds where
// neither is. Only the module libfleet_nccl.so includes this.

#ifndef FLEET_COMM_NCCL_LIBRARY_H_
#define FLEET_COMM_NCCL_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fleet/base/status.h"

namespace fleet::comm {

// NOLINTBEGIN(readability-identifier-naming): the names of the two libraries.

// ---- NCCL ----

struct ncclComm;
struct NcclUniqueId {
  char bytes[128];
};

// The first version of ncclConfig_t, which all later ones read.
struct NcclConfig {
  size_t byte_size = sizeof(NcclConfig);
  uint32_t magic = 0xcafebeef;
  uint32_t version = 21400;
  int32_t blocking = 0;
  int32_t unused = 0;
};

enum class NcclResult : int { kSuccess = 0, kInProgress = 7 };
enum class NcclType : int {
  kInt8 = 0,
  kUInt8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBFloat16 = 9,
};
enum class NcclOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

struct NcclFunctions {
  NcclResult (*GetUniqueId)(NcclUniqueId*);
  NcclResult (*CommInitRankConfig)(ncclComm**, int size, NcclUniqueId, int rank,
                                   NcclConfig*);
  NcclResult (*CommFinalize)(ncclComm*);
  NcclResult (*CommDestroy)(ncclComm*);
  NcclResult (*CommAbort)(ncclComm*);
  NcclResult (*CommGetAsyncError)(ncclComm*, NcclResult*);
  const char* (*GetErrorString)(NcclResult);
  const char* (*GetLastError)(ncclComm*);
  NcclResult (*AllReduce)(const void*, void*, size_t, NcclType, NcclOp,
                          ncclComm*, void* stream);
  NcclResult (*Reduce)(const void*, void*, size_t, NcclType, NcclOp, int root,
                       ncclComm*, void* stream);
  NcclResult (*Broadcast)(const void*, void*, size_t, NcclType, int root,
                          ncclComm*, void* stream);
  NcclResult (*AllGather)(const void*, void*, size_t, NcclType, ncclComm*,
                          void* stream);
  NcclResult (*ReduceScatter)(const void*, void*, size_t, NcclType, NcclOp,
                              ncclComm*, void* stream);
  NcclResult (*Send)(const void*, size_t, NcclType, int peer, ncclComm*,
                     void* stream);
  NcclResult (*Recv)(void*, size_t, NcclType, int peer, ncclComm*,
                     void* stream);
  NcclResult (*GroupStart)();
  NcclResult (*GroupEnd)();
};

// ---- The CUDA driver ----

struct CUctx_st;
using CudaAddress = unsigned long long;  // CUdeviceptr

enum class CudaResult : int { kSuccess = 0, kNotReady = 600 };
// What cuPointerGetAttribute is asked, and its answer.
inline constexpr int kCudaMemoryTypeAttribute = 2;
inline constexpr unsigned int kCudaDeviceMemory = 2;

struct CudaFunctions {
  CudaResult (*Init)(unsigned int flags);
  CudaResult (*GetErrorString)(CudaResult, const char**);
  CudaResult (*DeviceGet)(int* device, int number);
  CudaResult (*DevicePrimaryCtxRetain)(CUctx_st**, int device);
  CudaResult (*CtxPushCurrent)(CUctx_st*);
  CudaResult (*CtxPopCurrent)(CUctx_st**);
  CudaResult (*MemAlloc)(CudaAddress*, size_t byte_size);
  CudaResult (*MemFree)(CudaAddress);
  CudaResult (*MemsetD8Async)(CudaAddress, unsigned char value, size_t,
                              void* stream);
  CudaResult (*MemcpyDtoHAsync)(void*, CudaAddress, size_t, void* stream);
  CudaResult (*MemcpyHtoDAsync)(CudaAddress, const void*, size_t, void* stream);
  CudaResult (*StreamQuery)(void* stream);
  CudaResult (*PointerGetAttribute)(void* value, int attribute, CudaAddress);
};

// NOLINTEND(readability-identifier-naming)

struct NcclLibrary {
  NcclFunctions nccl;
  CudaFunctions cuda;

  // Loads both with the first call; they stay loaded. Thread-safe.
  static Result<const NcclLibrary*> Get();

  // The driver's handle of a GPU. Unavailable, with its number, if there is
  // none.
  Result<int> FindGpu(int number) const;

  Status Check(CudaResult result, std::string_view what) const;
  // Ok also for kInProgress. `comm` may be null.
  Status Check(NcclResult result, ncclComm* comm, std::string_view what) const;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_NCCL_LIBRARY_H_
