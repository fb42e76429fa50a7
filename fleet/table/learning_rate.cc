// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace fleet::table {
namespace {

template <typename Decay>
double Periods(const Decay& decay, double step) {
  const double t = step / decay.decay_steps;
  return decay.staircase ? std::floor(t) : t;
}

struct Rate {
  double base;
  uint64_t step;

  double operator()(const ConstantRate&) const { return base; }
  double operator()(const ExponentialDecay& d) const {
    return base * std::pow(d.rate, Periods(d, static_cast<double>(step)));
  }
  double operator()(const NaturalExpDecay& d) const {
    return base * std::exp(-d.rate * Periods(d, static_cast<double>(step)));
  }
  double operator()(const InverseTimeDecay& d) const {
    return base / (1.0 + d.rate * Periods(d, static_cast<double>(step)));
  }
  double operator()(const NoamDecay& d) const {
    const auto n = static_cast<double>(step);
    const double falling = step == 0 ? 1.0 : std::pow(n, -0.5);
    const double rising = n * std::pow(d.warmup_steps, -1.5);
    return base * std::pow(d.d_model, -0.5) * std::min(falling, rising);
  }
  double operator()(const PolynomialDecay& d) const {
    const double done =
        std::min(static_cast<double>(step), d.decay_steps) / d.decay_steps;
    return (base - d.end) * std::pow(1.0 - done, d.power) + d.end;
  }
  double operator()(const PiecewiseDecay& d) const {
    const auto it =
        std::upper_bound(d.boundaries.begin(), d.boundaries.end(), step);
    return d.values[static_cast<size_t>(it - d.boundaries.begin())];
  }
};

struct Checker {
  Status operator()(const ConstantRate&) const { return OkStatus(); }
  Status operator()(const ExponentialDecay& d) const {
    return CheckPeriod(d.decay_steps);
  }
  Status operator()(const NaturalExpDecay& d) const {
    return CheckPeriod(d.decay_steps);
  }
  Status operator()(const InverseTimeDecay& d) const {
    return CheckPeriod(d.decay_steps);
  }
  Status operator()(const NoamDecay& d) const {
    if (d.d_model > 0 && d.warmup_steps > 0) return OkStatus();
    return InvalidArgument("Noam schedule: d_model ", d.d_model,
                           ", warmup_steps ", d.warmup_steps);
  }
  Status operator()(const PolynomialDecay& d) const {
    return CheckPeriod(d.decay_steps);
  }
  Status operator()(const PiecewiseDecay& d) const {
    if (d.values.size() != d.boundaries.size() + 1) {
      return InvalidArgument("piecewise schedule: ", d.boundaries.size(),
                             " boundaries and ", d.values.size(), " values");
    }
    if (!std::is_sorted(d.boundaries.begin(), d.boundaries.end())) {
      return InvalidArgument("piecewise schedule: boundaries do not ascend");
    }
    return OkStatus();
  }
  static Status CheckPeriod(double decay_steps) {
    if (decay_steps > 0) return OkStatus();
    return InvalidArgument("schedule with decay_steps ", decay_steps);
  }
};

}  // namespace

Status CheckLearningRate(const LearningRate& rate) {
  return std::visit(Checker(), rate.schedule);
}

double RateOfStep(const LearningRate& rate, uint64_t step) {
  return rate.factor *
         std::visit(Rate{rate.base, rate.first_step + step}, rate.schedule);
}

}  // namespace fleet::table
