// SPDX-License-Identifier: Apache-2.0

// Files that both languages read: what is saved here, Python opens as a dict of
// Tensors.
//
//   RETURN_IF_ERROR(fleet::SaveTensors("net.pdparams", {{"w", w}, {"b", b}}));
//   >>> layer.set_state_dict(paddle.load("net.pdparams"))

#ifndef FLEET_SAVE_H_
#define FLEET_SAVE_H_

#include <string>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/sync/state.h"

namespace fleet {

// Replaces the file at `path`, whose folder must exist, atomically: a crash or
// a full disk leaves the old file whole. The format is that of paddle.save
// (python/paddle/framework/container.py). InvalidArgument for tensors that are
// undefined, not dense, or of a type that the format does not have.
Status SaveTensors(const base::Path& path,
                   const std::vector<sync::NamedTensor>& tensors);

}  // namespace fleet

#endif  // FLEET_SAVE_H_
