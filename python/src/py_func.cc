// SPDX-License-Identifier: Apache-2.0
#include "py_func.h"

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/exec/extension.h"

#include "tensor.h"

namespace fleet::python {
namespace {

// A Python object that may be dropped by a thread without the GIL.
using Shared = std::shared_ptr<nb::object>;

Shared Share(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* p) {
            nb::gil_scoped_acquire gil;
            delete p;
          }};
}

// What prepares operations, by type. Lives as long as the process.
std::map<std::string, Shared>& Makers() {
  static auto* makers = new std::map<std::string, Shared>();
  return *makers;
}

// Leaves the exception of Python to whoever turns the status into one.
Status Raised(nb::python_error& error, const std::string& made_at) {
  std::string text = error.what();
  if (!made_at.empty()) {
    const std::string note =
        "(in the operation that was made at " + made_at + ")";
    if (nb::hasattr(error.value(), "add_note")) {
      error.value().attr("add_note")(note);
    }
  }
  error.restore();
  return InvalidArgument(std::move(text));
}

class PythonStep final : public exec::ExtensionStep {
 public:
  PythonStep(Shared function, std::string made_at, at::Device device)
      : function_(std::move(function)),
        made_at_(std::move(made_at)),
        device_(device) {}

  Status Run(std::span<const at::Tensor> inputs,
             std::span<at::Tensor> outputs) override {
    nb::gil_scoped_acquire gil;
    try {
      nb::list arguments;
      for (const at::Tensor& input : inputs) {
        arguments.append(input.defined() ? nb::cast(Tensor{input.detach()})
                                         : nb::none());
      }
      nb::object results = (*function_)(arguments);
      size_t next = 0;
      for (nb::handle result : results) {
        if (next == outputs.size()) break;
        const at::Tensor* value = AsTensor(result);
        if (value != nullptr) Put(*value, outputs[next]);
        ++next;
      }
      return OkStatus();
    } catch (nb::python_error& error) {
      return Raised(error, made_at_);
    }
  }

 private:
  // Into the memory that the variable has, where it fits.
  void Put(const at::Tensor& value, at::Tensor& output) const {
    if (output.defined() && output.sizes() == value.sizes() &&
        output.scalar_type() == value.scalar_type()) {
      output.copy_(value);
    } else {
      output = value.detach().to(device_, value.scalar_type(), false, true);
    }
  }

  const Shared function_;
  const std::string made_at_;
  const at::Device device_;
};

class PythonExtension final : public exec::Extension {
 public:
  PythonExtension(Shared maker, at::Device device)
      : maker_(std::move(maker)), device_(device) {}

  Result<std::unique_ptr<exec::ExtensionStep>> Prepare(
      const program::Operation& op) override {
    nb::gil_scoped_acquire gil;
    try {
      nb::dict attrs;
      for (const auto& [name, attr] : op.attrs) {
        std::visit([&](const auto& v) { attrs[name.c_str()] = nb::cast(v); },
                   attr.value);
      }
      nb::object function =
          (*maker_)(attrs, Names(op.inputs), Names(op.outputs));
      return std::make_unique<PythonStep>(Share(std::move(function)),
                                          op.made_at, device_);
    } catch (nb::python_error& error) {
      return Raised(error, op.made_at);
    }
  }

 private:
  static nb::list Names(const program::Slots& slots) {
    nb::list names;
    for (const program::Slot& slot : slots) {
      for (const std::string& name : slot.arguments) {
        names.append(nb::cast(name));
      }
    }
    return names;
  }

  const Shared maker_;
  const at::Device device_;
};

}  // namespace

void AddPythonOps(exec::Executor& executor, at::Device device) {
  for (const auto& [type, maker] : Makers()) {
    executor.AddExtension(type,
                          std::make_shared<PythonExtension>(maker, device));
  }
}

void BindPyFunc(nb::module_& m) {
  m.def("add_python_op", [](const std::string& type, nb::object prepare) {
    Makers()[type] = Share(std::move(prepare));
  });
}

}  // namespace fleet::python
