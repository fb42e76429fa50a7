// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <ATen/Context.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "array.h"
#include "indexing.h"
#include "tensor.h"

namespace fleet::python {
namespace {

using program::DType;

template <class... Parts>
[[noreturn]] void Fail(PyObject* type, const Parts&... parts) {
  PyErr_SetString(type, base::Concat(parts...).c_str());
  throw nb::python_error();
}

std::string UniqueName() {
  static std::atomic<int64_t> counter{0};
  return "generated_tensor_" + std::to_string(counter++);
}

nb::bytes GetRngState(const std::string& device) {
  at::Tensor state =
      at::globalContext().defaultGenerator(at::Device(device)).get_state();
  return nb::bytes(static_cast<const char*>(state.data_ptr()), state.nbytes());
}

void SetRngState(const std::string& device, nb::bytes state) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(state.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), state.data(), state.size());
  at::Generator generator =
      at::globalContext().defaultGenerator(at::Device(device));
  generator.set_state(bytes);
}

at::Device ParseDevice(const std::string& name) { return at::Device(name); }

std::string DeviceName(const at::Device& device) {
  if (device.is_cpu()) return "cpu";
  return "cuda:" + std::to_string(device.has_index() ? device.index() : 0);
}

void SetStopGradient(Tensor& self, nb::handle flag) {
  // bool, int and numpy's own bool; a string would always be true.
  if (PyUnicode_Check(flag.ptr()) || flag.is_none()) {
    Fail(PyExc_TypeError, "stop_gradient must be a bool, but got ",
         Py_TYPE(flag.ptr())->tp_name);
  }
  int truth = PyObject_IsTrue(flag.ptr());
  if (truth < 0) throw nb::python_error();
  bool stop = truth != 0;
  at::Tensor& value = self.value;
  if (!value.is_floating_point() && !value.is_complex()) return;
  if (value.requires_grad() == !stop) return;
  if (value.is_leaf()) {
    value.set_requires_grad(!stop);
  } else if (stop) {
    value = value.detach();
  }
}

void SetGrad(Tensor& self, std::optional<Tensor> grad) {
  if (grad && grad->value.sizes() != self.value.sizes()) {
    Fail(PyExc_ValueError, "grad: the tensor has shape ", self.value.sizes(),
         " but the gradient has ", grad->value.sizes());
  }
  self.value.mutable_grad() = grad ? grad->value : at::Tensor();
}

// Overwrites what the tensor holds, at the place where it lies.
void SetValue(Tensor& self, nb::handle object) {
  at::Tensor source = TensorFromObject(object, self.value.device());
  at::Tensor& value = self.value;
  if (source.sizes() != value.sizes() &&
      !(source.numel() == 1 && value.numel() == 1)) {
    Fail(PyExc_ValueError,
         "set_value: ", self.name.empty() ? "the tensor" : self.name,
         " has shape ", value.sizes(), " but the value has ", source.sizes());
  }
  PrepareInPlace(self);
  at::NoGradGuard guard;
  value.copy_(source.reshape(value.sizes()));
}

void SetItemInPlace(Tensor& self, nb::handle index, nb::handle value) {
  if (self.value.is_leaf() && self.value.requires_grad() &&
      at::GradMode::is_enabled()) {
    Fail(PyExc_ValueError,
         "a leaf Tensor that asks for its gradient cannot be changed in place; "
         "wrap the assignment in paddle.no_grad()");
  }
  PrepareInPlace(self);
  SetItem(self.value, index, value);
}

at::Tensor Number(nb::handle value, at::ScalarType type) {
  at::Scalar scalar;
  if (PyLong_Check(value.ptr())) {
    int64_t whole = PyLong_AsLongLong(value.ptr());
    if (whole == -1 && PyErr_Occurred()) throw nb::python_error();
    scalar = whole;
  } else if (PyComplex_Check(value.ptr())) {
    scalar = c10::complex<double>(PyComplex_RealAsDouble(value.ptr()),
                                  PyComplex_ImagAsDouble(value.ptr()));
  } else {
    scalar = nb::cast<double>(value);
  }
  return at::scalar_tensor(scalar, type);
}

int NumGpus() {
  return at::hasCUDA()
             ? static_cast<int>(at::detail::getCUDAHooks().deviceCount())
             : 0;
}

