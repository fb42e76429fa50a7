// SPDX-License-Identifier: Apache-2.0
#include "array.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/DLConvertor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <nanobind/ndarray.h>

#include "tensor.h"

namespace fleet::python {
namespace {

using Array = nb::ndarray<nb::ro>;

[[noreturn]] void Fail(const std::string& text) {
  PyErr_SetString(PyExc_TypeError, text.c_str());
  throw nb::python_error();
}

at::ScalarType ScalarTypeOf(const nb::dlpack::dtype& dtype) {
  using Code = nb::dlpack::dtype_code;
  auto code = static_cast<Code>(dtype.code);
  switch (code) {
    case Code::Bool:
      return at::kBool;
    case Code::Int:
      if (dtype.bits == 8) return at::kChar;
      if (dtype.bits == 16) return at::kShort;
      if (dtype.bits == 32) return at::kInt;
      if (dtype.bits == 64) return at::kLong;
      break;
    case Code::UInt:
      if (dtype.bits == 8) return at::kByte;
      if (dtype.bits == 16) return at::kUInt16;
      if (dtype.bits == 32) return at::kUInt32;
      if (dtype.bits == 64) return at::kUInt64;
      break;
    case Code::Float:
      if (dtype.bits == 16) return at::kHalf;
      if (dtype.bits == 32) return at::kFloat;
      if (dtype.bits == 64) return at::kDouble;
      break;
    case Code::Complex:
      if (dtype.bits == 64) return at::kComplexFloat;
      if (dtype.bits == 128) return at::kComplexDouble;
      break;
    default:
      break;
  }
  Fail("an array of this element type cannot become a Tensor");
}

nb::dlpack::dtype DlpackTypeOf(at::ScalarType type) {
  using Code = nb::dlpack::dtype_code;
  auto make = [](Code code, uint8_t bits) {
    return nb::dlpack::dtype{static_cast<uint8_t>(code), bits, 1};
  };
  auto bits = static_cast<uint8_t>(c10::elementSize(type) * 8);
  if (type == at::kBool) return make(Code::Bool, 8);
  if (type == at::kBFloat16) return make(Code::UInt, 16);
  if (c10::isComplexType(type)) return make(Code::Complex, bits);
  if (c10::isFloatingType(type)) return make(Code::Float, bits);
  if (type == at::kByte || type == at::kUInt16 || type == at::kUInt32 ||
      type == at::kUInt64) {
    return make(Code::UInt, bits);
  }
  return make(Code::Int, bits);
}

at::Tensor Copy(const Array& array, at::Device device) {
  std::vector<int64_t> shape(array.ndim()), strides(array.ndim());
  bool empty = false;
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape[i] = array.shape(i);
    strides[i] = array.stride(i);
    empty |= shape[i] == 0;
  }
  auto options = at::TensorOptions(ScalarTypeOf(array.dtype()));
  if (empty) return at::empty(shape, options.device(device));
  // from_blob takes no negative strides; nanobind hands such arrays over as
  // they are, so the origin moves to the lowest address and the axes are
  // flipped.
  auto* data = static_cast<const char*>(array.data());
  std::vector<int64_t> flipped;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (strides[i] < 0) {
      data += strides[i] * (shape[i] - 1) * int64_t(options.dtype().itemsize());
      strides[i] = -strides[i];
      flipped.push_back(i);
    }
  }
  at::Tensor view =
      at::from_blob(const_cast<char*>(data), shape, strides, options);
  if (!flipped.empty()) view = view.flip(flipped);
  at::Tensor copy = view.clone(at::MemoryFormat::Contiguous);
  return device.is_cpu() ? copy : copy.to(device);
}

nb::object Numpy(const char* function, nb::handle argument) {
  return nb::module_::import_("numpy").attr(function)(argument);
}

