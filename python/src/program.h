// SPDX-License-Identifier: Apache-2.0

// Programs as Python sees them: handles on what fleet/program holds, and the
// place where the next operation goes.

#ifndef FLEET_PYTHON_SRC_PROGRAM_H_
#define FLEET_PYTHON_SRC_PROGRAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "fleet/ops/kernels.h"
#include "fleet/program/append.h"
#include "fleet/program/program.h"

#include "tensor.h"

namespace fleet::python {

// What `paddle.static.Program` holds.
struct StaticProgram {
  std::shared_ptr<program::Program> graph =
      std::make_shared<program::Program>();
  int current_block = 0;  // where operations are appended

  program::Block& block() { return graph->block(current_block); }
};
using ProgramRef = std::shared_ptr<StaticProgram>;

// A variable of a program, by its name. It is a Tensor without a value, so that
// every function that takes a Tensor takes it too; `Tensor::name` is its name.
struct Variable : Tensor {
  Variable(ProgramRef owner, int index, std::string variable_name);
  ~Variable();
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

  // KeyError when it is gone from the program.
  program::Variable& get() const;

  const ProgramRef program;
  const int block;
};

struct StaticParameter : Variable {
  using Variable::Variable;
};

// All ops that Fleet knows.
const ops::OpLibrary& Library();

// The handle of the variable `name` as seen from block `block`: the same object
// while one exists. KeyError when there is no such variable.
nb::object WrapVariable(const ProgramRef& program, int block,
                        const std::string& name);

// The Variable inside `object`, or nullptr.
const Variable* AsVariable(nb::handle object);

// Where and how operations are added while a program is built.
struct Building : program::AppendOptions {
  bool on = false;  // functions build programs instead of computing
  ProgramRef main;
  ProgramRef startup;
  nb::object generate;  // unique_name.generate
  std::string package;  // the folder of the package, for made_at

  // What operations that are added now say, with the user's line.
  program::AppendOptions options() const;
};
Building& TheBuilding();

// The user's line that is being run, "train.py:17".
std::string UserLine();

// A unique name that begins with `key`.
std::string NewName(const std::string& key);

// Adds what Building says to `op`, appends it to `block` of `program` and
// infers the types of its outputs. The program stays as it was when that fails.
void AppendOperation(StaticProgram& program, int block,
                     program::Operation operation);

// The name of a variable of the current block with the value of `tensor`.
std::string AddConstant(const at::Tensor& tensor);

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_PROGRAM_H_
