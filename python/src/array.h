// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PYTHON_SRC_ARRAY_H_
#define FLEET_PYTHON_SRC_ARRAY_H_

#include <ATen/core/Tensor.h>
#include <nanobind/nanobind.h>

namespace fleet::python {

namespace nb = nanobind;

// A tensor with a copy of what `object` holds: a number, an array, or nested
// lists of numbers or Tensors. Element types are numpy's. TypeError for
// anything else.
at::Tensor TensorFromObject(nb::handle object, at::Device device);

// A numpy array. With `copy` its memory is its own; without, it is the
// tensor's, and lives as long as the array does. bfloat16 becomes the bits as
// uint16.
nb::object ArrayFromTensor(const at::Tensor& tensor, bool copy);

// DLPack in both directions, without a copy.
nb::object ToDlpack(const at::Tensor& tensor);
at::Tensor FromDlpack(nb::handle object);

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_ARRAY_H_
