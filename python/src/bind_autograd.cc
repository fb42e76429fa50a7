// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>
#include <torch/csrc/autograd/autograd.h>

#include "fleet/ops/aten_error.h"
#include "fleet/ops/eager/backward.h"

#include "status.h"
#include "tensor.h"

namespace fleet::python {
namespace {

using MaybeTensors = std::vector<std::optional<Tensor>>;

std::vector<at::Tensor> Values(const std::vector<Tensor>& tensors) {
  std::vector<at::Tensor> values;
  for (const Tensor& t : tensors) values.push_back(t.value);
  return values;
}

// The gradient that backward starts from: ones where none is given, as Paddle
// does also for tensors of many elements.
std::vector<at::Tensor> StartGrads(const std::vector<Tensor>& outputs,
                                   const MaybeTensors& grads) {
  std::vector<at::Tensor> starts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    bool given = i < grads.size() && grads[i].has_value();
    starts.push_back(given ? grads[i]->value
                           : at::ones_like(outputs[i].value.detach()));
  }
  return starts;
}

// Runs `f` without the GIL. A failure on the way back is a RuntimeError, as the
// inputs were fine on the way forth.
template <class F>
auto RunBackward(F f) {
  std::optional<Status> failure;
  try {
    nb::gil_scoped_release release;
    return f();
  } catch (const c10::Error& error) {
    failure = ops::FromException(error);
  }
  if (failure->error_number() == 0) {
    failure = FailedPrecondition(failure->message());
  }
  ThrowIfError(*failure);
  throw std::logic_error("a failure is never OK");
}

void Backward(const std::vector<Tensor>& outputs, const MaybeTensors& grads,
              bool retain_graph) {
  RunBackward([&] {
    ops::Backward(Values(outputs), StartGrads(outputs, grads), retain_graph);
  });
}

MaybeTensors Grad(const std::vector<Tensor>& outputs,
                  const std::vector<Tensor>& inputs, const MaybeTensors& grads,
                  bool retain_graph, bool create_graph, bool allow_unused) {
  std::vector<at::Tensor> found = RunBackward([&] {
    return torch::autograd::grad(Values(outputs), Values(inputs),
                                 StartGrads(outputs, grads), retain_graph,
                                 create_graph, allow_unused);
  });
  MaybeTensors result;
  for (at::Tensor& grad : found) {
    if (grad.defined()) {
      result.push_back(Tensor{std::move(grad)});
    } else {
      result.push_back(std::nullopt);
    }
  }
  return result;
}

// Owns a Python object that backward may drop on any thread.
std::shared_ptr<nb::object> Shared(nb::object object) {
  return std::shared_ptr<nb::object>(new nb::object(std::move(object)),
                                     [](nb::object* p) {
                                       nb::gil_scoped_acquire gil;
                                       delete p;
                                     });
}

unsigned RegisterHook(Tensor& self, nb::object hook) {
  auto callable = Shared(std::move(hook));
  return self.value.register_hook([callable](at::Tensor grad) -> at::Tensor {
    nb::gil_scoped_acquire gil;
    nb::object result = (*callable)(Tensor{grad});
    if (result.is_none()) return grad;
    const at::Tensor* tensor = AsTensor(result);
    if (tensor == nullptr) {
      PyErr_Format(PyExc_TypeError,
                   "a hook must return a Tensor or None, but returned %s",
                   Py_TYPE(result.ptr())->tp_name);
      throw nb::python_error();
    }
    return *tensor;
  });
}

}  // namespace

void BindAutograd(nb::module_& m) {
  m.def("backward", Backward, nb::arg("outputs"), nb::arg("grads"),
        nb::arg("retain_graph"));
  m.def("grad", Grad, nb::arg("outputs"), nb::arg("inputs"),
        nb::arg("grad_outputs"), nb::arg("retain_graph"),
        nb::arg("create_graph"), nb::arg("allow_unused"));
  m.def("set_grad_enabled", [](bool on) { at::GradMode::set_enabled(on); });
  m.def("is_grad_enabled", [] { return at::GradMode::is_enabled(); });
  m.def("register_hook", RegisterHook);
  m.def("remove_hook",
        [](Tensor& self, unsigned id) { self.value.remove_hook(id); });
  m.def("retain_grad", [](Tensor& self) { self.value.retain_grad(); });
}

}  // namespace fleet::python