// Where there are GPUs, new tensors live on the one that the launcher chose,
// and without a launcher on the first.
ops::Context FirstContext() {
  ops::Context context;
  const int count = NumGpus();
  if (count == 0) return context;
  const char* chosen = std::getenv("FLAGS_selected_gpus");
  const bool launched = std::getenv("PADDLE_TRAINERS_NUM") != nullptr;
  if (chosen == nullptr && launched) return context;
  const int gpu = chosen == nullptr ? 0 : std::atoi(chosen);
  // One that is not there is an error when the job begins.
  context.device = at::Device(
      at::kCUDA, static_cast<c10::DeviceIndex>(gpu < count ? gpu : 0));
  return context;
}

}  // namespace

ops::Context& DefaultContext() {
  static ops::Context context = FirstContext();
  return context;
}

const at::Tensor* AsTensor(nb::handle object) {
  if (!nb::isinstance<Tensor>(object)) return nullptr;
  return &nb::inst_ptr<Tensor>(object)->value;
}

void PrepareInPlace(Tensor& tensor) {
  bool fixed = tensor.persistable ||
               (tensor.value.is_leaf() && tensor.value.requires_grad());
  bool shared = tensor.value.storage().use_count() > 1 ||
                at::has_internal_overlap(tensor.value) == at::MemOverlap::Yes;
  if (!fixed && shared) {
    tensor.value = tensor.value.clone();
  }
}

