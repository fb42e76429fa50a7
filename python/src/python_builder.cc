// SPDX-License-Identifier: Apache-2.0
#include "python_builder.h"

#include "program_handles.h"

namespace fleet::python {

program::Value PythonBuilder::ValueOf(nb::handle object) {
  const Variable* variable = AsVariable(object);
  if (variable == nullptr) {
    Fail(PyExc_TypeError, "expected a Variable, but got ",
         Py_TYPE(object.ptr())->tp_name);
  }
  const program::Value value = builder_.Find(variable->name);
  ThrowIfError(builder_.status());
  return value;
}

}  // namespace fleet::python
