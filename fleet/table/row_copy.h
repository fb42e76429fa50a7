// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_TABLE_ROW_COPY_H_
#define FLEET_TABLE_ROW_COPY_H_

#include <cstddef>
#include <cstring>

namespace fleet::table {

// Calls work(copy), where copy(to, from) copies a row of `dim` values. A size
// that is known makes that a few instructions, so the usual ones are.
template <typename Work>
void WithRowSize(size_t dim, Work work) {
  auto fixed = [&]<size_t kDim>() {
    work([](float* to, const float* from) {
      std::memcpy(to, from, kDim * sizeof(float));
    });
  };
  switch (dim) {
    case 8:
      return fixed.template operator()<8>();
    case 16:
      return fixed.template operator()<16>();
    case 32:
      return fixed.template operator()<32>();
    case 64:
      return fixed.template operator()<64>();
    default:
      return work([dim](float* to, const float* from) {
        std::memcpy(to, from, dim * sizeof(float));
      });
  }
}

}  // namespace fleet::table

#endif  // FLEET_TABLE_ROW_COPY_H_
