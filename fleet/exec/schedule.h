// SPDX-License-Identifier: Apache-2.0

// A program made ready to run: names are resolved to places in a table, kernels
// and attributes are found, and it is known after which step a value is no
// longer needed. Made once for a state of a program, a list of feeds and a list
// of fetches; a run looks nothing up by name.

#ifndef FLEET_EXEC_SCHEDULE_H_
#define FLEET_EXEC_SCHEDULE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/exec/cuda_graph.h"
#include "fleet/exec/extension.h"
#include "fleet/exec/plan.h"
#include "fleet/exec/scope.h"
#include "fleet/exec/step.h"
#include "fleet/ops/index_check.h"
#include "fleet/ops/kernel.h"
#include "fleet/ops/kernels.h"
#include "fleet/program/program.h"

namespace fleet::exec {

// On the CPU the first run with feeds of certain shapes is a plain one and
// takes down which type every value has; the second makes a plan of that
// (plan.h), which runs from then on. Plans are kept for the shapes met last.
//
// On a GPU the first two runs are plain. The third is recorded (cuda_graph.h),
// and from then on a run copies the feeds to where the record wants them,
// replays it and copies the fetches. A program that has to wait for the GPU in
// the middle of a run, that leaves it (extensions, control flow) or that draws
// with a seed of its own is never recorded; a line of the log (DEBUG) says why.
// In a replay an index or label outside of its range does not fail at once: its
// row is left out or takes the first one's place, and the next run fails.
//
// One thread at a time.
class Schedule final {
 public:
  // What it will run on: for a GPU a product and its bias are one step, and all
  // updates stay together.
  enum class Target { kAny, kGpu };

  // InvalidArgument for an operation without kernel or with wrong attributes,
  // and for a fetch that the program does not have; the message names the
  // operation and the user's line. `library` outlives the schedule.
  static Result<std::unique_ptr<Schedule>> Compile(
      const program::Program& program, const ops::OpLibrary& library,
      const Extensions& extensions, const std::vector<std::string>& feeds,
      const std::vector<std::string>& fetches, Target target = Target::kAny);

  // `feeds` in the order of Compile; they are only read. Persistable variables
  // come from and go to `scope`, and keep the memory that they have there.
  // Returns the fetches, each memory of its own. FailedPrecondition for a
  // variable that nobody has given a value. When a step fails, what earlier
  // steps changed in place (optimizer updates) stays changed, nothing else.
  Result<std::vector<at::Tensor>> Run(Scope& scope,
                                      std::span<const at::Tensor> feeds,
                                      const ops::Context& context);

  // Without plans every run on the CPU is a plain one, without fusing a plan
  // runs every operation by itself (PlanSource::fusing), without records every
  // run on a GPU is plain. On by default; to be set before the first run.
  void set_planning(bool planning) { planning_ = planning; }
  void set_fusing(bool fusing) { fusing_ = fusing; }
  void set_recording(bool recording) { recording_ = recording; }

  size_t num_steps() const { return steps_.size(); }
  // The plan that ran last; null when the last run was a plain one.
  const Plan* last_plan() const { return last_plan_; }
  // How many runs were replays.
  uint64_t num_replays() const { return num_replays_; }

 private:
  // A variable that lives in the scope.
  struct Kept {
    Place place;
    std::string name;
    bool is_data;
    bool read_first;  // before the program writes it
    bool written;
    std::string reader;  // the first operation that reads it
  };
  // What is known for one set of feed shapes.
  struct Shapes {
    PlanSource source;
    std::unique_ptr<Plan> plan;
    bool hopeless = false;  // there can be no plan
  };
  static constexpr size_t kMaxShapes = 16;
  // A feed on a GPU. Where it lies is part of a record.
  struct Located {
    const void* address = nullptr;  // null: not there
    at::ScalarType type = at::ScalarType::Undefined;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };
  struct Record {
    Record() = default;
    Record(const Record&) = delete;
    Record& operator=(const Record&) = delete;
    // Waits for replays: they may still leave word with `checks`.
    ~Record();

