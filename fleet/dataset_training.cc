// SPDX-License-Identifier: Apache-2.0
#include "fleet/dataset_training.h"

#include <memory>
#include <string>
#include <utility>

#include "fleet/base/no_destructor.h"
#include "fleet/ops/kernels.h"
#include "fleet/parameter_server.h"

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

DatasetTrainer::DatasetTrainer(Job* job, at::Device device)
    : job_(job),
      trainer_(
          [job, device] {
            auto executor = std::make_unique<exec::Executor>(
                Library(), ops::Context{device, program::DType::kFloat32});
            if (job != nullptr) job->AddTo(*executor);
            return executor;
          },
          device) {}

Result<exec::TrainStats> DatasetTrainer::TrainFromDataset(
    const program::Program& program, exec::Scope& scope,
    data::BatchSource& batches, exec::TrainOptions options) {
  const bool together =
      job_ != nullptr && job_->has_servers() && EndsAtServers(program);
  if (together) {
    // Steps of threads belong together: servers count them as one worker's.
    ParameterWorker& servers = job_->servers();
    options.on_threads = [&servers](int count) { servers.BeginThreads(count); };
    options.on_thread_end = [&servers] { servers.EndThread(); };
  }
  ASSIGN_OR_RETURN(exec::TrainStats stats,
                   trainer_.Run(program, scope, batches, options));
  if (together) {
    RETURN_IF_ERROR(
        job_->servers().EndPass(scope).WithContext("the end of a pass"));
  }
  return stats;
}

}  // namespace fleet
