// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace fleet::table {
namespace {

// Numbers that follow from where they are drawn.
class Draws final {
 public:
  Draws(uint64_t seed, Key key)
      : state_(HashKey(HashKey(seed) ^ HashKey(key))) {}

  uint64_t Next() { return HashKey(state_++); }

  // In [0, 1), and in (0, 1].
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  double UnitWithoutZero() { return 1.0 - Unit(); }

  // A number of the standard normal distribution (Box and Muller); the second
  // of a pair is kept for the next call.
  double Normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(UnitWithoutZero()));
    const double angle = 2.0 * std::numbers::pi * Unit();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

  double TruncatedNormal() {
    double x = Normal();
    while (std::abs(x) > 2.0) x = Normal();
    return x;
  }

 private:
  uint64_t state_;
  bool has_spare_ = false;
  double spare_ = 0.0;
};

void FillUniform(double low, double high, Draws draws, std::span<float> row) {
  // Half of a draw is enough for a float.
  constexpr double kScale = 0x1p-32;
  const double width = high - low;
  for (size_t i = 0; i < row.size(); i += 2) {
    const uint64_t bits = draws.Next();
    const double halves[] = {static_cast<double>(bits >> 32) * kScale,
                             static_cast<double>(bits & 0xffffffff) * kScale};
    for (size_t k = 0; k < 2 && i + k < row.size(); ++k) {
      const auto x = static_cast<float>(low + width * halves[k]);
      // Rounding may reach the end, which is not in the interval.
      row[i + k] = x < static_cast<float>(high)
                       ? x
                       : std::nextafter(static_cast<float>(high),
                                        static_cast<float>(low));
    }
  }
}

struct Filler {
  Draws draws;
  std::span<float> row;

  void operator()(const ConstantInit& init) {
    std::fill(row.begin(), row.end(), init.value);
  }
  void operator()(const UniformInit& init) {
    FillUniform(init.low, init.high, draws, row);
  }
  void operator()(const NormalInit& init) {
    for (float& x : row) {
      x = static_cast<float>(init.mean + init.deviation * draws.Normal());
    }
  }
  void operator()(const TruncatedNormalInit& init) {
    for (float& x : row) {
      x = static_cast<float>(init.mean +
                             init.deviation * draws.TruncatedNormal());
    }
  }
  void operator()(const XavierInit& init) {
    const double fans = init.fan_in + init.fan_out;
    if (init.uniform) {
      const double limit = std::sqrt(6.0 / fans);
      FillUniform(-limit, limit, draws, row);
    } else {
      (*this)(NormalInit{0.0f, static_cast<float>(std::sqrt(2.0 / fans))});
    }
  }
};

struct Checker {
  Status operator()(const ConstantInit&) { return OkStatus(); }
  Status operator()(const UniformInit& init) {
    if (init.low < init.high) return OkStatus();
    return InvalidArgument("uniform initialiser: [", init.low, ", ", init.high,
                           ") is empty");
  }
  Status operator()(const NormalInit& init) {
    return CheckDeviation("normal", init.deviation);
  }
  Status operator()(const TruncatedNormalInit& init) {
    return CheckDeviation("truncated normal", init.deviation);
  }
  Status operator()(const XavierInit& init) {
    if (init.fan_in >= 0 && init.fan_out >= 0 &&
        init.fan_in + init.fan_out > 0) {
      return OkStatus();
    }
    return InvalidArgument("Xavier initialiser: fan_in ", init.fan_in,
                           ", fan_out ", init.fan_out);
  }
  static Status CheckDeviation(const char* what, float deviation) {
    if (deviation >= 0) return OkStatus();
    return InvalidArgument(what, " initialiser: deviation ", deviation);
  }
};

}  // namespace

Status CheckInitializer(const Initializer& initializer) {
  return std::visit(Checker(), initializer);
}

void FillRow(const Initializer& initializer, uint64_t seed, Key key,
             std::span<float> row) {
  std::visit(Filler{Draws(seed, key), row}, initializer);
}

}  // namespace fleet::table
