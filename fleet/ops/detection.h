// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_DETECTION_H_
#define FLEET_OPS_DETECTION_H_

#include "fleet/ops/kernel.h"

namespace fleet::ops {

// The ops of models that find objects in images, in files of these names.
void AddDeformableConvKernels(KernelTable& kernels);
void AddPriorBoxKernels(KernelTable& kernels);

}  // namespace fleet::ops

#endif  // FLEET_OPS_DETECTION_H_
