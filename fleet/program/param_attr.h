// SPDX-License-Identifier: Apache-2.0

// What a user may say about a parameter before it is made: its name, its first
// values, how it is trained.

#ifndef FLEET_PROGRAM_PARAM_ATTR_H_
#define FLEET_PROGRAM_PARAM_ATTR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace fleet::program {

// How a parameter gets its first values: an operation of the startup program.
// A seed of 0 is the startup program's. Formulas are Paddle's; a matrix is
// [fan in, fan out], the weight of a convolution [out, in, ...].
namespace init {

struct Constant {
  double value = 0.0;
};
struct Uniform {  // in [low, high)
  double low = -1.0;
  double high = 1.0;
  int64_t seed = 0;
};
struct Normal {
  double mean = 0.0;
  double std = 1.0;
  int64_t seed = 0;
};
struct TruncatedNormal {  // at most two deviations from the mean
  double mean = 0.0;
  double std = 1.0;
  int64_t seed = 0;
};
// Within sqrt(6 / (fan_in + fan_out)) of zero.
struct XavierUniform {
  std::optional<double> fan_in = {};  // else by the shape
  std::optional<double> fan_out = {};
  double gain = 1.0;
  int64_t seed = 0;
};
// With deviation sqrt(2 / (fan_in + fan_out)).
struct XavierNormal {
  std::optional<double> fan_in = {};
  std::optional<double> fan_out = {};
  double gain = 1.0;
  int64_t seed = 0;
};
inline constexpr double kReluGain = 1.4142135623730951;
// Within gain * sqrt(3 / fan_in) of zero.
struct KaimingUniform {
  std::optional<double> fan_in = {};
  double gain = kReluGain;
  int64_t seed = 0;
};
// With deviation gain / sqrt(fan_in).
struct KaimingNormal {
  std::optional<double> fan_in = {};
  double gain = kReluGain;
  int64_t seed = 0;
};
struct Assign {  // as many values as the parameter has elements
  std::vector<double> values;
};

}  // namespace init

using Initializer =
    std::variant<init::Constant, init::Uniform, init::Normal,
                 init::TruncatedNormal, init::XavierUniform, init::XavierNormal,
                 init::KaimingUniform, init::KaimingNormal, init::Assign>;

// What is added to a gradient: coefficient * sign(parameter) with L1,
// coefficient * parameter with L2.
struct L1Decay {
  double coefficient = 0.0;
};
struct L2Decay {
  double coefficient = 0.0;
};
using Decay = std::variant<std::monostate, L1Decay, L2Decay>;

struct ParamAttr {
  std::string name = {};                        // else its layer names it
  std::optional<Initializer> initializer = {};  // else the layer's choice
  double learning_rate = 1.0;                   // a factor on the optimizer's
  std::optional<Decay> decay = {};              // in place of the optimizer's
  bool trainable = true;
  bool need_clip = true;
};

}  // namespace fleet::program

#endif  // FLEET_PROGRAM_PARAM_ATTR_H_
