// SPDX-License-Identifier: Apache-2.0

// A program made ready to run: names are resolved to places in a table, kernels
// and attributes are found, and it is known after which step a value is no
// longer needed. Made once for a state of a program, a list of feeds and a list
// of fetches; a run looks nothing up by name.

#ifndef FLEET_EXEC_SCHEDULE_H_
#define FLEET_EXEC_SCHEDULE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/exec/extension.h"
#include "fleet/exec/scope.h"
#include "fleet/exec/step.h"
#include "fleet/ops/kernel.h"
#include "fleet/ops/kernels.h"
#include "fleet/program/program.h"

namespace fleet::exec {

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

  size_t num_steps() const { return steps_.size(); }

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
  friend class ScheduleMaker;

  Schedule() = default;
  Status Load(Scope& scope, std::span<const at::Tensor> feeds);
  void Unshare(size_t step);
  Status RunSteps(const ops::Context& context);
  Status Explain(const Step& step, const Status& reason) const;
  std::vector<at::Tensor> Fetch() const;
  void Store(Scope& scope);

  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<std::vector<Place>> last_uses_;  // free after this step
  // What a step that works in place must not change with it.
  std::vector<std::vector<Place>> sharers_;
  std::vector<Kept> kept_;
  std::vector<Place> feed_places_;
  std::vector<bool> feed_changes_;  // a step writes into it: feed a copy
  std::vector<Place> fetch_places_;
  std::vector<std::string> names_;  // by place
  std::vector<at::Tensor> values_;
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_SCHEDULE_H_
