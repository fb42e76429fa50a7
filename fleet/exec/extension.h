// SPDX-License-Identifier: Apache-2.0

// Operations that need more than the kernels of this process: collectives,
// calls into Python, printing. Whoever has what they need gives the executor an
// Extension for each type of operation (Executor::AddExtension).

#ifndef FLEET_EXEC_EXTENSION_H_
#define FLEET_EXEC_EXTENSION_H_

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/program/program.h"

namespace fleet::exec {

// One operation of a compiled program.
class ExtensionStep {
 public:
  virtual ~ExtensionStep() = default;

  // Where the inputs should live: for each of them, in order, a contiguous
  // tensor of that type and shape, or an undefined one where it does not
  // matter; an empty list when none does. Asked when memory is planned. The
  // executor has a value computed there if it can; otherwise Run() gets it in
  // other memory. Steps may share a home if each writes there only in Run():
  // it is then given to values that do not live at the same time.
  virtual Result<std::vector<at::Tensor>> Homes(
      std::span<const program::TensorType> /*inputs*/) {
    return std::vector<at::Tensor>();
  }

  // All inputs and outputs of the operation, flat, in the order in which it
  // lists them. On entry an output is undefined, or the value that the variable
  // has: writing into that keeps its memory. On return every output that
  // somebody reads is defined. An error gets the operation's name and the
  // user's line from the executor. Exceptions of LibTorch may leave it.
  virtual Status Run(std::span<const at::Tensor> inputs,
                     std::span<at::Tensor> outputs) = 0;
};

class Extension {
 public:
  virtual ~Extension() = default;

  // Called once when a program is compiled. The step may outlive `op`, and is
  // run by one thread at a time, once per run of the program, in the order of
  // the program.
  virtual Result<std::unique_ptr<ExtensionStep>> Prepare(
      const program::Operation& op) = 0;
};

// By type of operation.
using Extensions =
    std::map<std::string, std::shared_ptr<Extension>, std::less<>>;

}  // namespace fleet::exec

#endif  // FLEET_EXEC_EXTENSION_H_
