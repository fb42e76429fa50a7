// SPDX-License-Identifier: Apache-2.0

// Training of a program by the files of a dataset, alone or as a worker of a
// job with servers:
//
//   ASSIGN_OR_RETURN(auto dataset, data::InMemoryDataset::Make(
//                                      {.slots = slots, .num_threads = 2}));
//   dataset->SetFiles(files);
//   RETURN_IF_ERROR(dataset->Load({}));
//   DatasetTrainer trainer(job.get());
//   for (int epoch = 0; epoch < 3; ++epoch) {
//     dataset->LocalShuffle(epoch);
//     auto batches = dataset->BeginPass({.batch_size = 200});
//     RETURN_IF_ERROR(trainer.TrainFromDataset(main, scope, *batches,
//                                              {.num_threads = 2}).status());
//   }

#ifndef FLEET_DATASET_TRAINING_H_
#define FLEET_DATASET_TRAINING_H_

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/data/batch.h"
#include "fleet/exec/scope.h"
#include "fleet/exec/trainer.h"
#include "fleet/job.h"
#include "fleet/program/program.h"

namespace fleet {

// Whether the steps of a program end at servers, as plan::ServeParameters
// leaves them; a program that only looks rows up does not.
bool EndsAtServers(const program::Program& program);

// Runs programs by threads, each with an executor of its own; what these
// compiled stays for the next pass. One pass at a time.
class DatasetTrainer final {
 public:
  // `job`, where there is one, is connected and outlives the trainer.
  explicit DatasetTrainer(Job* job = nullptr, at::Device device = at::kCPU);

  // Runs the program once for each batch, as exec::Trainer says. Where its
  // steps end at servers, all workers end the pass together, whoever has more
  // batches, and dense parameters of the servers are in `scope` then. Errors
  // are those of exec::Trainer::Run and ParameterWorker::EndPass.
  Result<exec::TrainStats> TrainFromDataset(const program::Program& program,
                                            exec::Scope& scope,
                                            data::BatchSource& batches,
                                            exec::TrainOptions options = {});

 private:
  Job* const job_;
  exec::Trainer trainer_;
};

}  // namespace fleet

#endif  // FLEET_DATASET_TRAINING_H_
