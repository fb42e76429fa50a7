// SPDX-License-Identifier: Apache-2.0
#include "fleet/saved/load_variable.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/saved/model_file.h"
#include "fleet/saved/tensor_file.h"
#include "fleet/table/key.h"

namespace fleet::saved {
namespace {

// Rows that are given to a table at a time.
constexpr size_t kRows = 1 << 16;

Status TakeRows(std::span<const float> rows, uint32_t server,
                uint32_t num_servers, table::SparseTable& table) {
  const size_t dim = table.dim();
  const size_t num_rows = rows.size() / dim;
  std::vector<table::Key> keys;
  std::vector<float> own;
  for (size_t begin = 0; begin < num_rows; begin += kRows) {
    keys.clear();
    own.clear();
    const size_t end = std::min(begin + kRows, num_rows);
    for (size_t i = begin; i < end; ++i) {
      const auto key = static_cast<table::Key>(i);
      if (table::ServerOfKey(key, num_servers) != server) continue;
      keys.push_back(key);
      const auto row = rows.subspan(i * dim, dim);
      own.insert(own.end(), row.begin(), row.end());
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
  ASSIGN_OR_RETURN(const base::Path file, FileOfVariable(folder, name));
  const std::string path = file.string();
  if (!base::Exists(path)) return OkStatus();
  program::TensorType type;
  // Memory of floats whatever the type, so that they may be read as such.
  std::vector<float> values;
  RETURN_IF_ERROR(LoadTensors(
      path, {&name, 1},
      [&](TensorHeader header) -> Result<std::span<std::byte>> {
        type = std::move(header.type);
        const auto byte_size = static_cast<size_t>(*ByteSize(type));
        values.resize((byte_size + sizeof(float) - 1) / sizeof(float));
        return std::as_writable_bytes(std::span(values)).first(byte_size);
      }));
  if (type.dtype != program::DType::kFloat32) {
    return InvalidArgument(path, ": ", name, " is not of float32");
  }
  if (sparse != nullptr) {
    if (type.dims.size() != 2 ||
        type.dims[1] != static_cast<int64_t>(sparse->dim())) {
      return InvalidArgument(path, ": rows of ", sparse->dim(),
                             " values are expected");
    }
    return TakeRows(values, server, num_servers, *sparse);
  }
  const table::DensePart& part = dense->part();
  if (values.size() != dense->size()) {
    return InvalidArgument(path, ": ", values.size(), " values, but ", name,
                           " has ", dense->size());
  }
  return dense->Assign(
      std::span<const float>(values).subspan(part.begin, part.size()));
}

}  // namespace fleet::saved
