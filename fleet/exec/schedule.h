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
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/exec/extension.h"
#include "fleet/exec/plan.h"
#include "fleet/exec/scope.h"
#include "fleet/exec/step.h"
#include "fleet/ops/kernel.h"
#include "fleet/ops/kernels.h"
#include "fleet/program/program.h"

namespace fleet::exec {

// The first run with feeds of certain shapes is a plain one and takes down
// which type every value has; the second makes a plan of that (plan.h), which
// runs from then on. Plans are kept for the shapes met last.
//
// One thread at a time.
class Schedule final {
 public:
  // InvalidArgument for an operation without kernel or with wrong attributes,
  // and for a fetch that the program does not have; the message names the
  // operation and the user's line. `library` outlives the schedule.
  static Result<std::unique_ptr<Schedule>> Compile(
      const program::Program& program, const ops::OpLibrary& library,
      const Extensions& extensions, const std::vector<std::string>& feeds,
      const std::vector<std::string>& fetches);

  // `feeds` in the order of Compile; they are only read. Persistable variables
  // come from and go to `scope`, and keep the memory that they have there.
  // Returns the fetches, each memory of its own. FailedPrecondition for a
  // variable that nobody has given a value. When a step fails, what earlier
  // steps changed in place (optimizer updates) stays changed, nothing else.
  Result<std::vector<at::Tensor>> Run(Scope& scope,
                                      std::span<const at::Tensor> feeds,
                                      const ops::Context& context);

  // Without plans every run is a plain one. On by default.
  void set_planning(bool planning) { planning_ = planning; }

  size_t num_steps() const { return steps_.size(); }
  // The plan that ran last; null when the last run was a plain one.
  const Plan* last_plan() const { return last_plan_; }

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
  std::list<Shapes> shapes_;  // the most recently used first
  const Plan* last_plan_ = nullptr;
  // The scope's tensors, in the order of kept_, and what they were found in.
  std::vector<at::Tensor*> kept_tensors_;
  uint64_t kept_scope_ = 0;
  uint64_t kept_generation_ = 0;
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_SCHEDULE_H_
