// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_OPS_CRF_H_
#define FLEET_OPS_CRF_H_

#include "fleet/ops/kernel.h"

namespace fleet::ops {

// linear_chain_crf and crf_decoding.
void AddCrfKernels(KernelTable& kernels);

}  // namespace fleet::ops

#endif  // FLEET_OPS_CRF_H_
