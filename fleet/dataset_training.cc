// SPDX-License-Identifier: Apache-2.0
#include "fleet/dataset_training.h"

#include <memory>
#include <string>
#include <utility>

#include "fleet/base/no_destructor.h"
#include "fleet/ops/kernels.h"

namespace fleet {
namespace {

// Never destroyed: threads of a trainer may use it until the process is gone.
const ops::OpLibrary& Library() {
  static base::NoDestructor<ops::OpLibrary> library;
  return *library;
}

}  // namespace

bool EndsAtServers(const program::Program& program) {
  const program::Block& block = program.block(0);
  if (block.num_ops() == 0) return false;
  const std::string& last = block.op(block.num_ops() - 1).type;
  return last == "send_barrier" || last == "recv" || last == "geo_step";
}

DatasetTrainer::DatasetTrainer(ParameterWorker* worker, at::Device device)
    : worker_(worker),
      trainer_(
          [worker, device] {
            auto executor = std::make_unique<exec::Executor>(
                Library(), ops::Context{device, program::DType::kFloat32});
            if (worker != nullptr) worker->AddTo(*executor);
            return executor;
          },
          device) {}

Result<exec::TrainStats> DatasetTrainer::TrainFromDataset(
    const program::Program& program, exec::Scope& scope,
    data::BatchSource& batches, exec::TrainOptions options) {
  const bool together = worker_ != nullptr && EndsAtServers(program);
  if (together) {
    // Steps of threads belong together: servers count them as one worker's.
    options.on_threads = [this](int count) { worker_->BeginThreads(count); };
    options.on_thread_end = [this] { worker_->EndThread(); };
  }
  ASSIGN_OR_RETURN(exec::TrainStats stats,
                   trainer_.Run(program, scope, batches, options));
  if (together) {
    RETURN_IF_ERROR(worker_->EndPass(scope).WithContext("the end of a pass"));
  }
  return stats;
}

}  // namespace fleet
