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

#include <ATen/core/Tensor.h>

#include "fleet/base/status.h"
#include "fleet/program/program.h"

namespace fleet::exec {

// One operation of a compiled program.
class ExtensionStep {
 public:
  virtual ~ExtensionStep() = default;

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
