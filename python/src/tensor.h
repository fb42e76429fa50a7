// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PYTHON_SRC_TENSOR_H_
#define FLEET_PYTHON_SRC_TENSOR_H_

#include <string>

#include <ATen/core/Tensor.h>
#include <nanobind/nanobind.h>

#include "fleet/ops/kernel.h"

namespace fleet::python {

namespace nb = nanobind;

// What `paddle.Tensor` holds. Several may share one at::Tensor.
struct Tensor {
  at::Tensor value;
  std::string name;          // empty until somebody asks
  bool persistable = false;  // belongs to a model: is saved, never moves
};

// The state behind the module: one device and default type for the process.
ops::Context& DefaultContext();

// The at::Tensor inside `object`, or nullptr if it is no paddle.Tensor.
const at::Tensor* AsTensor(nb::handle object);

// Lets an in-place change of `tensor` begin: if others see its memory and it is
// not a model's own, it moves to a copy first, so that they keep what they saw.
void PrepareInPlace(Tensor& tensor);

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_TENSOR_H_
