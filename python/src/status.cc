// SPDX-License-Identifier: Apache-2.0
#include "status.h"

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

}  // namespace

void ThrowIfError(const Status& status) {
  if (status.ok()) return;
  const char* message = status.message().c_str();
  if (status.error_number() != 0) {
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
}

}  // namespace fleet::python
