// SPDX-License-Identifier: Apache-2.0

// How operations are added to a program that is being built. The builder
// (builder.h) and the Python functions both end here.

#ifndef FLEET_PROGRAM_APPEND_H_
#define FLEET_PROGRAM_APPEND_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/program/op_def.h"
#include "fleet/program/program.h"

namespace fleet::program {

// What operations say of themselves beside their arguments, and how their
// outputs are called.
struct AppendOptions {
  int64_t role = 0;                  // the attribute op_role, where it is not 0
  std::string device;                // op_device, where it is not empty
  std::string name_scope;            // op_namescope, where it is not empty
  std::string made_at;               // the user's line, "train.cc:17"
  std::string owner;                 // the layer that outputs are named after
  std::vector<std::string> outputs;  // names of the first outputs
};

// Adds to `op` what `options` says, appends it to `block`, and infers the types
// of its outputs. An op that `registry` does not know is appended as it is.
// InvalidArgument when the shapes do not fit; the operation is then gone again.
Status AppendOperation(const OpRegistry& registry, Block& block, Operation op,
                       const AppendOptions& options);

// One call of an op: variables by input slot, and all attributes, both in the
// order of the definition.
struct OpCall {
  const OpDef& def;
  std::vector<std::vector<std::string>> inputs;
  Attrs attrs;
};

// Gives a name that occurs once and begins with `key`.
using NameMaker = std::function<std::string(const std::string& key)>;

// Appends the operation of `call` with new variables for all of its outputs,
// and returns these by slot. They are named after options.owner or else a new
// owner that begins with the op's name: fc_0.tmp_0. An attribute `seed` of 0
// becomes the program's. Errors are those of AppendOperation.
Result<Slots> AppendCall(const OpRegistry& registry, Program& program,
                         int block, OpCall call, const AppendOptions& options,
                         const NameMaker& new_name);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_APPEND_H_
