// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/base/check.h"
#include "fleet/exec/executor.h"
#include "fleet/exec/scope.h"

#include "array.h"
#include "extensions.h"
#include "job.h"
#include "program.h"
#include "py_func.h"
#include "status.h"
#include "tensor.h"

namespace fleet::python {
namespace {

template <class... Parts>
[[noreturn]] void Fail(PyObject* type, const Parts&... parts) {
  PyErr_SetString(type, base::Concat(parts...).c_str());
  throw nb::python_error();
}

// ---- feeds

// The memory of an array, for as long as a run takes.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (held_) PyBuffer_Release(&view_);
  }

  // The array as a tensor over the same memory; none if it has no plain layout
  // or an element type that tensors do not have.
  std::optional<at::Tensor> View(PyObject* object) {
    if (PyObject_GetBuffer(object, &view_, PyBUF_RECORDS_RO) != 0) {
      PyErr_Clear();
      return std::nullopt;
    }
    held_ = true;
    const std::optional<at::ScalarType> type = TypeOf(view_.format);
    if (!type || !PyBuffer_IsContiguous(&view_, 'C') ||
        view_.itemsize != static_cast<Py_ssize_t>(c10::elementSize(*type))) {
      return std::nullopt;
    }
    return at::from_blob(view_.buf, at::IntArrayRef(Dims(), view_.ndim),
                         at::TensorOptions(*type));
  }

 private:
  const int64_t* Dims() const {
    static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
    return reinterpret_cast<const int64_t*>(view_.shape);
  }

  static std::optional<at::ScalarType> TypeOf(const char* format) {
    if (format == nullptr || std::strlen(format) != 1) return std::nullopt;
    switch (*format) {
      case 'f':
        return at::kFloat;
      case 'd':
        return at::kDouble;
      case 'l':
      case 'q':
        return at::kLong;
      case 'i':
        return at::kInt;
      case 'h':
        return at::kShort;
      case 'b':
        return at::kChar;
      case 'B':
        return at::kByte;
      case '?':
        return at::kBool;
      case 'e':
        return at::kHalf;
      default:
        return std::nullopt;
    }
  }

  Py_buffer view_{};
  bool held_ = false;
};

// ---- the executor

class PyExecutor {
 public:
  PyExecutor(const std::string& device, bool planning, bool fusing)
      : executor_(
            Library(),
            ops::Context{at::Device(device), DefaultContext().default_dtype},
            {.planning = planning, .fusing = fusing}),
        device_(device) {
    AddExtensions(executor_, device_);
  }
  PyExecutor(const PyExecutor&) = delete;
  PyExecutor& operator=(const PyExecutor&) = delete;

  // `feed` is a dict of names and values or None, `fetch` a list of variables
  // or names.
  nb::object Run(const ProgramRef& program, nb::handle feed, nb::handle fetch,
                 const std::shared_ptr<exec::Scope>& scope, bool return_numpy) {
    std::vector<exec::Feed> feeds;
    std::vector<Buffer> buffers;
    if (!feed.is_none()) {
      const size_t count = PyDict_Size(feed.ptr());
      feeds.reserve(count);
      buffers = std::vector<Buffer>(count);
      PyObject *key, *value;
      Py_ssize_t position = 0;
      while (PyDict_Next(feed.ptr(), &position, &key, &value)) {
        std::string name = NameOf(key);
        at::Tensor tensor =
            FeedValue(*program->graph, name, value, buffers[feeds.size()]);
        feeds.push_back({std::move(name), std::move(tensor)});
      }
    }
    std::vector<std::string> fetches;
    if (!fetch.is_none()) {
      for (nb::handle item : fetch) fetches.push_back(NameOf(item));
    }
    auto run = [&]() -> Result<std::vector<at::Tensor>> {
      nb::gil_scoped_release release;
      RETURN_IF_ERROR(TheJobs().Prepare(*program->graph));
      return executor_.Run(*program->graph, *scope, feeds, fetches);
    };
    std::vector<at::Tensor> values = ValueOrThrow(run());
    nb::list result;
    for (at::Tensor& value : values) {
      result.append(return_numpy ? ArrayFromTensor(value, false)
                                 : nb::cast(Tensor{std::move(value)}));
    }
    return result;
  }

  uint64_t num_replays() const { return executor_.num_replays(); }

