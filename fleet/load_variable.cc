// SPDX-License-Identifier: Apache-2.0
#include "fleet/load_variable.h"

#include <algorithm>
#include <span>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/exec/saved_tensor.h"
#include "fleet/table/key.h"

namespace fleet {
namespace {

// Rows that are given to a table at a time.
constexpr int64_t kRows = 1 << 16;

Status TakeRows(const at::Tensor& rows, uint32_t server, uint32_t num_servers,
                table::SparseTable& table) {
  const auto dim = static_cast<int64_t>(table.dim());
  const float* values = rows.const_data_ptr<float>();
  std::vector<table::Key> keys;
  std::vector<float> own;
  for (int64_t begin = 0; begin < rows.size(0); begin += kRows) {
    keys.clear();
    own.clear();
    const int64_t end = std::min(begin + kRows, rows.size(0));
    for (int64_t i = begin; i < end; ++i) {
      const auto key = static_cast<table::Key>(i);
      if (table::ServerOfKey(key, num_servers) != server) continue;
      keys.push_back(key);
      own.insert(own.end(), values + i * dim, values + (i + 1) * dim);
    }
    RETURN_IF_ERROR(table.Assign(keys, own));
  }
  return OkStatus();
}

}  // namespace

Status LoadVariable(const std::string& folder, uint32_t server,
                    uint32_t num_servers, table::SparseTable* sparse,
                    table::DenseTable* dense) {
  const std::string& name = sparse != nullptr ? sparse->name() : dense->name();
  const std::string path = folder + "/" + name;
  if (!base::Exists(path)) return OkStatus();
  ASSIGN_OR_RETURN(const std::vector<exec::SavedTensor> read,
                   exec::LoadTensors(path, std::vector{name}));
  const at::Tensor& value = read.front().value;
  if (value.scalar_type() != at::kFloat) {
    return InvalidArgument(path, ": ", name, " is not of float32");
  }
  if (sparse != nullptr) {
    if (value.dim() != 2 ||
        value.size(1) != static_cast<int64_t>(sparse->dim())) {
      return InvalidArgument(path, ": rows of ", sparse->dim(),
                             " values are expected");
    }
    return TakeRows(value, server, num_servers, *sparse);
  }
  const table::DensePart& part = dense->part();
  if (static_cast<uint64_t>(value.numel()) != dense->size()) {
    return InvalidArgument(path, ": ", value.numel(), " values, but ", name,
                           " has ", dense->size());
  }
  return dense->Assign(std::span(value.const_data_ptr<float>(), value.numel())
                           .subspan(part.begin, part.size()));
}

}  // namespace fleet
