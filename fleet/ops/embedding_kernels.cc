// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "fleet/ops/cpu_path.h"
#include "fleet/ops/index_check.h"
#include "fleet/ops/kernels.h"
#include "fleet/ops/update/merged_rows.h"

namespace fleet::ops {
namespace {

using at::Tensor;

Tensor FlatIds(const Tensor& ids) {
  TORCH_CHECK(ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt,
              "ids must be int64 or int32");
  return ids.reshape({-1}).to(at::kLong).contiguous();
}

// ---- embedding

// A row for each id; zeros for the padding.
Tensor Embedding(const Tensor& w, const Tensor& ids, int64_t padding_idx,
                 bool) {
  TORCH_CHECK(w.dim() == 2, "weight must be a matrix");
  Tensor flat = CheckedIndices("id", FlatIds(ids), 0, w.size(0));
  std::vector<int64_t> shape(ids.sizes().begin(), ids.sizes().end());
  shape.push_back(w.size(1));
  if (FastOnCpu(w) && w.is_contiguous()) {
    Tensor out = at::empty(shape, w.options());
    const int64_t* id = flat.const_data_ptr<int64_t>();
    const float* rows = w.const_data_ptr<float>();
    float* to = out.mutable_data_ptr<float>();
    int64_t dim = w.size(1);
    for (int64_t i = 0; i < flat.numel(); ++i, to += dim) {
      if (id[i] == padding_idx) {
        std::memset(to, 0, dim * sizeof(float));
      } else {
        std::memcpy(to, rows + id[i] * dim, dim * sizeof(float));
      }
    }
    return out;
  }
  Tensor out = at::index_select(w, 0, flat);
  if (padding_idx >= 0) {
    out =
        at::where((flat == padding_idx).unsqueeze(1), at::zeros_like(out), out);
  }
  return out.reshape(shape);
}

Tensor DenseGrad(const Tensor& w, const Tensor& flat, const Tensor& rows,
                 int64_t padding_idx) {
  if (!FastOnCpu(rows) || !rows.is_contiguous()) {
    return at::embedding_dense_backward(rows, flat, w.size(0), padding_idx,
                                        false);
  }
  Tensor dw = at::zeros(w.sizes(), rows.options());
  const int64_t* id = flat.const_data_ptr<int64_t>();
  const float* from = rows.const_data_ptr<float>();
  float* to = dw.mutable_data_ptr<float>();
  int64_t dim = w.size(1);
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (id[i] == padding_idx) continue;
    for (int64_t j = 0; j < dim; ++j) to[id[i] * dim + j] += from[i * dim + j];
  }
  return dw;
}

Tensor EmbeddingGrad(const Tensor& w, const Tensor& ids, const Tensor& dout,
                     int64_t padding_idx, bool is_sparse) {
  Tensor flat = FlatIds(ids);
  // Otherwise the forward kernel has failed.
  if (LateChecks::Of(flat.device()) != nullptr) {
    flat = CheckedIndices("id", flat, 0, w.size(0));
  }
  Tensor rows = dout.reshape({flat.numel(), w.size(1)});
  if (!is_sparse) return DenseGrad(w, flat, rows, padding_idx);
  if (padding_idx >= 0) {
    Tensor kept = at::nonzero(flat != padding_idx).squeeze(1);
    if (kept.numel() < flat.numel()) {
      flat = at::index_select(flat, 0, kept);
      rows = at::index_select(rows, 0, kept);
    }
  }
  return at::_sparse_coo_tensor_unsafe(flat.unsqueeze(0), rows, w.sizes(),
                                       rows.options().layout(at::kSparse));
}

// An embedding whose ids have the shape [..., 1].
Tensor OldEmbedding(const Tensor& w, const Tensor& ids, int64_t padding_idx,
                    bool is_sparse) {
  TORCH_CHECK(ids.dim() > 0 && ids.size(-1) == 1,
              "the last dimension of ids must be 1");
  return Embedding(w, ids.squeeze(-1), padding_idx, is_sparse);
}

// ---- one hot

Tensor OneHot(const Tensor& x, int64_t depth) {
  TORCH_CHECK(depth > 0, "num_classes must be positive");
  Tensor flat = CheckedIndices("index", FlatIds(x), 0, depth);
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.push_back(depth);
  Tensor zeros =
      at::zeros({flat.numel(), depth}, x.options().dtype(at::kFloat));
  return at::scatter(zeros, 1, flat.unsqueeze(1), 1).reshape(shape);
}

// The ids are [..., 1].
Tensor OldOneHot(const Tensor& x, int64_t depth) {
  TORCH_CHECK(x.dim() > 0 && x.size(-1) == 1, "the last dimension must be 1");
  Tensor index = x.to(at::kLong);
  CheckIndices("index", index.reshape({-1}).contiguous(), 0, depth);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = depth;
  return at::scatter(at::zeros(shape, x.options().dtype(at::kFloat)), -1, index,
                     1);
}

}  // namespace

void AddEmbeddingKernels(KernelTable& k) {
  k.Add<Embedding, EmbeddingGrad>("lookup_table_v2");
  k.Add<OldEmbedding, EmbeddingGrad>("lookup_table");
  k.Add<OneHot>("one_hot_v2");
  k.Add<OldOneHot>("one_hot");
  // Gradients that hold rows: each row once; all rows.
  k.Add<[](const Tensor& x) { return x.is_sparse() ? Merged(x) : x.clone(); }>(
      "merge_selected_rows");
  k.Add<[](const Tensor& x) {
    return x.is_sparse() ? x.to_dense() : x.clone();
  }>("get_tensor_from_selected_rows");
}

}  // namespace fleet::ops
