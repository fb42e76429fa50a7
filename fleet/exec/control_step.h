// SPDX-License-Identifier: Apache-2.0

// Steps of control flow: bodies that run or not, loops, the choice between
// values, and arrays of tensors.

#ifndef FLEET_EXEC_CONTROL_STEP_H_
#define FLEET_EXEC_CONTROL_STEP_H_

#include <memory>
#include <utility>
#include <vector>

#include "fleet/exec/step.h"

namespace fleet::exec {

// `inputs` and `outputs` of the steps with a body name all places that the body
// touches, after those of the condition.
class ConditionalStep final : public Step {
 public:
  // `scalar`: the condition is one truth value. Otherwise the body runs if all
  // of the conditions have elements.
  ConditionalStep(std::vector<Place> condition, bool scalar)
      : condition_(std::move(condition)), scalar_(scalar) {}
  void set_body(Steps body) { body_ = std::move(body); }
  Status Run(Frame& frame) override;
  bool plannable() const override { return false; }

 private:
  std::vector<Place> condition_;
  bool scalar_;
  Steps body_;
};

class WhileStep final : public Step {
 public:
  explicit WhileStep(Place condition) : condition_(condition) {}
  void set_body(Steps body) { body_ = std::move(body); }
  Status Run(Frame& frame) override;
  bool plannable() const override { return false; }

 private:
  Place condition_;
  Steps body_;
};

// outputs[0] is the input whose number the last input says.
class SelectInputStep final : public Step {
 public:
  Status Run(Frame& frame) override;
  bool plannable() const override { return false; }
};

// The output whose number the last input says is inputs[0]; the others get no
// value.
class SelectOutputStep final : public Step {
 public:
  Status Run(Frame& frame) override;
  bool plannable() const override { return false; }
};

// The array outputs[0] gets inputs[0], which may have no value, at the place
// that inputs[1] says.
class WriteArrayStep final : public Step {
 public:
  Status Run(Frame& frame) override;
  bool plannable() const override { return false; }
};

// outputs[0] is what the array inputs[0] has at the place that inputs[1] says.
class ReadArrayStep final : public Step {
 public:
  Status Run(Frame& frame) override;
  bool plannable() const override { return false; }
};

// For gradients: the array outputs[0] gets inputs[0], if that has a value, on
// top of what it has at the place that inputs[1] says.
class AddToArrayStep final : public Step {
 public:
  Status Run(Frame& frame) override;
  bool plannable() const override { return false; }
};

// outputs[0] is what the array inputs[0] has at the place that inputs[1] says,
// and zeros like inputs[2] where that is nothing; the place is empty then.
class TakeFromArrayStep final : public Step {
 public:
  Status Run(Frame& frame) override;
  bool plannable() const override { return false; }
};

class ArrayLengthStep final : public Step {
 public:
  Status Run(Frame& frame) override;
  bool plannable() const override { return false; }
};

}  // namespace fleet::exec

#endif  // FLEET_EXEC_CONTROL_STEP_H_
