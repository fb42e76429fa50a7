// SPDX-License-Identifier: Apache-2.0
#include "status.h"

#include <cerrno>

#include <c10/util/Exception.h>

#include "fleet/ops/aten_error.h"

namespace fleet::python {
namespace {

// Made once, when the module loads, and kept as long as the process.
PyObject* data_loss_error = nullptr;

PyObject* ExceptionType(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return PyExc_ValueError;
    case StatusCode::kNotFound:
      return PyExc_KeyError;
    case StatusCode::kUnavailable:
      return PyExc_ConnectionError;
    case StatusCode::kDeadlineExceeded:
      return PyExc_TimeoutError;
    case StatusCode::kDataLoss:
      return data_loss_error;
    case StatusCode::kUnimplemented:
      return PyExc_NotImplementedError;
    default:
      return PyExc_RuntimeError;
  }
}

// Sets the Python error for an exception that came out of ATen, outside of an
// op; ops have their own way, which names them.
void TranslateAtenError(const std::exception_ptr& exception, void*) {
  PyObject* type = PyExc_ValueError;
  try {
    std::rethrow_exception(exception);
  } catch (const c10::Error& error) {
    if (dynamic_cast<const c10::IndexError*>(&error) != nullptr) {
      type = PyExc_IndexError;
    } else if (dynamic_cast<const c10::TypeError*>(&error) != nullptr) {
      type = PyExc_TypeError;
    } else if (dynamic_cast<const c10::NotImplementedError*>(&error)) {
      type = PyExc_NotImplementedError;
    }
    Status status = ops::FromException(error);
    if (status.error_number() == ENOMEM) type = PyExc_MemoryError;
    PyErr_SetString(type, status.message().c_str());
  }
}

}  // namespace

void ThrowIfError(const Status& status) {
  if (status.ok()) return;
  // The handler of a signal raised while the call waited, which ended it.
  if (PyErr_Occurred() != nullptr) throw nanobind::python_error();
  const char* message = status.message().c_str();
  if (status.error_number() == ENOMEM) {
    PyErr_SetString(PyExc_MemoryError, message);
  } else if (status.error_number() != 0) {
    // OSError picks the subclass that belongs to the errno.
    nanobind::object error = nanobind::steal(PyObject_CallFunction(
        PyExc_OSError, "is", status.error_number(), message));
    if (error.is_valid()) {
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())),
                      error.ptr());
    }
  } else {
    PyErr_SetString(ExceptionType(status.code()), message);
  }
  throw nanobind::python_error();
}

void BindStatus(nanobind::module_& m) {
  data_loss_error = PyErr_NewExceptionWithDoc("paddle.DataLossError",
                                              "A file or message is damaged.",
                                              PyExc_RuntimeError, nullptr);
  if (data_loss_error == nullptr) throw nanobind::python_error();
  m.attr("DataLossError") = nanobind::borrow(data_loss_error);
  nanobind::register_exception_translator(TranslateAtenError);
}

}  // namespace fleet::python
