// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PROGRAM_OP_DEFINER_H_
#define FLEET_PROGRAM_OP_DEFINER_H_

#include <string>
#include <string_view>
#include <vector>

#include "fleet/program/op_def.h"

namespace fleet::program {

// How Python users call an op. The build makes functions and layers of it:
// python/src/generate_functions.cc says how it is written.
struct PythonFace {
  std::string op;
  std::string names;  // "tensor.math.exp(x, name); exp_"
  std::string help;
};

// Fills a registry, and lists the faces of what it defines where somebody wants
// them: the generator does, a process that trains does not.
class OpDefiner {
 public:
  explicit OpDefiner(OpRegistry& ops, std::vector<PythonFace>* faces = nullptr)
      : ops_(ops), faces_(faces) {}

  // As those of OpRegistry.
  OpDefiner& Define(std::string_view schema, ShapeRule shape,
                    std::string_view grad = "");
  OpDefiner& DefineExternal(std::string_view schema, ShapeRule shape,
                            std::string_view grad = "");

  // A face of the op that was defined last, which may have several.
  OpDefiner& Python(std::string_view names, std::string_view help);

 private:
  OpRegistry& ops_;
  std::vector<PythonFace>* const faces_;
  std::string last_;
};

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_OP_DEFINER_H_
