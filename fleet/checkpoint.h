// SPDX-License-Identifier: Apache-2.0

// One file from which training goes on: a module, its optimizer's state, and
// how far training is.
//
//   int64_t epoch = 0;
//   if (fleet::base::Exists("net.checkpoint")) {
//     ASSIGN_OR_RETURN(
//         epoch, fleet::LoadCheckpoint("net.checkpoint", *model, *adam));
//   }
//   for (; epoch < 20; ++epoch) {
//     ...
//     if (job->rank() == 0) {
//       RETURN_IF_ERROR(fleet::SaveCheckpoint("net.checkpoint", *model, *adam,
//                                             epoch + 1));
//     }
//   }
//
// Python reads it, too: paddle.load("net.checkpoint")["model"]
// (docs/container_format.md). One thread at a time for each module.

#ifndef FLEET_CHECKPOINT_H_
#define FLEET_CHECKPOINT_H_

#include <cstdint>

#include "fleet/base/file_system.h"
#include "fleet/base/status.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn
namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace fleet {

// Saves parameters and buffers of `module`, the state and learning rates of
// `optimizer`, and `progress`, which means what the program counts. On the
// terms of SaveModule (save.h). In a job one rank saves. InvalidArgument for an
// optimizer other than LibTorch's Adam, AdamW, SGD, Adagrad and RMSprop.
Status SaveCheckpoint(const base::Path& path, const torch::nn::Module& module,
                      const torch::optim::Optimizer& optimizer,
                      int64_t progress);

// Gives module and optimizer what was saved, and returns `progress`. The
// optimizer is of the same rule and has its parameters in the same order; other
// options than the learning rates are its own. Either all of it is loaded or
// nothing. In a job every rank loads, so every host needs the file. Fails as
// LoadModule does, and with InvalidArgument, which says what differs, for the
// state of another optimizer.
Result<int64_t> LoadCheckpoint(const base::Path& path,
                               torch::nn::Module& module,
                               torch::optim::Optimizer& optimizer);

}  // namespace fleet

#endif  // FLEET_CHECKPOINT_H_
