// SPDX-License-Identifier: Apache-2.0
#include "fleet/save.h"

#include "fleet/module_tensors.h"

namespace fleet {

using sync::NamedTensor;

Status SaveTensors(const base::Path& path,
                   const std::vector<NamedTensor>& tensors) {
  return WriteContainer(path, [&](saved::ContainerWriter& writer) {
    return AddTensors(writer, tensors);
  });
}

Result<std::vector<NamedTensor>> LoadTensors(const base::Path& path) {
  ASSIGN_OR_RETURN(const saved::ContainerReader reader,
                   saved::ContainerReader::Open(path));
  Result<std::vector<NamedTensor>> tensors = ReadTensors(reader, reader.root());
  if (!tensors.ok()) return tensors.status().WithContext(path.string());
  return tensors;
}

Status SaveModule(const torch::nn::Module& module, const base::Path& path,
                  LayerStyle style) {
  return SaveTensors(path, ModuleTensors(module, style));
}

Status LoadModule(torch::nn::Module& module, const base::Path& path,
                  LayerStyle style) {
  // All is read and compared before anything changes.
  ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors, LoadTensors(path));
  const std::vector<NamedTensor> targets = ModuleTensors(module, style);
  RETURN_IF_ERROR(MatchTensors(targets, tensors).WithContext(path.string()));
  return CopyTensors(targets, tensors);
}

}  // namespace fleet
