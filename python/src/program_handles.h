// SPDX-License-Identifier: Apache-2.0

// Blocks and operations of programs as Python holds them: where they are, so
// that they stay right while the program changes.

#ifndef FLEET_PYTHON_SRC_PROGRAM_HANDLES_H_
#define FLEET_PYTHON_SRC_PROGRAM_HANDLES_H_

#include <cstddef>
#include <cstdint>

#include <nanobind/nanobind.h>

#include "fleet/base/check.h"
#include "fleet/program/program.h"

#include "program.h"

namespace fleet::python {

// Raises an exception of Python's `type`.
template <class... Parts>
[[noreturn]] void Fail(PyObject* type, const Parts&... parts) {
  PyErr_SetString(type, base::Concat(parts...).c_str());
  throw nb::python_error();
}

// IndexError when the program has no such block.
struct StaticBlock {
  ProgramRef program;
  int index;

  program::Block& get() const {
    if (static_cast<size_t>(index) >= program->graph->num_blocks()) {
      Fail(PyExc_IndexError, "the program has no block ", index);
    }
    return program->graph->block(index);
  }
};

// KeyError when it is gone from the program.
struct StaticOperator {
  ProgramRef program;
  int block;
  int64_t id;

  size_t position() const {
    const program::Block& where = program->graph->block(block);
    for (size_t i = 0; i < where.num_ops(); ++i) {
      if (where.op(i).id == id) return i;
    }
    Fail(PyExc_KeyError, "the operator is no longer in the program");
  }
  program::Operation& get() const {
    return program->graph->block(block).op(position());
  }
};

// Bound by BindProgram.
void BindBlock(nb::module_& m);
void BindOperator(nb::module_& m);

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_PROGRAM_HANDLES_H_
