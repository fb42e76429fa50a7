// SPDX-License-Identifier: Apache-2.0
//
// One step of an update rule over any number of parameters, on the CPU. The
// memory stays the caller's: values and state are changed in place, gradients
// are only read, and nothing is allocated.

#ifndef FLEET_OPTIM_UPDATE_H_
#define FLEET_OPTIM_UPDATE_H_

#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "fleet/optim/update_rule.h"

namespace fleet::optim {

// Weight decay of one parameter. L1 and L2 are added to the gradient after
// clipping: l1 * sign(p) + l2 * p. Decoupled decay never enters the gradient:
// Lamb and Lars use it as their formulas say, the other rules shrink the value
// to (1 - lr * decoupled) * p first (AdamW).
struct Decay {
  double l1 = 0.0;
  double l2 = 0.0;
  double decoupled = 0.0;
};

// How clipping changes a gradient: g becomes g * scale, then is cut to
// [min, max]. Clipping is thus part of the update and never writes gradients.
struct Transform {
  double scale = 1.0;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

// `size` neighbouring elements of a parameter. The four kinds of memory must
// not overlap.
template <class T>
struct Slice {
  T* values;
  const T* gradient;
  std::array<T*, kMaxState> state;  // in the order of StateNames
  int64_t size;
};

// One parameter in one step. A dense gradient is one slice; a sparse one has a
// slice for each row that it names, no row twice. Lamb and Lars take their
// norms over all slices together.
template <class T>
struct Update {
  std::span<const Slice<T>> slices;
  // In the order of PowerNames; the step advances them once.
  std::array<T*, kMaxPowers> powers = {};
  double learning_rate = 0.0;
  Decay decay;
  Transform transform;
};

// Runs the rule on every update. The result does not depend on the kind of CPU,
// nor on how a parameter is cut into slices (Lamb and Lars: up to rounding of
// their norms). A NaN in a gradient reaches its value. May be called from
// several threads for parameters that differ. T is float or double.
template <class T>
void Apply(const UpdateRule& rule, std::span<const Update<T>> updates);

extern template void Apply(const UpdateRule&, std::span<const Update<float>>);
extern template void Apply(const UpdateRule&, std::span<const Update<double>>);

// For tests: the same with the instructions of one target, which this CPU must
// have. Defined in cpu_targets.h.
enum class CpuTarget;
template <class T>
void ApplyOn(CpuTarget target, const UpdateRule& rule,
             std::span<const Update<T>> updates);

extern template void ApplyOn(CpuTarget, const UpdateRule&,
                             std::span<const Update<float>>);
extern template void ApplyOn(CpuTarget, const UpdateRule&,
                             std::span<const Update<double>>);

}  // namespace fleet::optim

#endif  // FLEET_OPTIM_UPDATE_H_
