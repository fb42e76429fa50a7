// SPDX-License-Identifier: Apache-2.0

// A libcuda.so.1 for tests on machines without a GPU: the memory of the GPU is
// the host's.

#include <cstdlib>
#include <cstring>

#include "fleet/comm/nccl_library.h"

namespace fleet::comm {

extern "C" {

// What all memory is said to be; a test may set it.
unsigned int fake_cuda_memory = kCudaDeviceMemory;

CudaResult cuInit(unsigned int) { return CudaResult::kSuccess; }

CudaResult cuGetErrorString(CudaResult, const char** text) {
  *text = "no such GPU";
  return CudaResult::kSuccess;
}

CudaResult cuDeviceGet(int* device, int number) {
  *device = number;
  return number == 0 || number == 1 ? CudaResult::kSuccess : CudaResult{101};
}

CudaResult cuDevicePrimaryCtxRetain(CUctx_st** context, int) {
  static char fake;
  *context = reinterpret_cast<CUctx_st*>(&fake);
  return CudaResult::kSuccess;
}

CudaResult cuCtxPushCurrent_v2(CUctx_st*) { return CudaResult::kSuccess; }
CudaResult cuCtxPopCurrent_v2(CUctx_st**) { return CudaResult::kSuccess; }

CudaResult cuMemAlloc_v2(CudaAddress* address, size_t byte_size) {
  void* data = std::malloc(byte_size);
  *address = reinterpret_cast<CudaAddress>(data);
  return data == nullptr ? CudaResult{2} : CudaResult::kSuccess;
}

CudaResult cuMemFree_v2(CudaAddress address) {
  std::free(reinterpret_cast<void*>(address));
  return CudaResult::kSuccess;
}

CudaResult cuMemsetD8Async(CudaAddress address, unsigned char value,
                           size_t byte_size, void*) {
  std::memset(reinterpret_cast<void*>(address), value, byte_size);
  return CudaResult::kSuccess;
}

CudaResult cuMemcpyDtoHAsync_v2(void* to, CudaAddress from, size_t byte_size,
                                void*) {
  std::memcpy(to, reinterpret_cast<const void*>(from), byte_size);
  return CudaResult::kSuccess;
}

CudaResult cuMemcpyHtoDAsync_v2(CudaAddress to, const void* from,
                                size_t byte_size, void*) {
  std::memcpy(reinterpret_cast<void*>(to), from, byte_size);
  return CudaResult::kSuccess;
}

// Not ready the first time.
CudaResult cuStreamQuery(void*) {
  static thread_local bool ready = false;
  ready = !ready;
  return ready ? CudaResult::kNotReady : CudaResult::kSuccess;
}

CudaResult cuPointerGetAttribute(void* value, int, CudaAddress) {
  std::memcpy(value, &fake_cuda_memory, sizeof(fake_cuda_memory));
  return CudaResult::kSuccess;
}

}  // extern "C"

}  // namespace fleet::comm
