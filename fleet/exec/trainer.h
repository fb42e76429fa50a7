// SPDX-License-Identifier: Apache-2.0

// Threads that train one program from one dataset.

#ifndef FLEET_EXEC_TRAINER_H_
#define FLEET_EXEC_TRAINER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/data/batch.h"
#include "fleet/exec/executor.h"
#include "fleet/exec/scope.h"
#include "fleet/program/program.h"

namespace fleet::exec {

struct TrainOptions {
  // In lines and errors.
  std::string name = "train_from_dataset";
  int num_threads = 1;
  // Computed with every batch, and shown with every print_period-th of all
  // threads together, under these names (their own where there is none).
  std::vector<std::string> fetches;
  std::vector<std::string> fetch_names;
  uint64_t print_period = 100;
  // At the end a line for each thread: batches, time to wait and to run.
  bool debug = false;

  // Somebody looks at variables, at most so often. Called between two batches
  // on the calling thread; what it answers may end the training.
  struct Watch {
    std::vector<std::string> names;
    std::chrono::milliseconds period{0};
    std::function<Status(const std::vector<at::Tensor>& values)> look;
  };
  Watch watch = {};

  // For who must know how many take part in a step: called before the second
  // batch with the number of threads, and by every thread when it has ended.
  std::function<void(int num_threads)> on_threads;
  std::function<void()> on_thread_end;

  // Where lines go; stderr if unset. Called by one thread at a time.
  std::function<void(const std::string& line)> print;
  // Asked on the calling thread between batches and while it waits for them.
  base::InterruptCheck interrupt;
};

struct TrainStats {
  uint64_t num_batches = 0;
  uint64_t num_samples = 0;
  double seconds = 0;
  std::vector<at::Tensor> fetched;  // of the batch that ended last
};

// Each thread has an executor of its own; they share the persistable variables
// of the scope and update them without waiting for each other (Hogwild). The
// calling thread is the first of them: with one thread a run is what
// Executor::Run over the same batches would be. The first batch runs before the
// other threads begin, so that every variable that outlives a run is there.
//
// What executors compiled stays for the next run. One run at a time.
class Trainer final {
 public:
  // `make_executor` makes the executor of one thread, for `device`.
  Trainer(std::function<std::unique_ptr<Executor>()> make_executor,
          at::Device device)
      : make_executor_(std::move(make_executor)), device_(device) {}

  // Runs the program once for each batch of `batches`. Slots that the program
  // does not have are not fed; InvalidArgument when it has none of them, and
  // when there is no batch. The first failure ends all threads; one of a batch
  // names it and its file.
  Result<TrainStats> Run(const program::Program& program, Scope& scope,
                         data::BatchSource& batches,
                         const TrainOptions& options);

 private:
  const std::function<std::unique_ptr<Executor>()> make_executor_;
  const at::Device device_;
  std::vector<std::unique_ptr<Executor>> executors_;  // by thread
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_TRAINER_H_
