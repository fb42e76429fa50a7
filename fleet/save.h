// SPDX-License-Identifier: Apache-2.0

// Files that both languages read: what is saved here, Python opens as a dict of
// Tensors, and the other way round.
//
//   RETURN_IF_ERROR(fleet::SaveModule(*model, "net.pdparams"));
//   RETURN_IF_ERROR(fleet::LoadModule(*model, "net.pdparams"));
//   >>> paddle.load("net.pdparams")["fc.weight"]
//
// A file at `path`, whose folder must exist, is replaced atomically: a crash or
// a full disk leaves the old file whole. In a job one rank saves, and all load,
// or one does before DistributedModel gives its values to all. checkpoint.h
// also has the optimizer's state. Functions may be called by several threads,
// for other files.

#ifndef FLEET_SAVE_H_
#define FLEET_SAVE_H_

#include <string>
#include <vector>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/sync/state.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fleet {

// Whose layers a file is for. Paddle stores the weight of a Linear as [in,
// out], LibTorch as [out, in]; Paddle calls the running values of a batch norm
// _mean and _variance, and does not count batches.
enum class LayerStyle { kTorch, kPaddle };

// Writes the tensors as paddle.save writes a dict of them. InvalidArgument for
// tensors that are undefined, not dense, or of a type that the format does not
// have.
Status SaveTensors(const base::Path& path,
                   const std::vector<sync::NamedTensor>& tensors);

// The tensors of a file that SaveTensors or paddle.save wrote, in its order, on
// the CPU; arrays become tensors. NotFound when there is no file, DataLoss for
// one that is damaged, InvalidArgument for one that holds something other than
// tensors and arrays by their names.
Result<std::vector<sync::NamedTensor>> LoadTensors(const base::Path& path);

// Saves parameters and buffers by their names in the module.
Status SaveModule(const torch::nn::Module& module, const base::Path& path,
                  LayerStyle style = LayerStyle::kTorch);

// Fills parameters and buffers from a file, on whatever device they are. Either
// all of them are filled or none: InvalidArgument lists the names that the file
// lacks, those that the module lacks, and each tensor of another type or shape;
// otherwise fails as LoadTensors does.
Status LoadModule(torch::nn::Module& module, const base::Path& path,
                  LayerStyle style = LayerStyle::kTorch);

}  // namespace fleet

#endif  // FLEET_SAVE_H_
