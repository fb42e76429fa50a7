// SPDX-License-Identifier: Apache-2.0

//   exec::Executor executor(library, {});
//   exec::Scope scope;
//   RETURN_IF_ERROR(executor.Run(startup, scope, {}, {}).status());
//   ASSIGN_OR_RETURN(std::vector<at::Tensor> values,
//                    executor.Run(main, scope, {{"x", batch}}, {"loss"}));

#ifndef FLEET_EXEC_EXECUTOR_H_
#define FLEET_EXEC_EXECUTOR_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/exec/extension.h"
#include "fleet/exec/schedule.h"
#include "fleet/exec/scope.h"
#include "fleet/ops/kernel.h"
#include "fleet/ops/kernels.h"
#include "fleet/program/program.h"

namespace fleet::exec {

struct Feed {
  std::string name;
  at::Tensor value;  // only read
};

struct ExecutorOptions {
  // Whether the second run with the same feed shapes makes a plan (plan.h). Off
  // where every kernel should be called on its own: to compare, to debug.
  bool planning = true;
  // Whether a plan makes one of several operations. Off to compare: then each
  // gives the bits of an eager call.
  bool fusing = true;
  // Whether programs that run again and again on a GPU are recorded there
  // (schedule.h). FLEET_CUDA_GRAPHS=0 in the environment turns it off too.
  bool cuda_graphs = true;
};

// Runs programs. What it compiled is kept, by program, its version, and the
// names of feeds and fetches; the least recently used of them goes when there
// are too many. A feed is only read, and read where it lies; what is fetched is
// a copy. One thread at a time.
class Executor final {
 public:
  static constexpr size_t kMaxSchedules = 64;

  // `library` outlives it.
  Executor(const ops::OpLibrary& library, ops::Context context,
           ExecutorOptions options = {})
      : library_(library), context_(context), options_(options) {}

  // From now on, operations of this type run by `extension`, also where a
  // kernel exists. What was compiled before is compiled anew.
  void AddExtension(std::string op_type, std::shared_ptr<Extension> extension);

  // Runs the main block once, and returns the fetches in their order.
  // InvalidArgument for a feed that the program does not have, or of another
  // type or shape than its variable, for a fetch that it does not have, and for
  // an operation without kernel or with wrong attributes. FailedPrecondition
  // for a variable without a value: the startup program has not run in `scope`.
  // Else what a kernel or an extension says, with the operation, the shapes it
  // got and the user's line; updates that were done before stay done.
  Result<std::vector<at::Tensor>> Run(const program::Program& program,
                                      Scope& scope,
                                      const std::vector<Feed>& feeds,
                                      const std::vector<std::string>& fetches);

  // How many runs were replays of a record on a GPU.
  uint64_t num_replays() const;

 private:
  // What a fed variable must look like.
  struct FeedSlot {
    std::string name;
    program::TensorType type;
    bool any_shape;  // a sequence: as many rows as its parts have together
  };
  struct Entry {
    uint64_t program;  // its id
    uint64_t version;
    std::vector<FeedSlot> feeds;
    std::vector<std::string> fetches;
    std::unique_ptr<Schedule> schedule;
  };

  friend class ExecutorPeer;  // for tests

  static bool Takes(const FeedSlot& slot, const at::Tensor& value);
  Result<Entry*> Find(const program::Program& program,
                      const std::vector<Feed>& feeds,
                      const std::vector<std::string>& fetches);

  const ops::OpLibrary& library_;
  const ops::Context context_;
  const ExecutorOptions options_;
  Extensions extensions_;
  std::list<Entry> entries_;  // the most recently used first
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_EXECUTOR_H_
