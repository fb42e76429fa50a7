// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "fleet/ops/update/parameter_update.h"

#include "array.h"
#include "status.h"
#include "tensor.h"

namespace fleet::python {
namespace {

using ops::Clip;
using ops::ParameterUpdater;
using optim::UpdateRule;

const at::Tensor& TensorOf(nb::handle object) {
  const at::Tensor* tensor = AsTensor(object);
  if (tensor == nullptr) {
    std::string text = base::Concat("optimizer: expected a Tensor, but got ",
                                    Py_TYPE(object.ptr())->tp_name);
    PyErr_SetString(PyExc_TypeError, text.c_str());
    throw nb::python_error();
  }
  return *tensor;
}

// A ParameterUpdater over paddle.Tensors. It looks at each step whether one of
// them has come to hold another at::Tensor.
class Updater {
 public:
  Updater(UpdateRule rule, Clip clip, bool foreach)
      : updater_(std::move(rule), clip,
                 foreach ? ops::UpdateBackend::kForeach
                         : ops::UpdateBackend::kByDevice) {}

  void Add(nb::object parameter, std::string name, double learning_rate,
           double l1, double l2, double decoupled, bool clipped,
           double rescale) {
    ThrowIfError(
        updater_.Add(TensorOf(parameter), {.name = std::move(name),
                                           .learning_rate = learning_rate,
                                           .decay = {l1, l2, decoupled},
                                           .clipped = clipped,
                                           .rescale = rescale}));
    tensors_.push_back(nb::inst_ptr<Tensor>(parameter));
    objects_.push_back(std::move(parameter));
  }

  void Step(double learning_rate) {
    Follow();
    Status status;
    {
      nb::gil_scoped_release release;
      status = updater_.Step(learning_rate);
    }
    ThrowIfError(status);
  }

  void StepWith(double learning_rate, nb::list gradients) {
    Follow();
    std::vector<at::Tensor> tensors;
    for (nb::handle gradient : gradients) {
      tensors.push_back(gradient.is_none() ? at::Tensor() : TensorOf(gradient));
    }
    Status status;
    {
      nb::gil_scoped_release release;
      status = updater_.Step(learning_rate, tensors);
    }
    ThrowIfError(status);
  }

  void ClearGradients(bool set_to_zero) {
    Follow();
    updater_.ClearGradients(set_to_zero);
  }

  // None before the first step.
  nb::object State(size_t parameter, size_t name) const {
    Check(parameter, name);
    const at::Tensor& state = updater_.state(parameter, name);
    if (!state.defined()) return nb::none();
    return nb::cast(Tensor{.value = state, .persistable = true});
  }

  void SetState(size_t parameter, size_t name, nb::handle value) {
    Check(parameter, name);
    Follow();
    const at::Tensor* tensor = AsTensor(value);
    ThrowIfError(updater_.SetState(
        parameter, name,
        tensor != nullptr ? *tensor : TensorFromObject(value, at::kCPU)));
  }

  std::vector<std::string_view> state_names() const {
    return {updater_.state_names().begin(), updater_.state_names().end()};
  }

 private:
  void Check(size_t parameter, size_t name) const {
    if (parameter >= updater_.size() || name >= updater_.state_names().size()) {
      throw nb::index_error("optimizer: no such state");
    }
  }

  void Follow() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const at::Tensor& value = tensors_[i]->value;
      if (!value.is_same(updater_.parameter(i))) {
        ThrowIfError(updater_.Replace(i, value));
      }
    }
  }

  ParameterUpdater updater_;
  std::vector<Tensor*> tensors_;
  std::vector<nb::object> objects_;  // keeps tensors_ alive
};