void BindTensor(nb::module_& m) {
  nb::enum_<DType>(m, "DType")
      .value("none", DType::kNone)
      .value("bool", DType::kBool)
      .value("int16", DType::kInt16)
      .value("int32", DType::kInt32)
      .value("int64", DType::kInt64)
      .value("float16", DType::kFloat16)
      .value("float32", DType::kFloat32)
      .value("float64", DType::kFloat64)
      .value("uint8", DType::kUint8)
      .value("int8", DType::kInt8)
      .value("bfloat16", DType::kBfloat16)
      .value("complex64", DType::kComplex64)
      .value("complex128", DType::kComplex128);

  nb::class_<Tensor>(m, "Tensor", nb::dynamic_attr(),
                     nb::is_weak_referenceable())
      .def_prop_rw(
          "name",
          [](Tensor& t) {
            if (t.name.empty()) t.name = UniqueName();
            return t.name;
          },
          [](Tensor& t, std::string name) { t.name = std::move(name); })
      .def_rw("persistable", &Tensor::persistable)
      .def_prop_ro("shape",
                   [](const Tensor& t) { return t.value.sizes().vec(); })
      .def_prop_ro("ndim", [](const Tensor& t) { return t.value.dim(); })
      .def_prop_ro("size", [](const Tensor& t) { return t.value.numel(); })
      .def_prop_ro("strides",
                   [](const Tensor& t) { return t.value.strides().vec(); })
      .def_prop_ro(
          "dtype",
          [](const Tensor& t) { return ops::ToDType(t.value.scalar_type()); })
      .def_prop_ro("_device",
                   [](const Tensor& t) { return DeviceName(t.value.device()); })
      .def_prop_ro("inplace_version",
                   [](const Tensor& t) { return t.value._version(); })
      .def_prop_ro("is_leaf", [](const Tensor& t) { return t.value.is_leaf(); })
      .def_prop_rw(
          "stop_gradient",
          [](const Tensor& t) { return !t.value.requires_grad(); },
          SetStopGradient)
      .def_prop_rw(
          "grad",
          [](const Tensor& t) -> std::optional<Tensor> {
            const at::Tensor& grad = t.value.grad();
            if (!grad.defined()) return std::nullopt;
            return Tensor{grad};
          },
          SetGrad, nb::for_setter(nb::arg("grad").none()))
      .def(
          "_zero_grad",
          [](Tensor& t, bool set_to_zero) {
            at::Tensor& grad = t.value.mutable_grad();
            if (!grad.defined()) return;
            if (set_to_zero) {
              grad = grad.detach();
              grad.zero_();
            } else {
              grad.reset();
            }
          },
          nb::arg("set_to_zero"))
      .def(
          "numpy",
          [](const Tensor& t) { return ArrayFromTensor(t.value, true); },
          "The values as a numpy array with memory of its own.")
      .def("_numpy_view",
           [](const Tensor& t) { return ArrayFromTensor(t.value, false); })
      .def(
          "__dlpack__",
          [](const Tensor& t, nb::kwargs) { return ToDlpack(t.value); },
          "The memory itself, by the DLPack protocol.")
      .def("__dlpack_device__",
           [](const Tensor& t) {
             bool cpu = t.value.device().is_cpu();
             return nb::make_tuple(cpu ? 1 : 2,
                                   cpu ? 0 : t.value.device().index());
           })
      .def("_item",
           [](const Tensor& t) -> nb::object {
             at::Scalar value = t.value.item();
             if (value.isBoolean()) return nb::cast(value.toBool());
             if (value.isIntegral(false)) return nb::cast(value.toLong());
             if (value.isComplex()) {
               auto z = value.toComplexDouble();
               return nb::steal(PyComplex_FromDoubles(z.real(), z.imag()));
             }
             return nb::cast(value.toDouble());
           })
      .def(
          "detach", [](const Tensor& t) { return Tensor{t.value.detach()}; },
          "The same values, outside of the graph. The memory is shared until "
          "one of "
          "the two is written in place.")
      .def("_to",
           [](const Tensor& t, const std::string& device, bool blocking) {
             at::Tensor moved = t.value.to(ParseDevice(device), !blocking);
             return Tensor{std::move(moved), t.name, t.persistable};
           })
      .def("_move",
           [](Tensor& t, const std::string& device, DType dtype) {
             // Keeps the identity of a parameter while its data go elsewhere.
             at::NoGradGuard guard;
             auto options = t.value.options().device(ParseDevice(device));
             if (dtype != DType::kNone) {
               options = options.dtype(ops::ToScalarType(dtype));
             }
             t.value.set_data(t.value.detach().to(options));
           })
      .def("set_value", SetValue, nb::arg("value"),
           "Overwrites the values in place.")
      .def(
          "_share_data",
          [](Tensor& t, const Tensor& other) { t.value.set_data(other.value); })
      .def("_assign_in_place",
           [](Tensor& t, const Tensor& other) { t.value = other.value; })
      .def("_prepare_in_place", PrepareInPlace)
      .def("_data_ptr",
           [](const Tensor& t) {
             return reinterpret_cast<uintptr_t>(t.value.data_ptr());
           })
      .def("is_contiguous",
           [](const Tensor& t) { return t.value.is_contiguous(); })
      .def("is_sparse", [](const Tensor& t) { return t.value.is_sparse(); })
      .def("__getitem__",
           [](const Tensor& t, nb::handle index) {
             return Tensor{GetItem(t.value, index)};
           })
      .def("__setitem__", SetItemInPlace);
  nb::class_<EagerTensor, Tensor>(m, "EagerTensor", nb::dynamic_attr(),
                                  nb::is_weak_referenceable())
      .def("__init__", [](EagerTensor* self, const Tensor& tensor) {
        new (self) EagerTensor{tensor};
      });

  m.def(
      "from_object",
      [](nb::handle object) {
        return Tensor{TensorFromObject(object, DefaultContext().device)};
      },
      "A tensor on the current device with a copy of the data.");
  m.def(
      "scalar",
      [](nb::handle value, DType dtype) {
        return Tensor{Number(value, ops::ToScalarType(dtype))};
      },
      "A number as an operand: no dimensions, on the CPU, where any device "
      "takes it from.");
  m.def("from_dlpack",
        [](nb::handle object) { return Tensor{FromDlpack(object)}; });
  m.def("set_device", [](const std::string& name) {
    DefaultContext().device = ParseDevice(name);
  });
  m.def("get_device", [] { return DeviceName(DefaultContext().device); });
  m.def("num_cuda_devices", NumGpus);
  m.def("set_default_dtype",
        [](DType dtype) { DefaultContext().default_dtype = dtype; });
  m.def("get_default_dtype", [] { return DefaultContext().default_dtype; });
  m.def("cuda_version", [] {
    return at::hasCUDA() ? at::detail::getCUDAHooks().versionCUDART() : 0L;
  });
  m.def("cudnn_version", [] {
    return at::hasCUDA() ? at::detail::getCUDAHooks().versionCuDNN() : 0L;
  });
  m.def("allow_tf32", [](bool on) {
    at::globalContext().setAllowTF32CuDNN(on);
    at::globalContext().setAllowTF32CuBLAS(on);
  });
  m.def("get_rng_state", GetRngState);
  m.def("set_rng_state", SetRngState);
  m.def("manual_seed", [](uint64_t seed) { at::manual_seed(seed); });
  m.def("set_num_threads", [](int n) { at::set_num_threads(n); });
  m.def("get_num_threads", [] { return at::get_num_threads(); });
}

}  // namespace fleet::python
