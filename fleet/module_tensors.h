// SPDX-License-Identifier: Apache-2.0

// The tensors of a module as files have them: what save.cc and checkpoint.cc
// share.

#ifndef FLEET_MODULE_TENSORS_H_
#define FLEET_MODULE_TENSORS_H_

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/save.h"
#include "fleet/saved/container.h"
#include "fleet/saved/value.h"
#include "fleet/sync/state.h"

namespace fleet {

// The tensors of `module`, under the names and in the shapes of `style`. They
// share the module's memory.
std::vector<sync::NamedTensor> ModuleTensors(const torch::nn::Module& module,
                                             LayerStyle style);

// Writes tensors by their names; the value is a dict.
Result<saved::Value> AddTensors(saved::ContainerWriter& writer,
                                const std::vector<sync::NamedTensor>& tensors);

// Reads a dict of tensors and arrays. InvalidArgument for any other value.
Result<std::vector<sync::NamedTensor>> ReadTensors(
    const saved::ContainerReader& reader, const saved::Value& value);

// Checks that `from` has the names, types and shapes of `to`, in any order, and
// brings it into the order of `to`. InvalidArgument lists all differences.
Status MatchTensors(const std::vector<sync::NamedTensor>& to,
                    std::vector<sync::NamedTensor>& from);

// Copies values, one by one.
Status CopyTensors(const std::vector<sync::NamedTensor>& to,
                   const std::vector<sync::NamedTensor>& from);

// Writes a file, which appears whole or not at all: `write` adds its blobs and
// gives its value.
template <class Write>
Status WriteContainer(const base::Path& path, Write write) {
  ASSIGN_OR_RETURN(base::AtomicFile file, base::AtomicFile::Create(path));
  saved::ContainerWriter writer(
      [&](std::span<const std::byte> bytes) { return file.Append(bytes); });
  ASSIGN_OR_RETURN(const saved::Value root, write(writer));
  RETURN_IF_ERROR(writer.Finish(root));
  return file.Commit();
}

}  // namespace fleet

#endif  // FLEET_MODULE_TENSORS_H_
