// SPDX-License-Identifier: Apache-2.0

// Operations whose forward and backward are written in Python.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "fleet/ops/eager/node.h"

#include "tensor.h"

namespace fleet::python {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

[[noreturn]] void Fail(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw nb::python_error();
}

// One recorded call. `backward` takes the list of saved tensors, then a
// gradient for each output.
class PyLayerNode final : public torch::autograd::Node {
 public:
  PyLayerNode(std::string name, nb::object backward, bool materialize)
      : name_(std::move(name)),
        backward_(new nb::object(std::move(backward)),
                  [](nb::object* p) {
                    nb::gil_scoped_acquire gil;
                    delete p;
                  }),
        materialize_(materialize) {}

  std::string name() const override { return name_; }

  void Connect(const std::vector<Tensor>& inputs) {
    for (const Tensor& input : inputs) {
      add_next_edge(torch::autograd::impl::gradient_edge(input.value));
    }
  }

  // What the layer keeps: `tensors`, of which some may be `originals`, the
  // outputs as Python knew them. For those the recorded twin is kept, in a way
  // that makes no cycle.
  void Save(const std::vector<Tensor>& tensors,
            const std::vector<Tensor>& originals,
            const std::vector<Tensor>& recorded) {
    for (const Tensor& tensor : tensors) {
      bool is_output = false;
      for (size_t i = 0; i < originals.size() && !is_output; ++i) {
        is_output = originals[i].value.is_same(tensor.value);
        if (is_output) saved_.emplace_back(recorded[i].value, true);
      }
      if (!is_output) saved_.emplace_back(tensor.value, false);
    }
  }

  void release_variables() override {
    for (SavedVariable& saved : saved_) saved.reset_data();
    released_ = true;
  }

 protected:
  variable_list apply(variable_list&& grads) override {
    nb::gil_scoped_acquire gil;
    if (released_) {
      Fail(PyExc_RuntimeError,
           name_ +
               ": backward a second time, but what it needs was freed after "
               "the first; call backward(retain_graph=True) then");
    }
    nb::list saved;
    for (SavedVariable& one : saved_) {
      saved.append(nb::cast(Tensor{one.unpack(getptr())}));
    }
    nb::list arguments;
    arguments.append(saved);
    for (size_t i = 0; i < grads.size(); ++i) {
      at::Tensor grad = grads[i];
      if (!grad.defined() && materialize_) {
        grad = input_metadata(i).zeros_like();
      }
      arguments.append(grad.defined() ? nb::cast(Tensor{grad}) : nb::none());
    }
    return Gradients((*backward_)(*nb::tuple(arguments)));
  }

 private:
  // What Python returned: nothing, a tensor, or one for each input.
  variable_list Gradients(const nb::object& result) const {
    nb::list items;
    if (nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result)) {
      for (nb::handle item : result) items.append(item);
    } else {
      items.append(result);
    }
    if (items.size() != num_outputs()) {
      Fail(PyExc_ValueError, name_ + ": backward returned " +
                                 std::to_string(items.size()) +
                                 " gradients, but forward took " +
                                 std::to_string(num_outputs()) + " tensors");
    }
    variable_list grads;
    for (nb::handle item : items) {
      const at::Tensor* tensor = AsTensor(item);
      if (tensor == nullptr && !item.is_none()) {
        Fail(PyExc_TypeError,
             name_ + ": backward must return Tensors or None, but returned " +
                 Py_TYPE(item.ptr())->tp_name);
      }
      grads.push_back(tensor == nullptr ? at::Tensor() : *tensor);
    }
    return grads;
  }

  std::string name_;
  std::shared_ptr<nb::object> backward_;
  bool materialize_;
  std::vector<SavedVariable> saved_;
  bool released_ = false;
};

// The outputs as tensors that remember the layer. `flows` says through which of
// them gradients do.
std::vector<Tensor> RecordPyLayer(const std::string& name, nb::object backward,
                                  const std::vector<Tensor>& inputs,
                                  const std::vector<Tensor>& outputs,
                                  const std::vector<bool>& flows,
                                  const std::vector<Tensor>& saved,
                                  bool materialize) {
  ops::NodePtr self =
      ops::MakeNode<PyLayerNode>(name, std::move(backward), materialize);
  auto& node = static_cast<PyLayerNode&>(*self);
  node.Connect(inputs);
  std::vector<Tensor> recorded;
  for (size_t i = 0; i < outputs.size(); ++i) {
    at::Tensor value = outputs[i].value.detach();
    // Every output has its place among the gradients, but only those that flow
    // lead to the node.
    uint32_t nr = node.add_input_metadata(value);
    if (flows[i]) torch::autograd::impl::set_gradient_edge(value, {self, nr});
    recorded.push_back(Tensor{std::move(value)});
  }
  node.Save(saved, outputs, recorded);
  return recorded;
}

}  // namespace

void BindPyLayer(nb::module_& m) {
  m.def("record_py_layer", RecordPyLayer, nb::arg("name"), nb::arg("backward"),
        nb::arg("inputs"), nb::arg("outputs"), nb::arg("flows"),
        nb::arg("saved"), nb::arg("materialize"));
}

}  // namespace fleet::python
