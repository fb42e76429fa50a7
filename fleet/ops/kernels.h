// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_KERNELS_H_
#define FLEET_OPS_KERNELS_H_

#include "fleet/ops/kernel.h"

namespace fleet::ops {

// Every op that Fleet knows, with its kernels. Read-only once made.
class OpLibrary final {
 public:
  OpLibrary();
  OpLibrary(const OpLibrary&) = delete;
  OpLibrary& operator=(const OpLibrary&) = delete;

  const Op* Find(std::string_view name) const { return kernels_.Find(name); }
  std::vector<const Op*> All() const { return kernels_.All(); }
  // The definitions of all ops, also of those without kernels.
  const program::OpRegistry& definitions() const { return definitions_; }

 private:
  program::OpRegistry definitions_;
  KernelTable kernels_{definitions_};
};

// One group each, in a file of the same name; OpLibrary() calls them all.
void AddUnaryKernels(KernelTable& kernels);
void AddBinaryKernels(KernelTable& kernels);
void AddReduceKernels(KernelTable& kernels);
void AddStatKernels(KernelTable& kernels);
void AddMatmulKernels(KernelTable& kernels);
void AddLinalgKernels(KernelTable& kernels);
void AddMetricKernels(KernelTable& kernels);
void AddActivationKernels(KernelTable& kernels);
void AddConvKernels(KernelTable& kernels);
void AddPoolKernels(KernelTable& kernels);
void AddNormKernels(KernelTable& kernels);
void AddBatchNormKernels(KernelTable& kernels);
void AddEmbeddingKernels(KernelTable& kernels);
void AddDropoutKernels(KernelTable& kernels);
void AddPadKernels(KernelTable& kernels);
void AddLossKernels(KernelTable& kernels);
void AddCrossEntropyKernels(KernelTable& kernels);
void AddNceKernels(KernelTable& kernels);
void AddRnnKernels(KernelTable& kernels);
void AddSequenceKernels(KernelTable& kernels);
void AddManipulationKernels(KernelTable& kernels);
void AddIndexingKernels(KernelTable& kernels);
void AddSearchKernels(KernelTable& kernels);
void AddCreationKernels(KernelTable& kernels);
void AddRandomKernels(KernelTable& kernels);

// Forms over bare memory that stand in a file of their own, <group>_bare.cc;
// after all kernels.
void AddBinaryForms(KernelTable& kernels);
void AddMatmulForms(KernelTable& kernels);
void AddConvForms(KernelTable& kernels);
void AddPoolForms(KernelTable& kernels);
void AddCrossEntropyForms(KernelTable& kernels);
void AddViewForms(KernelTable& kernels);

}  // namespace fleet::ops

#endif  // FLEET_OPS_KERNELS_H_
