// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PYTHON_SRC_TENSOR_H_
#define FLEET_PYTHON_SRC_TENSOR_H_

#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <nanobind/nanobind.h>

#include "fleet/ops/kernel.h"

namespace fleet::python {

namespace nb = nanobind;

// What functions take: a `paddle.Tensor`, or a variable of a program, which has
// no value. Several may share one at::Tensor.
struct Tensor {
  at::Tensor value;
  std::string name;          // empty until somebody asks
  bool persistable = false;  // belongs to a model: is saved, never moves
};

// `paddle.Tensor`, the class of all that have a value. Variables are none.
struct EagerTensor : Tensor {};

// The state behind the module: one device and default type for the process.
ops::Context& DefaultContext();

// The at::Tensor inside `object`, or nullptr if it is no Tensor.
const at::Tensor* AsTensor(nb::handle object);

// Lets an in-place change of `tensor` begin: if others see its memory and it is
// not a model's own, it moves to a copy first, so that they keep what they saw.
void PrepareInPlace(Tensor& tensor);

}  // namespace fleet::python

// A Tensor that C++ gives to Python has a value, so it becomes an EagerTensor.
template <>
struct nanobind::detail::type_caster<fleet::python::Tensor>
    : nanobind::detail::type_caster_base<fleet::python::Tensor> {
  template <typename T>
  static handle from_cpp(T&& tensor, rv_policy, cleanup_list* cleanup) {
    return type_caster_base<fleet::python::EagerTensor>::from_cpp(
        fleet::python::EagerTensor{std::forward<T>(tensor)}, rv_policy::move,
        cleanup);
  }
};

#endif  // FLEET_PYTHON_SRC_TENSOR_H_
