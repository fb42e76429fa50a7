// SPDX-License-Identifier: Apache-2.0

// What a schedule is made of: steps that read and write places in a table of
// values. The steps here take any tensor on any device; a plan (plan.h) puts
// faster ones in their stead where everything is known.

#ifndef FLEET_EXEC_STEP_H_
#define FLEET_EXEC_STEP_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/exec/extension.h"
#include "fleet/ops/kernel.h"
#include "fleet/ops/update/optimizer.h"

namespace fleet::exec {

// An index into the values of a run.
using Place = uint32_t;
inline constexpr Place kNothing = UINT32_MAX;  // an output that nobody wants

// What a step works on; everything by place.
struct Frame {
  std::span<at::Tensor> values;
  std::span<std::vector<at::Tensor>> arrays;  // of variables that are arrays
  std::span<const std::string> names;         // for errors
  const ops::Context& context;
};

class Step {
 public:
  virtual ~Step() = default;

  // Exceptions of LibTorch may leave it.
  virtual Status Run(Frame& frame) = 0;
  // Whether it can be a part of a plan: what its outputs look like depends only
  // on what its inputs look like.
  virtual bool plannable() const { return true; }

  std::string what;             // for errors: "net.py:3: matmul_v2"
  std::vector<Place> inputs;    // all slots, one after the other
  std::vector<Place> outputs;   // the same; kNothing where nobody reads it
  std::vector<Place> in_place;  // those of `inputs` whose memory it changes
};

using Steps = std::vector<std::unique_ptr<Step>>;

// Runs one step; an error names its operation and what went in.
Status RunOne(Step& step, Frame& frame);
// All of them in order.
Status RunAll(const Steps& steps, Frame& frame);

// A call of a kernel. The slots of a backward kernel are those of its gradient
// rule.
class KernelStep final : public Step {
 public:
  Status Run(Frame& frame) override;

  const program::OpDef& def() const { return *op->def; }

  const ops::Op* op = nullptr;
  bool backward = false;
  std::vector<uint32_t> slot_end;  // where each slot ends in `inputs`
  program::Attrs attrs;
  uint64_t needs = ~uint64_t{0};  // which gradients
};

class ExtensionCall final : public Step {
 public:
  explicit ExtensionCall(std::unique_ptr<ExtensionStep> extension)
      : extension_(std::move(extension)) {}
  Status Run(Frame& frame) override;

  ExtensionStep& extension() { return *extension_; }

 private:
  std::unique_ptr<ExtensionStep> extension_;
};

// All updates with one rule that stand next to each other.
class OptimizerStep final : public Step {
 public:
  struct Update {
    Place values;
    Place gradient;
    Place learning_rate;
    Place skip;  // where it is true, nothing is changed; kNothing: never
    std::array<Place, optim::kMaxState> state;
    std::array<Place, optim::kMaxPowers> powers;
    optim::Decay decay;
    optim::Transform transform;
    double rate_factor;
    bool advances_powers;
  };

  explicit OptimizerStep(optim::UpdateRule rule) : rule_(rule) {}
  Status Run(Frame& frame) override;

  const optim::UpdateRule& rule() const { return rule_; }
  std::span<const Update> updates() const { return updates_; }
  bool Updates(Place values) const;
  // Whether values that a run computes decide about an update.
  bool MaySkip() const;
  void Add(Update update) { updates_.push_back(update); }

 private:
  optim::UpdateRule rule_;
  std::vector<Update> updates_;
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_STEP_H_