void BindRules(nb::module_& m) {
  using nb::arg;
  nb::class_<optim::Sgd>(m, "Sgd").def(nb::init<>());
  nb::class_<optim::Momentum>(m, "Momentum")
      .def(nb::init<double, bool>(), arg("mu"), arg("nesterov"));
  nb::class_<optim::Adam>(m, "Adam").def(
      nb::init<double, double, double, bool>(), arg("beta1"), arg("beta2"),
      arg("epsilon"), arg("lazy"));
  nb::class_<optim::Adagrad>(m, "Adagrad")
      .def(nb::init<double, double>(), arg("epsilon"), arg("initial"));
  nb::class_<optim::Adamax>(m, "Adamax")
      .def(nb::init<double, double, double>(), arg("beta1"), arg("beta2"),
           arg("epsilon"));
  nb::class_<optim::RmsProp>(m, "RmsProp")
      .def(nb::init<double, double, double, bool>(), arg("rho"), arg("epsilon"),
           arg("momentum"), arg("centered"));
  nb::class_<optim::Adadelta>(m, "Adadelta")
      .def(nb::init<double, double>(), arg("rho"), arg("epsilon"));
  nb::class_<optim::Lamb>(m, "Lamb").def(
      nb::init<double, double, double, bool>(), arg("beta1"), arg("beta2"),
      arg("epsilon"), arg("always_adapt"));
  nb::class_<optim::Lars>(m, "Lars").def(nb::init<double, double, double>(),
                                         arg("mu"), arg("coefficient"),
                                         arg("epsilon"));
  nb::class_<optim::Ftrl>(m, "Ftrl").def(nb::init<double, double, double>(),
                                         arg("l1"), arg("l2"), arg("power"));
}

}  // namespace

void BindOptim(nb::module_& parent) {
  using nb::arg;
  nb::module_ m = parent.def_submodule(
      "optim", "Update rules and the updater that runs them on parameters.");
  BindRules(m);
  nb::class_<Clip>(m, "Clip")
      .def(nb::init<>())
      .def_static("by_value",
                  [](double min, double max) {
                    return Clip{.kind = Clip::kValue, .min = min, .max = max};
                  })
      .def_static("by_norm",
                  [](double max_norm) {
                    return Clip{.kind = Clip::kNorm, .max_norm = max_norm};
                  })
      .def_static("by_global_norm", [](double max_norm) {
        return Clip{.kind = Clip::kGlobalNorm, .max_norm = max_norm};
      });
  m.def(
      "clip_gradients",
      [](const Clip& clip, nb::list gradients) {
        std::vector<at::Tensor> tensors;
        for (nb::handle gradient : gradients) {
          tensors.push_back(TensorOf(gradient));
        }
        nb::list clipped;
        for (at::Tensor& t : ValueOrThrow(ops::ClipGradients(clip, tensors))) {
          clipped.append(Tensor{.value = std::move(t)});
        }
        return clipped;
      },
      arg("clip"), arg("gradients"));
  m.def(
      "unscale_gradients",
      [](nb::list parameters, double scale) {
        std::vector<at::Tensor> tensors;
        for (nb::handle parameter : parameters) {
          tensors.push_back(TensorOf(parameter));
        }
        return ValueOrThrow(ops::UnscaleGradients(tensors, scale));
      },
      arg("parameters"), arg("scale"),
      "Divides their gradients in place; whether all were finite.");
  nb::class_<Updater>(m, "Updater")
      .def(nb::init<UpdateRule, Clip, bool>(), arg("rule"), arg("clip"),
           arg("foreach") = false)
      .def("add", &Updater::Add, arg("parameter"), arg("name"),
           arg("learning_rate"), arg("l1"), arg("l2"), arg("decoupled"),
           arg("clipped"), arg("rescale"))
      .def("step", &Updater::Step, arg("learning_rate"))
      .def("step_with", &Updater::StepWith, arg("learning_rate"),
           arg("gradients"))
      .def("clear_gradients", &Updater::ClearGradients, arg("set_to_zero"))
      .def("state", &Updater::State, arg("parameter"), arg("name"))
      .def("set_state", &Updater::SetState, arg("parameter"), arg("name"),
           arg("value"))
      .def_prop_ro("state_names", &Updater::state_names);
}

}  // namespace fleet::python
