// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_ONEDNN_GEMM_H_
#define FLEET_OPS_ONEDNN_GEMM_H_

#include <string_view>

#include <dnnl.h>

namespace fleet::ops {

// Whether oneDNN's general matrix product runs in this process. LibTorch holds
// a oneDNN of its own, and the function that makes the kernels of the product
// once is an instance of a template of namespace std, which both libraries show
// to the dynamic linker. It takes one for both, which makes the kernels of one
// only, and in the other every such product fails.
inline bool OneDnnGemmRuns() {
  static const bool runs = [] {
    const float one = 1;
    float product = 0;
    return dnnl_sgemm('N', 'N', 1, 1, 1, 1, &one, 1, &one, 1, 0, &product, 1) ==
           dnnl_success;
  }();
  return runs;
}

// Whether an implementation, by the name that oneDNN gives it, runs here and is
// worth it: "ref" stands for plain loops, which ATen beats.
inline bool RunsFast(std::string_view implementation) {
  if (implementation.find("ref") != std::string_view::npos) return false;
  // Not "brgemm:", which has kernels of its own.
  const bool over_gemm =
      implementation.starts_with("gemm:") ||
      implementation.find(":gemm:") != std::string_view::npos;
  return !over_gemm || OneDnnGemmRuns();
}

}  // namespace fleet::ops

#endif  // FLEET_OPS_ONEDNN_GEMM_H_
