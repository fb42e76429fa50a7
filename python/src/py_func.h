// SPDX-License-Identifier: Apache-2.0

// Operations of programs that Python carries out: py_func, print.

#ifndef FLEET_PYTHON_SRC_PY_FUNC_H_
#define FLEET_PYTHON_SRC_PY_FUNC_H_

#include <nanobind/nanobind.h>

#include "fleet/exec/executor.h"

namespace fleet::python {

// Gives `executor`, which runs on `device`, the types of operations that
// add_python_op() was told of.
void AddPythonOps(exec::Executor& executor, at::Device device);

// add_python_op(type, prepare): from now on new executors run operations of
// `type` by Python. prepare(attrs, inputs, outputs) gets attributes and names
// of variables when a program is compiled, and returns a function: it takes
// the list of input Tensors, whose memory it may use only until it returns,
// and returns a list of Tensors, one for each output, or None for an output
// that nobody wants.
void BindPyFunc(nanobind::module_& m);

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_PY_FUNC_H_
