// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/kernels.h"

#include "fleet/base/check.h"
#include "fleet/ops/crf.h"
#include "fleet/ops/detection.h"
#include "fleet/program/define_ops.h"

namespace fleet::ops {

OpLibrary::OpLibrary() {
  program::DefineAllOps(definitions_);
  AddUnaryKernels(kernels_);
  AddBinaryKernels(kernels_);
  AddReduceKernels(kernels_);
  AddStatKernels(kernels_);
  AddMatmulKernels(kernels_);
  AddLinalgKernels(kernels_);
  AddMetricKernels(kernels_);
  AddActivationKernels(kernels_);
  AddConvKernels(kernels_);
  AddPoolKernels(kernels_);
  AddNormKernels(kernels_);
  AddBatchNormKernels(kernels_);
  AddEmbeddingKernels(kernels_);
  AddDropoutKernels(kernels_);
  AddPadKernels(kernels_);
  AddLossKernels(kernels_);
  AddCrossEntropyKernels(kernels_);
  AddNceKernels(kernels_);
  AddRnnKernels(kernels_);
  AddSequenceKernels(kernels_);
  AddCrfKernels(kernels_);
  AddDeformableConvKernels(kernels_);
  AddPriorBoxKernels(kernels_);
  AddManipulationKernels(kernels_);
  AddIndexingKernels(kernels_);
  AddSearchKernels(kernels_);
  AddCreationKernels(kernels_);
  AddRandomKernels(kernels_);
  AddBinaryForms(kernels_);
  AddMatmulForms(kernels_);
  AddConvForms(kernels_);
  AddPoolForms(kernels_);
  AddCrossEntropyForms(kernels_);
  AddViewForms(kernels_);
  for (const program::OpDef* def : definitions_.All()) {
    FLEET_CHECK(def->external || kernels_.Find(def->name) != nullptr,
                "op without kernel: ", def->name);
  }
}

}  // namespace fleet::ops