// Lists that hold Tensors are stacked; all others go through numpy.
bool HoldsTensor(nb::handle object) {
  if (AsTensor(object) != nullptr) return true;
  if (!PyList_Check(object.ptr()) && !PyTuple_Check(object.ptr())) return false;
  Py_ssize_t n = PySequence_Size(object.ptr());
  return n > 0 && HoldsTensor(nb::steal(PySequence_GetItem(object.ptr(), 0)));
}

}  // namespace

at::Tensor TensorFromObject(nb::handle object, at::Device device) {
  if (const at::Tensor* tensor = AsTensor(object)) {
    return tensor->detach().clone().to(device);
  }
  if (HoldsTensor(object)) {
    std::vector<at::Tensor> parts;
    for (nb::handle item : object) {
      at::Tensor part = TensorFromObject(item, device);
      parts.push_back(part.numel() == 1 ? part.reshape({}) : part);
    }
    for (const at::Tensor& part : parts) {
      if (part.sizes() != parts[0].sizes()) {
        std::string text = base::Concat(
            "a list of Tensors becomes one only if their shapes "
            "are equal, but they are ",
            parts[0].sizes(), " and ", part.sizes());
        PyErr_SetString(PyExc_ValueError, text.c_str());
        throw nb::python_error();
      }
    }
    return at::stack(parts);
  }
  nb::object array = Numpy("asarray", object);
  Array view;
  if (!nb::try_cast<Array>(array, view)) {
    // Fields such as strings, objects and ragged lists have no element type.
    PyErr_Clear();
    nb::object dtype = array.attr("dtype");
    nb::str name = nb::steal<nb::str>(PyObject_Str(dtype.ptr()));
    Fail(std::string("cannot make a Tensor from data of numpy type ") +
         name.c_str());
  }
  // A view into a byte buffer may begin anywhere, and complex numbers are read
  // by instructions that need whole elements at multiples of their size.
  const auto address = reinterpret_cast<uintptr_t>(view.data());
  if (address % c10::elementSize(ScalarTypeOf(view.dtype())) != 0) {
    array = Numpy("copy", array);
    view = nb::cast<Array>(array);
  }
  return Copy(view, device);
}

nb::object ArrayFromTensor(const at::Tensor& tensor, bool copy) {
  at::Tensor host = tensor;
  if (!tensor.is_cpu() || tensor.requires_grad() || tensor.is_conj() ||
      tensor.is_neg() || tensor.is_sparse()) {
    host = tensor.detach().cpu().resolve_conj().resolve_neg();
    if (tensor.is_sparse()) host = host.to_dense();
  }
  if (copy && !tensor.is_sparse() && host.is_alias_of(tensor)) {
    host = host.clone(at::MemoryFormat::Contiguous);
  }
  std::vector<size_t> shape(host.sizes().begin(), host.sizes().end());
  std::vector<int64_t> strides(host.strides().begin(), host.strides().end());
  auto owner = std::make_unique<at::Tensor>(host);
  nb::capsule capsule(owner.get(), [](void* p) noexcept {
    std::unique_ptr<at::Tensor>(static_cast<at::Tensor*>(p));
  });
  void* data = owner.release()->data_ptr();
  return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(),
                                         capsule, strides.data(),
                                         DlpackTypeOf(host.scalar_type())));
}

nb::object ToDlpack(const at::Tensor& tensor) {
  DLManagedTensor* managed = at::toDLPack(tensor.detach());
  return nb::steal(PyCapsule_New(managed, "dltensor", [](PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, "dltensor")) return;  // consumed
    auto* tensor = static_cast<DLManagedTensor*>(
        PyCapsule_GetPointer(capsule, "dltensor"));
    tensor->deleter(tensor);
  }));
}

at::Tensor FromDlpack(nb::handle object) {
  nb::object capsule = nb::borrow(object);
  if (!PyCapsule_CheckExact(object.ptr())) {
    capsule = object.attr("__dlpack__")();
  }
  auto* managed = static_cast<DLManagedTensor*>(
      PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (managed == nullptr) throw nb::python_error();
  at::Tensor tensor = at::fromDLPack(managed);
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  return tensor;
}

}  // namespace fleet::python