 private:
  static std::string NameOf(nb::handle object) {
    if (PyUnicode_Check(object.ptr())) return PyUnicode_AsUTF8(object.ptr());
    if (const Variable* variable = AsVariable(object)) return variable->name;
    if (nb::hasattr(object, "name")) {
      return nb::cast<std::string>(object.attr("name"));
    }
    Fail(PyExc_TypeError,
         "feed and fetch_list take Variables or their names, but got ",
         Py_TYPE(object.ptr())->tp_name);
  }

  at::Tensor FeedValue(const program::Program& graph, const std::string& name,
                       PyObject* value, Buffer& buffer) const {
    if (const at::Tensor* tensor = AsTensor(value)) {
      if (!tensor->defined()) {
        Fail(PyExc_TypeError, "feed ", name,
             ": a Variable has no value; feed an array or a Tensor");
      }
      return OnDevice(tensor->detach());
    }
    if (std::optional<at::Tensor> view = buffer.View(value)) {
      return OnDevice(*view);
    }
    // Numbers and lists take the type that the program wants.
    at::Tensor made = TensorFromObject(value, device_);
    const program::Variable* variable = graph.block(0).Find(name);
    const bool typed = nb::hasattr(nb::handle(value), "dtype");
    if (!typed && variable != nullptr &&
        variable->type.dtype != program::DType::kNone) {
      made = made.to(ops::ToScalarType(variable->type.dtype));
    }
    return made;
  }

  // What is on the CPU is moved by the run, which knows best where to.
  at::Tensor OnDevice(at::Tensor tensor) const {
    return tensor.device() == device_ || tensor.device().is_cpu()
               ? tensor
               : tensor.to(device_);
  }

  exec::Executor executor_;
  const at::Device device_;
};

using ScopeRef = std::shared_ptr<exec::Scope>;

}  // namespace

void AddExtensions(exec::Executor& executor, at::Device device) {
  AddPythonOps(executor, device);
  TheJobs().AddTo(executor);
}

void BindExecutor(nb::module_& m) {
  nb::class_<exec::Scope>(m, "Scope", nb::dynamic_attr(),
                          nb::is_weak_referenceable(),
                          "Tensors by name that live longer than a step.")
      .def("__init__", [](exec::Scope* self) { new (self) exec::Scope(); })
      .def("_find",
           [](exec::Scope& s, const std::string& name) -> std::optional<bool> {
             const at::Tensor* tensor = s.Find(name);
             if (tensor == nullptr) return std::nullopt;
             return tensor->defined();
           })
      .def("_make",
           [](exec::Scope& s, const std::string& name) { s.Get(name); })
      .def(
          "_get",
          [](exec::Scope& s, const std::string& name) -> std::optional<Tensor> {
            const at::Tensor* tensor = s.Find(name);
            if (tensor == nullptr || !tensor->defined()) return std::nullopt;
            return Tensor{*tensor, name, true};
          })
      // Keeps the memory of a tensor that is there and has the same type.
      .def("_set",
           [](exec::Scope& s, const std::string& name, const Tensor& value) {
             at::Tensor* found = s.Find(name);
             at::Tensor& tensor = found == nullptr ? s.Get(name) : *found;
             if (tensor.defined() && tensor.sizes() == value.value.sizes() &&
                 tensor.scalar_type() == value.value.scalar_type() &&
                 tensor.device() == value.value.device()) {
               tensor.copy_(value.value.detach());
             } else {
               tensor = value.value.detach().clone();
             }
           })
      // One number into the tensor that is there; false if there is none.
      .def("_set_number",
           [](exec::Scope& s, const std::string& name, double value) {
             at::Tensor* found = s.Find(name);
             if (found == nullptr || !found->defined()) return false;
             found->fill_(value);
             return true;
           })
      .def("_names", &exec::Scope::names)
      .def("_erase",
           [](exec::Scope& s, const std::string& name) { s.Erase(name); })
      .def(
          "_new_scope",
          [](exec::Scope& s) -> exec::Scope* { return &s.AddInner(); },
          nb::rv_policy::reference_internal)
      .def("drop_kids", &exec::Scope::DropInner);
  nb::class_<PyExecutor>(m, "Executor")
      // Without `planning` every kernel is called on its own, without `fusing`
      // a plan runs every operation by itself: to compare.
      .def(nb::init<const std::string&, bool, bool>(), nb::arg("device"),
           nb::arg("planning") = true, nb::arg("fusing") = true)
      .def("run", &PyExecutor::Run, nb::arg("program"), nb::arg("feed").none(),
           nb::arg("fetch").none(), nb::arg("scope"), nb::arg("return_numpy"))
      .def_prop_ro("num_replays", &PyExecutor::num_replays);
}

}  // namespace fleet::python
