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
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/exec/extension.h"
#include "fleet/exec/scope.h"
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
  // come from and go to `scope`. Returns the fetches, each memory of its own.
  // FailedPrecondition for a variable that nobody has given a value.
  Result<std::vector<at::Tensor>> Run(Scope& scope,
                                      std::span<const at::Tensor> feeds,
                                      const ops::Context& context);

  size_t num_steps() const { return steps_.size(); }

 private:
  static constexpr uint32_t kNothing = UINT32_MAX;

  // One kernel call, or one call of an extension. Places are indices into
  // `values_`.
  struct Step {
    ops::KernelFn kernel = nullptr;
    std::unique_ptr<ExtensionStep> extension;  // in place of a kernel
    std::vector<uint32_t> inputs;              // all slots, one after the other
    std::vector<uint32_t> slot_end;
    std::vector<uint32_t> outputs;  // kNothing: nobody wants it
    program::Attrs attrs;
    uint64_t needs = ~uint64_t{0};
    std::vector<uint32_t> last_uses;  // free after this step
    std::string what;                 // for errors: "net.py:3: matmul_v2"
  };
  // A variable that lives in the scope.
  struct Kept {
    uint32_t place;
    std::string name;
    bool read_first;  // before the program writes it
    bool written;
  };
  friend class ScheduleMaker;

  Schedule() = default;
  Status Load(Scope& scope, std::span<const at::Tensor> feeds);
  Status RunStep(const Step& step, const ops::Context& context);
  Status RunKernel(const Step& step, std::span<const at::Tensor> inputs,
                   const ops::Context& context);
  Status RunExtension(const Step& step, std::span<const at::Tensor> inputs);
  Status Explain(const Step& step, const Status& reason) const;
  void Store(Scope& scope);

  std::vector<Step> steps_;
  std::vector<Kept> kept_;
  std::vector<uint32_t> feed_places_;
  std::vector<uint32_t> fetch_places_;
  std::vector<std::string> names_;  // by place
  std::vector<at::Tensor> values_;
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_SCHEDULE_H_
