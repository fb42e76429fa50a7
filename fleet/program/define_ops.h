// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PROGRAM_DEFINE_OPS_H_
#define FLEET_PROGRAM_DEFINE_OPS_H_

#include <vector>

#include "fleet/program/op_def.h"
#include "fleet/program/op_definer.h"
#include "fleet/program/precision.h"

namespace fleet::program {

// Defines every op that Fleet knows. `faces` gets how Python calls them.
void DefineAllOps(OpRegistry& ops, std::vector<PythonFace>* faces = nullptr);

// One group each; DefineAllOps() is the list of them.
void DefineMathOps(OpDefiner& ops);
void DefineStatOps(OpDefiner& ops);
void DefineMatmulOps(OpDefiner& ops);
void DefineLinalgOps(OpDefiner& ops);
void DefineMetricOps(OpDefiner& ops);
void DefineNnOps(OpDefiner& ops);
void DefineConvOps(OpDefiner& ops);
void DefineLossOps(OpDefiner& ops);
void DefineRnnOps(OpDefiner& ops);
void DefineManipulationOps(OpDefiner& ops);
void DefineIndexingOps(OpDefiner& ops);
void DefineSearchOps(OpDefiner& ops);
void DefineCreationOps(OpDefiner& ops);
void DefineControlOps(OpDefiner& ops);
void DefineSequenceOps(OpDefiner& ops);
void DefineOptimizerOps(OpDefiner& ops);
void DefineCollectiveOps(OpDefiner& ops);
void DefineParameterServerOps(OpDefiner& ops);
void DefinePythonOps(OpDefiner& ops);

// Says what every op does in mixed precision.
void AddAllPrecisions(Precisions& listed);

// Groups that have listed ops; each stands beside its definitions.
void AddMathPrecisions(Precisions& listed);
void AddStatPrecisions(Precisions& listed);
void AddMatmulPrecisions(Precisions& listed);
void AddLinalgPrecisions(Precisions& listed);
void AddNnPrecisions(Precisions& listed);
void AddConvPrecisions(Precisions& listed);
void AddLossPrecisions(Precisions& listed);
void AddManipulationPrecisions(Precisions& listed);
void AddIndexingPrecisions(Precisions& listed);
void AddSearchPrecisions(Precisions& listed);
void AddCreationPrecisions(Precisions& listed);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_DEFINE_OPS_H_
