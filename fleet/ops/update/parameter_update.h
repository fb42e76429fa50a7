// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_UPDATE_PARAMETER_UPDATE_H_
#define FLEET_OPS_UPDATE_PARAMETER_UPDATE_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/optim/update.h"
#include "fleet/optim/update_rule.h"

namespace fleet::ops {

// What happens to gradients before decay and rule see them. Norms count the
// gradients of one updater that are `clipped`, dense and sparse alike.
struct Clip {
  enum Kind {
    kNone,
    kValue,       // every element into [min, max]
    kNorm,        // every gradient to a norm of at most max_norm
    kGlobalNorm,  // all gradients together to a norm of at most max_norm
  };
  Kind kind = kNone;
  double min = 0.0;
  double max = 0.0;
  double max_norm = 0.0;
};

// The gradients as `clip` makes them, dense or sparse as they came; an
// undefined one stays so. The updater does not use it: it clips while it
// updates.
Result<std::vector<at::Tensor>> ClipGradients(
    const Clip& clip, std::span<const at::Tensor> gradients);

// Divides the gradients of these parameters by `scale`, where they lie. Returns
// whether all were finite.
Result<bool> UnscaleGradients(std::span<const at::Tensor> parameters,
                              double scale);

struct ParameterOptions {
  std::string name;            // for messages
  double learning_rate = 1.0;  // multiplies the learning rate of a step
  optim::Decay decay;
  bool clipped = true;   // false: the clip neither counts nor changes it
  double rescale = 1.0;  // multiplies the gradient after clip and L1, L2 decay
};

// Which code runs the rules: bare memory (optim::Apply) for what is on the CPU
// and foreach kernels elsewhere, or foreach kernels everywhere, which is for
// tests.
enum class UpdateBackend { kByDevice, kForeach };

// An optimizer without its Python: a rule, the parameters under it and what it
// remembers of them. A step updates all parameters in one call; none is moved
// or replaced, so whoever holds a parameter sees the new values.
//
// Parameters are of any floating-point type. Those in half precision are
// updated through a float copy, which is kept between steps and made anew when
// somebody else wrote the parameter.
//
// A sparse gradient (COO over rows, the gradient of a sparse embedding) updates
// only the rows that it names where the rule allows (UpdatesOnlyGivenRows) and
// the parameter has neither L1 nor L2 decay; otherwise missing rows count as
// zero.
//
// One thread at a time.
class ParameterUpdater final {
 public:
  ParameterUpdater(optim::UpdateRule rule, Clip clip,
                   UpdateBackend backend = UpdateBackend::kByDevice);

  // Adds a parameter at index size(). InvalidArgument if it cannot be updated
  // (undefined, sparse, not of floating point).
  Status Add(at::Tensor parameter, ParameterOptions options);
  size_t size() const { return parameters_.size(); }
  const at::Tensor& parameter(size_t index) const {
    return parameters_[index].value;
  }
  // Puts another tensor in the place of a parameter, for instance the same on
  // another device; its state follows. InvalidArgument as in Add, or if its
  // shape is another.
  Status Replace(size_t index, at::Tensor parameter);

  // One step from the gradients that the parameters hold. Parameters without a
  // gradient, or that ask for none, stay as they are, with their state. Nothing
  // is changed on InvalidArgument (a gradient of the wrong shape).
  Status Step(double learning_rate);

  // One step with gradients from elsewhere: gradients[i] belongs to parameter
  // i, undefined for none.
  Status Step(double learning_rate, std::span<const at::Tensor> gradients);

  // Releases the gradients, or fills them with zero where they are.
  void ClearGradients(bool set_to_zero);

  // What the rule remembers of a parameter, by Paddle's names: first what has
  // the parameter's shape, then the powers, each of shape [1] on the CPU. It
  // comes to be in a parameter's first step, or by SetState; before that
  // state() is undefined.
  std::span<const std::string_view> state_names() const { return names_; }
  const at::Tensor& state(size_t parameter, size_t name) const;
  // Copies `value`. InvalidArgument if its shape is another; a single element
  // may come in any.
  Status SetState(size_t parameter, size_t name, const at::Tensor& value);

 private:
  struct Parameter {
    at::Tensor value;
    ParameterOptions options;
    std::vector<at::Tensor> state;  // as state_names(); empty: not yet
    at::Tensor master;              // float copy of a half; undefined: none
    int64_t master_version = -1;    // of `value` when `master` equalled it
  };
  // One parameter in one step.
  struct Work;

  void MakeState(Parameter& parameter) const;
  Status Collect(std::span<const at::Tensor> gradients, bool own,
                 std::vector<Work>& works);
  Status Prepare(Parameter& parameter, at::Tensor gradient, Work& work) const;
  void SetTransforms(std::vector<Work>& works) const;
  void SetGlobalScale(std::vector<Work>& works) const;
  template <class T>
  void ApplyOnMemory(std::span<Work* const> works, double learning_rate) const;
  void ApplyOnTensors(std::span<Work* const> works, double learning_rate) const;
  Status Run(double learning_rate, std::vector<Work>& works) const;
  bool OnMemory(const at::Tensor& values) const;

  optim::UpdateRule rule_;
  Clip clip_;
  UpdateBackend backend_;
  std::vector<std::string_view> names_;
  size_t num_state_;  // how many of names_ have the parameter's shape
  std::vector<Parameter> parameters_;
};

}  // namespace fleet::ops

#endif  // FLEET_OPS_UPDATE_PARAMETER_UPDATE_H_
