// SPDX-License-Identifier: Apache-2.0
#include "indexing.h"

#include <vector>

#include <ATen/TensorIndexing.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include "fleet/ops/index_check.h"

#include "array.h"

namespace fleet::python {
namespace {

using at::indexing::TensorIndex;

int64_t AsInt(PyObject* object) {
  nb::object index = nb::steal(PyNumber_Index(object));
  if (!index.is_valid()) throw nb::python_error();
  int64_t value = PyLong_AsLongLong(index.ptr());
  if (value == -1 && PyErr_Occurred()) throw nb::python_error();
  return value;
}

std::optional<c10::SymInt> SliceBound(PyObject* object) {
  if (object == Py_None) return std::nullopt;
  const at::Tensor* tensor = AsTensor(object);
  if (tensor != nullptr) return c10::SymInt(tensor->item<int64_t>());
  return c10::SymInt(AsInt(object));
}

// A slice with a negative step reads backwards, which ATen's cannot: it becomes
// a list of positions.
TensorIndex AsSlice(PyObject* object, int64_t size) {
  auto* slice = reinterpret_cast<PySliceObject*>(object);
  int64_t step = slice->step == Py_None ? 1 : AsInt(slice->step);
  if (step > 0) {
    return at::indexing::Slice(SliceBound(slice->start),
                               SliceBound(slice->stop), c10::SymInt(step));
  }
  Py_ssize_t start, stop, unused;
  if (PySlice_Unpack(object, &start, &stop, &unused) < 0) {
    throw nb::python_error();
  }
  Py_ssize_t count = PySlice_AdjustIndices(size, &start, &stop, step);
  std::vector<int64_t> positions(count);
  for (Py_ssize_t i = 0; i < count; ++i) positions[i] = start + i * step;
  return at::tensor(positions, at::kLong);
}

[[noreturn]] void Fail(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw nb::python_error();
}

// One part of an index. Lists, arrays and tensors have become a tensor, of
// positions or a mask.
struct Part {
  PyObject* object;
  at::Tensor tensor;     // undefined for ints, slices, None and ...
  int64_t consumes = 1;  // how many dimensions it takes
};

bool IsList(PyObject* object) {
  if (PyLong_Check(object) || PyUnicode_Check(object) ||
      PyBytes_Check(object)) {
    return false;
  }
  if (PyIndex_Check(object)) {
    // An array of numpy, which is a list unless it is a single number.
    nb::object ndim = nb::steal(PyObject_GetAttrString(object, "ndim"));
    if (!ndim.is_valid()) PyErr_Clear();
    return ndim.is_valid() && PyLong_AsLong(ndim.ptr()) > 0;
  }
  return PySequence_Check(object) ||
         PyObject_HasAttrString(object, "__array__");
}

Part ReadPart(PyObject* object, at::Device device) {
  Part part{object, {}};
  if (object == Py_None || object == Py_Ellipsis || PyBool_Check(object)) {
    part.consumes = 0;
  } else if (PySlice_Check(object)) {
    part.consumes = 1;
  } else if (const at::Tensor* tensor = AsTensor(object)) {
    part.tensor = *tensor;
  } else if (IsList(object)) {
    part.tensor = TensorFromObject(object, at::kCPU);
    if (part.tensor.numel() == 0 && part.tensor.scalar_type() != at::kBool) {
      part.tensor = part.tensor.to(at::kLong);
    }
  }
  if (!part.tensor.defined()) return part;
  at::ScalarType type = part.tensor.scalar_type();
  if (at::isFloatingType(type)) {
    Fail(PyExc_IndexError,
         "a list or tensor that indexes must hold integers or booleans");
  }
  bool mask = type == at::kBool || type == at::kByte;
  if (mask) part.consumes = part.tensor.dim();
  part.tensor = part.tensor.to(device, mask ? at::kBool : at::kLong);
  return part;
}

// ATen checks positions itself, except on a GPU.
at::Tensor Checked(at::Tensor index, const at::Tensor& x, int64_t dim) {
  if (!x.device().is_cpu()) {
    ops::CheckIndices("index", index, -x.size(dim), x.size(dim));
  }
  return index;
}

TensorIndex AsIndex(const Part& part, const at::Tensor& x, int64_t dim) {
  PyObject* object = part.object;
  if (object == Py_None) return at::indexing::None;
  if (object == Py_Ellipsis) return at::indexing::Ellipsis;
  if (PyBool_Check(object)) return object == Py_True;
  if (PySlice_Check(object)) {
    return AsSlice(object, dim < x.dim() ? x.size(dim) : 0);
  }
  if (part.tensor.defined()) {
    const at::Tensor& index = part.tensor;
    if (index.scalar_type() == at::kBool) return index;
    // A tensor of shape [1] picks one element, as an int does.
    if (AsTensor(object) != nullptr && index.numel() == 1 && index.dim() <= 1) {
      return index.item<int64_t>();
    }
    return Checked(index, x, dim);
  }
  if (PyIndex_Check(object)) return AsInt(object);
  Fail(PyExc_IndexError,
       std::string("cannot index a Tensor with ") + Py_TYPE(object)->tp_name);
}

// What ATen says of a bad index, with the shape that it was used on.
template <class F>
auto WithShape(const at::Tensor& x, F f) {
  try {
    return f();
  } catch (c10::Error& error) {
    error.add_context(base::Concat("indexing a Tensor of shape ", x.sizes()));
    throw;
  }
}

std::vector<TensorIndex> AsIndices(const at::Tensor& x, nb::handle index) {
  std::vector<Part> parts;
  if (PyTuple_Check(index.ptr())) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index.ptr()); ++i) {
      parts.push_back(ReadPart(PyTuple_GET_ITEM(index.ptr(), i), x.device()));
    }
  } else {
    parts.push_back(ReadPart(index.ptr(), x.device()));
  }
  int64_t consumed = 0;
  for (const Part& part : parts) consumed += part.consumes;
  if (consumed > x.dim()) {
    Fail(PyExc_IndexError, "too many indices: " + std::to_string(consumed) +
                               " for a tensor of " + std::to_string(x.dim()) +
                               " dimensions");
  }
  std::vector<TensorIndex> indices;
  int64_t dim = 0;
  for (const Part& part : parts) {
    indices.push_back(AsIndex(part, x, dim));
    dim += part.object == Py_Ellipsis ? x.dim() - consumed : part.consumes;
  }
  return indices;
}

}  // namespace

at::Tensor GetItem(const at::Tensor& x, nb::handle index) {
  auto indices = WithShape(x, [&] { return AsIndices(x, index); });
  nb::gil_scoped_release release;
  at::Tensor out =
      WithShape(x, [&] { return at::indexing::get_item(x, indices); });
  if (out.is_alias_of(x)) out = out.clone(at::MemoryFormat::Contiguous);
  return out.dim() == 0 ? out.reshape({1}) : out;
}

void SetItem(at::Tensor& x, nb::handle index, nb::handle value) {
  auto indices = WithShape(x, [&] { return AsIndices(x, index); });
  at::Tensor source;
  if (const at::Tensor* tensor = AsTensor(value)) {
    source = *tensor;
  } else {
    source = TensorFromObject(value.ptr(), x.device());
  }
  source = source.to(x.options());
  if (source.dim() == 1 && source.numel() == 1) source = source.reshape({});
  nb::gil_scoped_release release;
  WithShape(x, [&] { at::indexing::set_item(x, indices, source); });
}

}  // namespace fleet::python
