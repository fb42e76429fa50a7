// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PROGRAM_DEFINE_OPS_H_
#define FLEET_PROGRAM_DEFINE_OPS_H_

#include "fleet/program/op_def.h"

namespace fleet::program {

// Defines every op that Fleet knows.
void DefineAllOps(OpRegistry& ops);

// One group each; DefineAllOps() is the list of them.
void DefineMathOps(OpRegistry& ops);
void DefineStatOps(OpRegistry& ops);
void DefineMatmulOps(OpRegistry& ops);
void DefineLinalgOps(OpRegistry& ops);
void DefineMetricOps(OpRegistry& ops);
void DefineNnOps(OpRegistry& ops);
void DefineConvOps(OpRegistry& ops);
void DefineLossOps(OpRegistry& ops);
void DefineRnnOps(OpRegistry& ops);
void DefineManipulationOps(OpRegistry& ops);
void DefineIndexingOps(OpRegistry& ops);
void DefineSearchOps(OpRegistry& ops);
void DefineCreationOps(OpRegistry& ops);
void DefineControlOps(OpRegistry& ops);
void DefineSequenceOps(OpRegistry& ops);
void DefineOptimizerOps(OpRegistry& ops);
void DefineCollectiveOps(OpRegistry& ops);
void DefineParameterServerOps(OpRegistry& ops);
void DefinePythonOps(OpRegistry& ops);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_DEFINE_OPS_H_
