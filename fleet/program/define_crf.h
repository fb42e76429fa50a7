// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PROGRAM_DEFINE_CRF_H_
#define FLEET_PROGRAM_DEFINE_CRF_H_

#include "fleet/program/op_definer.h"

namespace fleet::program {

// linear_chain_crf and crf_decoding.
void DefineCrfOps(OpDefiner& ops);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_DEFINE_CRF_H_
