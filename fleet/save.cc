// SPDX-License-Identifier: Apache-2.0
#include "fleet/save.h"

#include "fleet/exec/saved_model.h"

namespace fleet {

Status SaveTensors(const base::Path& path,
                   const std::vector<sync::NamedTensor>& tensors) {
  std::vector<exec::SavedTensor> named;
  named.reserve(tensors.size());
  for (const sync::NamedTensor& each : tensors) {
    named.push_back({.name = each.name, .value = each.tensor});
  }
  return exec::SaveContainer(path, named);
}

}  // namespace fleet
