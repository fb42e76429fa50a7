// SPDX-License-Identifier: Apache-2.0

#include "fleet/ops/update/merged_rows.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

namespace fleet::ops {
namespace {

// The number of each index among the different ones, in the order of their
// first places; `distinct` gets these.
std::vector<uint32_t> NumberIndices(const int64_t* indices, size_t count,
                                    std::vector<int64_t>& distinct) {
  const size_t capacity = std::bit_ceil(2 * count + 2);
  const int shift = 64 - std::countr_zero(capacity);
  // Open addressing: number + 1, or 0.
  std::vector<uint32_t> table(capacity, 0);
  std::vector<uint32_t> numbers(count);
  distinct.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t index = indices[i];
    size_t at = (static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u) >> shift;
    while (table[at] != 0 && distinct[table[at] - 1] != index) {
      at = (at + 1) & (capacity - 1);
    }
    if (table[at] == 0) {
      distinct.push_back(index);
      table[at] = static_cast<uint32_t>(distinct.size());
    }
    numbers[i] = table[at] - 1;
  }
  return numbers;
}

template <typename T>
void SumRows(const std::vector<uint32_t>& numbers, size_t width, const T* from,
             T* to) {
  size_t begun = 0;
  for (size_t i = 0; i < numbers.size(); ++i, from += width) {
    T* __restrict sum = to + numbers[i] * width;
    if (numbers[i] == begun) {
      std::memcpy(sum, from, width * sizeof(T));
      ++begun;
      continue;
    }
    for (size_t k = 0; k < width; ++k) sum[k] += from[k];
  }
}

}  // namespace

MergedRows MergeRows(const at::Tensor& gradient) {
  const bool plain = gradient.device().is_cpu() && !gradient.is_coalesced() &&
                     (gradient.scalar_type() == at::kFloat ||
                      gradient.scalar_type() == at::kDouble);
  if (!plain) {
    const at::Tensor merged = gradient.coalesce();
    return {merged.indices()[0].contiguous(), merged.values()};
  }
  const at::Tensor indices = gradient._indices()[0].contiguous();
  const at::Tensor values = gradient._values().contiguous();
  std::vector<int64_t> distinct;
  const std::vector<uint32_t> numbers = NumberIndices(
      indices.const_data_ptr<int64_t>(), indices.numel(), distinct);
  if (distinct.size() == numbers.size()) return {indices, values};

  const auto count = static_cast<int64_t>(distinct.size());
  std::vector<int64_t> shape = values.sizes().vec();
  shape[0] = count;
  MergedRows merged{at::empty({count}, indices.options()),
                    at::empty(shape, values.options())};
  std::memcpy(merged.rows.mutable_data_ptr<int64_t>(), distinct.data(),
              distinct.size() * sizeof(int64_t));
  const size_t width = values.numel() / values.size(0);
  if (values.scalar_type() == at::kFloat) {
    SumRows(numbers, width, values.const_data_ptr<float>(),
            merged.values.mutable_data_ptr<float>());
  } else {
    SumRows(numbers, width, values.const_data_ptr<double>(),
            merged.values.mutable_data_ptr<double>());
  }
  return merged;
}

at::Tensor Merged(const at::Tensor& gradient) {
  const MergedRows merged = MergeRows(gradient);
  return at::_sparse_coo_tensor_unsafe(merged.rows.unsqueeze(0), merged.values,
                                       gradient.sizes(), gradient.options());
}

bool AreRowsOfOneTable(at::TensorList gradients) {
  return std::ranges::all_of(gradients, [&](const at::Tensor& one) {
    return one.is_sparse() && one.sparse_dim() == gradients[0].sparse_dim() &&
           one.scalar_type() == gradients[0].scalar_type() &&
           one.device() == gradients[0].device();
  });
}

at::Tensor AddGradients(const at::Tensor& sum, const at::Tensor& next) {
  if (AreRowsOfOneTable({sum, next})) return JoinRows({sum, next});
  if (sum.is_sparse() == next.is_sparse()) return at::add(sum, next);
  // LibTorch adds rows to a dense tensor, not the other way round.
  const at::Tensor& rows = sum.is_sparse() ? sum : next;
  const at::Tensor& dense = sum.is_sparse() ? next : sum;
  return at::add(dense, rows.sparse_dim() == 1 ? Merged(rows) : rows);
}

at::Tensor JoinRows(at::TensorList gradients) {
  std::vector<at::Tensor> indices;
  std::vector<at::Tensor> values;
  for (const at::Tensor& gradient : gradients) {
    indices.push_back(gradient._indices());
    values.push_back(gradient._values());
  }
  return at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), at::cat(values, 0),
                                       gradients[0].sizes(),
                                       gradients[0].options());
}

}  // namespace fleet::ops
