// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

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
    const auto n = static_cast<double>(step);
    double done = std::min(n, d.decay_steps) / d.decay_steps;
    if (d.cycle) done = n / (d.decay_steps * Cycles(n / d.decay_steps));
    return (base - d.end) * std::pow(1.0 - done, d.power) + d.end;
  }
  double operator()(const PiecewiseDecay& d) const {
    const auto it =
        std::upper_bound(d.boundaries.begin(), d.boundaries.end(), step);
    return d.values[static_cast<size_t>(it - d.boundaries.begin())];
  }
  double operator()(const CosineDecay& d) const {
    double t = Periods(d, static_cast<double>(step));
    double length = d.length;
    if (d.growth == 1.0) {
      t = std::fmod(t, length);
    } else if (d.growth > 1.0) {
      for (; t >= length; length *= d.growth) t -= length;
    }
    const double wave = (1.0 + std::cos(std::numbers::pi * t / length)) / 2.0;
    return d.end + (base - d.end) * wave;
  }
  double operator()(const CyclicRate& d) const {
    const double t = Periods(d, static_cast<double>(step));
    const double cycle = std::floor(t / (d.up + d.down));
    const double at = t - cycle * (d.up + d.down);
    const double height =
        at <= d.up ? at / d.up : (d.up + d.down - at) / d.down;
    return base + (d.max - base) * height * std::pow(d.per_cycle, cycle) *
                      std::pow(d.per_period, t);
  }

  double operator()(const ToldRate& d) const {
    const auto it = std::upper_bound(d.until.begin(), d.until.end(), step);
    return it == d.until.end()
               ? base
               : d.rates[static_cast<size_t>(it - d.until.begin())];
  }

  // How many cycles have begun.
  static double Cycles(double periods) {
    return std::max(1.0, std::ceil(periods));
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
  Status operator()(const CosineDecay& d) const {
    if (d.length > 0 && (d.growth == 0 || d.growth >= 1)) {
      return CheckPeriod(d.decay_steps);
    }
    return InvalidArgument("cosine schedule: length ", d.length, ", growth ",
                           d.growth);
  }
  Status operator()(const CyclicRate& d) const {
    if (d.up > 0 && d.down > 0) return CheckPeriod(d.decay_steps);
    return InvalidArgument("cyclic schedule: up ", d.up, ", down ", d.down);
  }
  Status operator()(const ToldRate& d) const {
    if (d.until.size() == d.rates.size()) return OkStatus();
    return InvalidArgument("told rates: ", d.rates.size(), " before ",
                           d.until.size(), " steps");
  }
  static Status CheckPeriod(double decay_steps) {
    if (decay_steps > 0) return OkStatus();
    return InvalidArgument("schedule with decay_steps ", decay_steps);
  }
};

}  // namespace

Status CheckLearningRate(const LearningRate& rate) {
  const RateWarmup& warmup = rate.warmup;
  if (warmup.stair == 0 || warmup.begin > warmup.steps) {
    return InvalidArgument("warm-up of ", warmup.steps, " steps by stairs of ",
                           warmup.stair, ", with a schedule from step ",
                           warmup.begin, " on");
  }
  return std::visit(Checker(), rate.schedule);
}

bool TellRate(LearningRate& rate, const std::string& name, double base,
              uint64_t step, bool remember) {
  auto* const told = std::get_if<ToldRate>(&rate.schedule);
  if (told == nullptr || told->name != name) return false;
  if (remember && base != rate.base &&
      (told->until.empty() || told->until.back() < step)) {
    told->until.push_back(step);
    told->rates.push_back(rate.base);
  }
  rate.base = base;
  return true;
}

void ForgetToldRates(LearningRate& rate) {
  auto* const told = std::get_if<ToldRate>(&rate.schedule);
  if (told != nullptr) *told = {.name = told->name};
}

double RateOfStep(const LearningRate& rate, uint64_t step) {
  const RateWarmup& warmup = rate.warmup;
  const uint64_t at = rate.first_step + step;
  if (at < warmup.steps) {
    const uint64_t stair_begin = at / warmup.stair * warmup.stair;
    const double done =
        static_cast<double>(stair_begin) / static_cast<double>(warmup.steps);
    return rate.factor * (warmup.start + (warmup.end - warmup.start) * done);
  }
  return rate.factor *
         std::visit(Rate{rate.base, at - warmup.begin}, rate.schedule);
}

}  // namespace fleet::table
