// SPDX-License-Identifier: Apache-2.0

// The learning rate of a table, step by step. Steps are counted where the table
// is, so a schedule advances on the server.

#ifndef FLEET_TABLE_LEARNING_RATE_H_
#define FLEET_TABLE_LEARNING_RATE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "fleet/base/status.h"

namespace fleet::table {

// In the formulas, `base` is LearningRate::base and t is step / decay_steps,
// rounded down when `staircase`.

struct ConstantRate {};

// base * rate^t
struct ExponentialDecay {
  double rate = 1.0;
  double decay_steps = 1.0;
  bool staircase = false;
};

// base * exp(-rate * t)
struct NaturalExpDecay {
  double rate = 0.0;
  double decay_steps = 1.0;
  bool staircase = false;
};

// base / (1 + rate * t)
struct InverseTimeDecay {
  double rate = 0.0;
  double decay_steps = 1.0;
  bool staircase = false;
};

// base * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), where a step
// of 0 counts as 1 in the first argument of min.
struct NoamDecay {
  double d_model = 1.0;
  double warmup_steps = 1.0;
};

// (base - end) * (1 - min(step, decay_steps) / decay_steps)^power + end. With
// `cycle` decay_steps becomes twice, three times... as long when it is over.
struct PolynomialDecay {
  double decay_steps = 1.0;
  double end = 0.0001;
  double power = 1.0;
  bool cycle = false;
};

// end + (base - end) * (1 + cos(pi * t / length)) / 2: half a wave down, and up
// again. With `growth` it begins anew when it is down, and is so many times as
// long.
struct CosineDecay {
  double length = 1.0;
  double end = 0.0;
  double decay_steps = 1.0;
  bool staircase = false;
  double growth = 0.0;
};

// Up from base to max while t grows by `up`, down while it grows by `down`, and
// so on. The height is multiplied by per_cycle after each, and by per_period^t.
struct CyclicRate {
  double max = 0.0;
  double up = 1.0;
  double down = 1.0;
  double per_cycle = 1.0;
  double per_period = 1.0;
  double decay_steps = 1.0;
  bool staircase = false;
};

// values[i] for the first i with step < boundaries[i], else the last value,
// whatever `base` is. One more value than boundaries, which ascend.
struct PiecewiseDecay {
  std::vector<uint64_t> boundaries;
  std::vector<double> values;
};

// `base`, which somebody outside tells now and then (TellRate).
struct ToldRate {
  std::string name;  // by which it is told
  // Earlier rates: before step until[i], and from until[i - 1] on, it was
  // rates[i].
  std::vector<uint64_t> until;
  std::vector<double> rates;
};

using RateSchedule =
    std::variant<ConstantRate, ExponentialDecay, NaturalExpDecay,
                 InverseTimeDecay, NoamDecay, PolynomialDecay, PiecewiseDecay,
                 CosineDecay, CyclicRate, ToldRate>;

// A straight line from `start` to `end` in the first `steps` steps, by stairs
// of `stair` steps; then the schedule, whose step 0 is step `begin`.
struct RateWarmup {
  uint64_t steps = 0;  // 0: none
  double start = 0.0;
  double end = 0.0;
  uint64_t stair = 1;
  uint64_t begin = 0;
};

struct LearningRate {
  double base = 0.01;
  RateSchedule schedule;
  // The factor of this parameter alone (ParamAttr's learning_rate).
  double factor = 1.0;
  // The number that the schedule gives the table's step 0.
  uint64_t first_step = 0;
  RateWarmup warmup = {};
};

// InvalidArgument for periods that are not positive, boundaries that do not fit
// their values, and a schedule that begins behind its warm-up.
Status CheckLearningRate(const LearningRate& rate);

// From `step` on the rate of that name is `base`; false where `rate` is none
// that is told, or has another name. Earlier ones are kept where `remember`,
// for steps that are made up for later.
bool TellRate(LearningRate& rate, const std::string& name, double base,
              uint64_t step, bool remember);
// A told rate is what it is now for all steps, since these count anew.
void ForgetToldRates(LearningRate& rate);

// The rate of a step; the first step is 0. Pure.
double RateOfStep(const LearningRate& rate, uint64_t step);

}  // namespace fleet::table

#endif  // FLEET_TABLE_LEARNING_RATE_H_
