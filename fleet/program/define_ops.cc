// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/define_ops.h"

#include "fleet/program/define_crf.h"
#include "fleet/program/define_detection.h"

namespace fleet::program {

void DefineAllOps(OpRegistry& registry, std::vector<PythonFace>* faces) {
  OpDefiner ops(registry, faces);
  DefineMathOps(ops);
  DefineStatOps(ops);
  DefineMatmulOps(ops);
  DefineLinalgOps(ops);
  DefineMetricOps(ops);
  DefineNnOps(ops);
  DefineConvOps(ops);
  DefineLossOps(ops);
  DefineRnnOps(ops);
  DefineManipulationOps(ops);
  DefineIndexingOps(ops);
  DefineSearchOps(ops);
  DefineCreationOps(ops);
  DefineControlOps(ops);
  DefineSequenceOps(ops);
  DefineCrfOps(ops);
  DefineDetectionOps(ops);
  DefineOptimizerOps(ops);
  DefineCollectiveOps(ops);
  DefineParameterServerOps(ops);
  DefinePythonOps(ops);
}

void AddAllPrecisions(Precisions& listed) {
  AddMathPrecisions(listed);
  AddStatPrecisions(listed);
  AddMatmulPrecisions(listed);
  AddLinalgPrecisions(listed);
  AddNnPrecisions(listed);
  AddConvPrecisions(listed);
  AddLossPrecisions(listed);
  AddManipulationPrecisions(listed);
  AddIndexingPrecisions(listed);
  AddSearchPrecisions(listed);
  AddCreationPrecisions(listed);
}

}  // namespace fleet::program
