// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_GEMM_H_
#define FLEET_OPS_GEMM_H_

#include <cstdint>
#include <memory>

// Matrix products on the CPU for dense row-major float matrices. Two files
// implement this: gemm_onednn.cc where oneDNN is installed, gemm_plain.cc
// elsewhere.

namespace fleet::ops {

struct GemmShape {
  int64_t m;  // rows of C
  int64_t n;  // columns of C
  int64_t k;
  bool trans_a = false;  // A is stored [k, m]
  bool trans_b = false;  // B is stored [n, k]
};

// Whether Gemm() is faster here than what ATen would do.
bool GemmIsFast();

// C [m, n] = A [m, k] B [k, n], plus bias [n] on every row unless it is null. C
// is written only. No dimension may be zero. Thread-safe.
void Gemm(const GemmShape& shape, const float* a, const float* b,
          const float* bias, float* c);

// What happens to every element of a product before it is written.
enum class Activation { kNone, kRelu, kTanh, kSigmoid };

// A product that is made ready once and run many times, with less to do before
// the first multiplication than Gemm(). One thread at a time.
class PreparedGemm final {
 public:
  PreparedGemm(const GemmShape& shape, bool has_bias, Activation activation);
  ~PreparedGemm();
  PreparedGemm(PreparedGemm&&) noexcept;

  // As Gemm(); `bias` is not read where there is none.
  void Run(const float* a, const float* b, const float* bias, float* c);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fleet::ops

#endif  // FLEET_OPS_GEMM_H_