    std::vector<Located> wanted;    // what the feeds look like
    std::vector<at::Tensor> feeds;  // copies of them go here
    std::vector<at::Tensor> fetches;
    std::vector<Located> kept;
    ops::LateChecks checks;
    std::unique_ptr<CudaGraph> graph;  // null: not recorded yet, or never
    at::Device device = at::kCPU;      // of the graph
    int num_plain = 0;
    int num_attempts = 0;
    bool hopeless = false;
  };
  static constexpr size_t kMaxRecords = 8;
  // Plans may hold this much memory together; one of them alone may hold more.
  static constexpr int64_t kMaxArenas = int64_t{256} << 20;
  friend class ScheduleMaker;

  Schedule() = default;
  Result<std::vector<at::Tensor>> RunPlain(Scope& scope,
                                           std::span<const at::Tensor> feeds,
                                           const ops::Context& context,
                                           Shapes* record);
  Shapes* FindShapes(std::span<const at::Tensor> feeds);
  void FindKept(Scope& scope);
  void LimitArenas();
  PlanSource EmptySource() const;
  Status Load(Scope& scope, std::span<const at::Tensor> feeds);
  void Unshare(size_t step);
  Status RunSteps(const ops::Context& context, Shapes* record);
  std::vector<at::Tensor> Fetch() const;
  void Store(Scope& scope);

  // schedule_gpu.cc
  Result<std::vector<at::Tensor>> RunOnGpu(Scope& scope,
                                           std::span<const at::Tensor> feeds,
                                           const ops::Context& context);
  Result<std::vector<at::Tensor>> RunPlainOnGpu(
      Scope& scope, std::span<const at::Tensor> feeds,
      const ops::Context& context);
  Result<std::vector<at::Tensor>> Replay(Record& record,
                                         std::span<const at::Tensor> feeds);
  Result<std::vector<at::Tensor>> MakeRecord(Record& record, Scope& scope,
                                             std::span<const at::Tensor> feeds,
                                             const ops::Context& context);
  Status Rehearse(Record& record, Scope& scope,
                  std::span<const at::Tensor> feeds,
                  const ops::Context& context,
                  std::vector<at::Tensor>& fetched);
  Status Capture(Record& record, Scope& scope, const ops::Context& context);
  Status RunRecordable(Record& record, Scope& scope,
                       const ops::Context& context,
                       std::vector<at::Tensor>& fetches);
  Record& FindRecord(std::span<const at::Tensor> feeds);
  static Located Locate(const at::Tensor* tensor);
  static bool IsAt(const Located& place, const at::Tensor* tensor);
  bool KeptAreAt(const std::vector<Located>& places) const;
  std::string NeverRecorded() const;

  Steps steps_;
  std::vector<std::vector<Place>> last_uses_;  // free after this step
  // What a step that works in place must not change with it.
  std::vector<std::vector<Place>> sharers_;
  std::vector<Kept> kept_;
  std::vector<Place> feed_places_;
  std::vector<bool> feed_changes_;  // a step writes into it: feed a copy
  std::vector<Place> fetch_places_;
  std::vector<std::string> names_;  // by place
  std::vector<at::Tensor> values_;
  std::vector<std::vector<at::Tensor>> arrays_;  // by place

  bool planning_ = true;
  bool fusing_ = true;
  bool recording_ = true;
  std::list<Record> records_;       // the most recently used first
  CudaGraph::Pool pool_;            // of their graphs
  std::optional<bool> recordable_;  // what is known before a run
  uint64_t num_replays_ = 0;
  std::list<Shapes> shapes_;  // the most recently used first
  const Plan* last_plan_ = nullptr;
  // The scope's tensors, in the order of kept_, and what they were found in.
  std::vector<at::Tensor*> kept_tensors_;
  uint64_t kept_scope_ = 0;
  uint64_t kept_generation_ = 0;
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_SCHEDULE_H_
