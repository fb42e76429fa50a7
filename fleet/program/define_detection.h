// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PROGRAM_DEFINE_DETECTION_H_
#define FLEET_PROGRAM_DEFINE_DETECTION_H_

#include "fleet/program/op_definer.h"

namespace fleet::program {

// Ops of models that find objects in images: deformable_conv and its first
// version, prior_box and density_prior_box.
void DefineDetectionOps(OpDefiner& ops);

// The aspect ratios that prior_box makes of the ones it is given: 1 first, none
// twice, each followed by its inverse with `flip`.
std::vector<double> ExpandAspectRatios(const std::vector<double>& given,
                                       bool flip);

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_DEFINE_DETECTION_H_
