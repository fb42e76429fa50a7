// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/cuda_graph.h"

// For a LibTorch without CUDA.

namespace fleet::exec {
namespace {

Status Absent() { return Unimplemented("this build has no CUDA graphs"); }

}  // namespace

bool CudaGraph::Possible(c10::Device) { return false; }
CudaGraph::Pool CudaGraph::NewPool() { return {}; }
Status CudaGraph::Rehearse(c10::Device, const std::function<Status()>&) {
  return Absent();
}
Result<std::unique_ptr<CudaGraph>> CudaGraph::Record(
    c10::Device, Pool, const std::function<Status()>&) {
  return Absent();
}
Status CudaGraph::Waited() { return OkStatus(); }

}  // namespace fleet::exec
