// SPDX-License-Identifier: Apache-2.0
#include "fleet/sync/row_exchange.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fleet/ops/aten_error.h"
#include "fleet/sync/tensor_collectives.h"

namespace fleet::sync {
namespace {

using at::Tensor;

struct Rows {
  Tensor indices;  // [n], which rows
  Tensor values;   // [n, ...], each row once
};

Rows RowsOf(const Tensor& gradient, const Tensor& like) {
  if (!gradient.defined()) {
    std::vector<int64_t> shape(like.sizes().begin(), like.sizes().end());
    shape[0] = 0;
    return {at::empty({0}, like.options().dtype(at::kLong)),
            at::empty(shape, like.options().requires_grad(false))};
  }
  Tensor sparse = gradient.detach();
  if (sparse.layout() == at::kSparse && sparse.sparse_dim() != 1) {
    sparse = sparse.to_dense();
  }
  if (sparse.layout() != at::kSparse) sparse = sparse.to_sparse(1);
  sparse = sparse.coalesce();
  return {sparse.indices().select(0, 0), sparse.values()};
}

// All ranks' parts behind each other; counts[rank] rows of each are real.
Result<Tensor> GatherRows(comm::Communicator& communicator, const Tensor& mine,
                          const std::vector<int64_t>& counts,
                          base::Deadline deadline) {
  std::vector<int64_t> shape(mine.sizes().begin(), mine.sizes().end());
  shape[0] = *std::max_element(counts.begin(), counts.end());
  Tensor padded = mine;
  if (mine.size(0) < shape[0]) {
    padded = at::zeros(shape, mine.options());
    padded.narrow(0, 0, mine.size(0)).copy_(mine);
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> parts,
                   AllGather(communicator, padded, deadline));
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] = parts[i].narrow(0, 0, counts[i]);
  }
  return at::cat(parts);
}

Status Exchange(comm::Communicator& communicator,
                const std::vector<Tensor>& like, std::vector<Tensor>& gradients,
                base::Deadline deadline) {
  std::vector<Rows> rows;
  const auto n = static_cast<int64_t>(gradients.size());
  Tensor my_counts = at::empty({n}, at::kLong);
  for (int64_t i = 0; i < n; ++i) {
    rows.push_back(RowsOf(gradients[i], like[i]));
    my_counts[i] = rows[i].indices.size(0);
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> all_counts,
                   AllGather(communicator, my_counts, deadline));
  for (int64_t i = 0; i < n; ++i) {
    std::vector<int64_t> counts;
    for (const Tensor& c : all_counts) counts.push_back(c[i].item<int64_t>());
    Rows merged = rows[i];
    if (*std::max_element(counts.begin(), counts.end()) > 0) {
      ASSIGN_OR_RETURN(merged.indices, GatherRows(communicator, rows[i].indices,
                                                  counts, deadline));
      ASSIGN_OR_RETURN(merged.values, GatherRows(communicator, rows[i].values,
                                                 counts, deadline));
      merged.values.div_(communicator.size());
    }
    gradients[i] = at::_sparse_coo_tensor_unsafe(
        merged.indices.unsqueeze(0), merged.values, like[i].sizes(),
        merged.values.options().layout(at::kSparse));
  }
  return OkStatus();
}

}  // namespace

Status ExchangeRows(comm::Communicator& communicator,
                    const std::vector<Tensor>& like,
                    std::vector<Tensor>& gradients, base::Deadline deadline) {
  if (gradients.empty()) return OkStatus();
  const at::NoGradGuard no_grad;
  try {
    return Exchange(communicator, like, gradients, deadline);
  } catch (const c10::Error& error) {
    return ops::FromException(error);
  }
}

}  // namespace fleet::sync
