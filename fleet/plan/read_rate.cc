// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/read_rate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

namespace fleet::plan {
namespace {

using program::Operation;
using table::LearningRate;

const std::string& Input(const Operation& op, std::string_view slot) {
  static const std::string none;
  const std::vector<std::string>& names = op.input(slot);
  return names.size() == 1 ? names[0] : none;
}

// Attributes are floats on the wire: a number of steps comes back as 999.99999.
double Whole(double x) {
  const double nearest = std::round(x);
  return std::abs(x - nearest) < 1e-4 * std::abs(x) ? nearest : x;
}

// factor * x + bias
struct Scaled {
  std::string x;
  double factor = 1.0;
  double bias = 0.0;
};

struct Periods {
  double decay_steps = 1.0;
  bool staircase = false;
};

// One look at the operations behind a variable; each function says whether they
// are what its name says.
class RateReader final {
 public:
  RateReader(const ProgramIndex& main, const ProgramIndex& startup,
             const std::map<std::string, LearningRate>& schedules)
      : main_(main), startup_(startup), schedules_(schedules) {}

  Result<LearningRate> Read(const std::string& name) {
    if (auto found = schedules_.find(name); found != schedules_.end()) {
      return found->second;
    }
    if (main_.writers(name).empty()) {
      ASSIGN_OR_RETURN(const double base, ReadConstant(startup_, name));
      return LearningRate{.base = base, .schedule = {}};
    }
    if (Result<double> base = ReadConstant(main_, name); base.ok()) {
      return LearningRate{.base = *base, .schedule = {}};
    }
    for (auto match :
         {&RateReader::Exponential, &RateReader::InverseTime,
          &RateReader::Polynomial, &RateReader::Noam, &RateReader::Cosine,
          &RateReader::Pieces, &RateReader::Warmup}) {
      if (std::optional<LearningRate> rate = (this->*match)(name)) {
        rate->first_step = first_step_;
        return *rate;
      }
    }
    std::optional<Scaled> scaled = AsScale(name);
    if (scaled.has_value() && scaled->bias == 0.0) {
      Result<LearningRate> rate = Read(scaled->x);
      if (rate.ok()) rate->factor *= scaled->factor;
      return rate;
    }
    const size_t last = main_.writers(name).back();
    return Unimplemented(
        "the learning rate ", name, " comes from ", Describe(main_.op(last)),
        ", and servers know the schedules exponential_decay, "
        "natural_exp_decay, inverse_time_decay, polynomial_decay, noam_decay, "
        "piecewise_decay, cosine_decay and linear_lr_warmup; take one of "
        "these, or a number");
  }

 private:
  const Operation* Made(const std::string& name, std::string_view type) const {
    const Operation* op = main_.maker(name);
    return op != nullptr && op->type == type ? op : nullptr;
  }

  std::optional<Scaled> AsScale(const std::string& name) const {
    const Operation* op = Made(name, "scale");
    if (op == nullptr) return std::nullopt;
    Scaled scaled{.x = Input(*op, "X"),
                  .factor = NumberOf(*op, "scale", 1.0),
                  .bias = NumberOf(*op, "bias", 0.0)};
    if (!FlagOf(*op, "bias_after_scale", true)) scaled.bias *= scaled.factor;
    return scaled;
  }

  // The input of an operation `type` that makes `name`; empty if it does not.
  std::string Of(std::string_view type, const std::string& name) const {
    const Operation* op = Made(name, type);
    return op == nullptr ? "" : Input(*op, "X");
  }

  std::optional<double> Constant(const std::string& name) const {
    Result<double> value = ReadConstant(main_, name);
    if (!value.ok()) return std::nullopt;
    return *value;
  }

  // The counter of steps as a float. Remembers what it is in the first step.
  bool IsStep(const std::string& name) {
    const std::string counter = Of("cast", name);
    const std::vector<size_t>& writers = main_.writers(counter);
    if (writers.size() != 1) return false;
    const Operation& op = main_.op(writers[0]);
    if (op.type != "increment" || Input(op, "X") != counter) return false;
    const double by = NumberOf(op, "step", 1.0);
    Result<double> before = ReadConstant(startup_, counter);
    if (by != 1.0 || !before.ok() || *before + by < 0.0) return false;
    first_step_ = static_cast<uint64_t>(*before + by);
    return true;
  }

  std::optional<Periods> AsPeriods(const std::string& name) {
    std::optional<Scaled> scaled = AsScale(name);
    if (scaled.has_value() && scaled->bias == 0.0 && scaled->factor > 0.0 &&
        IsStep(scaled->x)) {
      return Periods{Whole(1.0 / scaled->factor), false};
    }
    std::optional<Scaled> nudged = AsScale(Of("floor", name));
    if (!nudged.has_value() || nudged->factor != 1.0) return std::nullopt;
    std::optional<Periods> periods = AsPeriods(nudged->x);
    if (periods.has_value()) periods->staircase = true;
    return periods;
  }

  // Also natural_exp_decay, which differs in how the rate is written.
  std::optional<LearningRate> Exponential(const std::string& name) {
    std::optional<Scaled> outer = AsScale(name);
    if (!outer.has_value() || outer->bias != 0.0) return std::nullopt;
    std::optional<Scaled> inner = AsScale(Of("exp", outer->x));
    if (!inner.has_value() || inner->bias != 0.0) return std::nullopt;
    std::optional<Periods> periods = AsPeriods(inner->x);
    if (!periods.has_value()) return std::nullopt;
    return LearningRate{
        .base = outer->factor,
        .schedule = table::NaturalExpDecay{-inner->factor, periods->decay_steps,
                                           periods->staircase}};
  }

  std::optional<LearningRate> InverseTime(const std::string& name) {
    std::optional<Scaled> outer = AsScale(name);
    if (!outer.has_value() || outer->bias != 0.0) return std::nullopt;
    std::optional<Scaled> inner = AsScale(Of("reciprocal", outer->x));
    if (!inner.has_value() || inner->bias != 1.0) return std::nullopt;
    std::optional<Periods> periods = AsPeriods(inner->x);
    if (!periods.has_value()) return std::nullopt;
    return LearningRate{
        .base = outer->factor,
        .schedule = table::InverseTimeDecay{inner->factor, periods->decay_steps,
                                            periods->staircase}};
  }

  std::optional<LearningRate> Polynomial(const std::string& name) {
    std::optional<Scaled> outer = AsScale(name);
    if (!outer.has_value()) return std::nullopt;
    const Operation* power = Made(outer->x, "pow");
    if (power == nullptr) return std::nullopt;
    std::optional<Scaled> left = AsScale(Input(*power, "X"));
    if (!left.has_value() || left->factor != -1.0 || left->bias != 1.0) {
      return std::nullopt;
    }
    table::PolynomialDecay decay{.end = outer->bias,
                                 .power = NumberOf(*power, "factor", 1.0)};
    if (std::optional<double> once = StepsOfShare(left->x)) {
      decay.decay_steps = *once;
    } else if (std::optional<double> again = StepsOfCycles(left->x)) {
      decay.decay_steps = *again;
      decay.cycle = true;
    } else {
      return std::nullopt;
    }
    return LearningRate{.base = outer->factor + outer->bias, .schedule = decay};
  }

  // min(step, n) / n
  std::optional<double> StepsOfShare(const std::string& name) {
    std::optional<Scaled> share = AsScale(name);
    if (!share.has_value() || share->bias != 0.0) return std::nullopt;
    const Operation* least = Made(share->x, "elementwise_min");
    if (least == nullptr || !IsStep(Input(*least, "X"))) return std::nullopt;
    return Constant(Input(*least, "Y"));
  }

  // step / (n * max(ceil(step / n), 1))
  std::optional<double> StepsOfCycles(const std::string& name) {
    const Operation* share = Made(name, "elementwise_div");
    if (share == nullptr || !IsStep(Input(*share, "X"))) return std::nullopt;
    std::optional<Scaled> all = AsScale(Input(*share, "Y"));
    if (!all.has_value() || all->bias != 0.0) return std::nullopt;
    const Operation* most = Made(all->x, "elementwise_max");
    if (most == nullptr || Constant(Input(*most, "Y")) != 1.0) {
      return std::nullopt;
    }
    std::optional<Scaled> times = AsScale(Of("ceil", Input(*most, "X")));
    if (!times.has_value() || !IsStep(times->x) ||
        std::abs(times->factor * all->factor - 1.0) > 1e-4) {
      return std::nullopt;
    }
    return Whole(all->factor);
  }

  std::optional<LearningRate> Noam(const std::string& name) {
    std::optional<Scaled> outer = AsScale(name);
    if (!outer.has_value() || outer->bias != 0.0) return std::nullopt;
    const Operation* least = Made(outer->x, "elementwise_min");
    if (least == nullptr) return std::nullopt;
    const Operation* falling = Made(Input(*least, "X"), "pow");
    std::optional<Scaled> rising = AsScale(Input(*least, "Y"));
    if (falling == nullptr || NumberOf(*falling, "factor", 1.0) != -0.5 ||
        !IsStep(Input(*falling, "X")) || !rising.has_value() ||
        rising->bias != 0.0 || !IsStep(rising->x)) {
      return std::nullopt;
    }
    return LearningRate{.base = outer->factor,  // d_model^-0.5 is in it
                        .schedule = table::NoamDecay{
                            1.0, Whole(std::pow(rising->factor, -2.0 / 3.0))}};
  }

  std::optional<LearningRate> Cosine(const std::string& name) {
    std::optional<Scaled> outer = AsScale(name);
    if (!outer.has_value()) return std::nullopt;
    std::optional<Scaled> inner = AsScale(Of("cos", outer->x));
    if (!inner.has_value() || inner->bias != 0.0 || inner->factor <= 0.0) {
      return std::nullopt;
    }
    std::optional<Periods> periods = AsPeriods(inner->x);
    if (!periods.has_value()) return std::nullopt;
    return LearningRate{.base = outer->bias + outer->factor,
                        .schedule = table::CosineDecay{
                            .length = Whole(std::numbers::pi / inner->factor),
                            .end = outer->bias - outer->factor,
                            .decay_steps = periods->decay_steps,
                            .staircase = periods->staircase}};
  }

  // A number, and for each boundary what is added once it is reached.
  std::optional<LearningRate> Pieces(const std::string& name) {
    std::vector<std::pair<double, double>> steps;  // boundary, what is added
    std::string at = name;
    const Operation* add = nullptr;
    while ((add = Made(at, "elementwise_add")) != nullptr) {
      std::optional<Scaled> rise = AsScale(Input(*add, "Y"));
      if (!rise.has_value() || rise->bias != 0.0) return std::nullopt;
      const Operation* past = Made(Of("cast", rise->x), "greater_equal");
      if (past == nullptr || !IsStep(Input(*past, "X"))) return std::nullopt;
      std::optional<double> boundary = Constant(Input(*past, "Y"));
      if (!boundary.has_value() || *boundary < 0.0) return std::nullopt;
      steps.emplace_back(*boundary, rise->factor);
      at = Input(*add, "X");
    }
    std::optional<double> value = Constant(at);
    if (steps.empty() || !value.has_value()) return std::nullopt;
    std::reverse(steps.begin(), steps.end());
    table::PiecewiseDecay pieces{{}, {*value}};
    for (const auto& [boundary, rise] : steps) {
      pieces.boundaries.push_back(static_cast<uint64_t>(std::ceil(boundary)));
      pieces.values.push_back(pieces.values.back() + rise);
    }
    return LearningRate{.base = *value, .schedule = std::move(pieces)};
  }

  std::optional<LearningRate> Warmup(const std::string& name) {
    const Operation* where = Made(name, "where");
    if (where == nullptr) return std::nullopt;
    const Operation* warm = Made(Input(*where, "Condition"), "less_than");
    if (warm == nullptr || !IsStep(Input(*warm, "X"))) return std::nullopt;
    std::optional<double> steps = Constant(Input(*warm, "Y"));
    std::optional<Scaled> rising = AsScale(Input(*where, "X"));
    if (!steps.has_value() || *steps < 0.0 || !rising.has_value() ||
        !IsStep(rising->x)) {
      return std::nullopt;
    }
    const uint64_t first_step = first_step_;
    const Result<LearningRate> after = Read(Input(*where, "Y"));
    if (!after.ok() || after->warmup.steps > 0 || after->factor == 0.0) {
      return std::nullopt;
    }
    first_step_ = first_step;  // a number counts no steps
    LearningRate rate = *after;
    rate.warmup.steps = static_cast<uint64_t>(std::ceil(*steps));
    rate.warmup.start = rising->bias / rate.factor;
    rate.warmup.end =
        (rising->bias + rising->factor * std::ceil(*steps)) / rate.factor;
    return rate;
  }

  const ProgramIndex& main_;
  const ProgramIndex& startup_;
  const std::map<std::string, LearningRate>& schedules_;
  uint64_t first_step_ = 0;
};

}  // namespace

Result<double> ReadConstant(const ProgramIndex& program,
                            const std::string& name) {
  const Operation* op = program.maker(name);
  if (op == nullptr || op->type != "fill_constant" ||
      !op->input("ValueTensor").empty()) {
    return NotFound("no fill_constant gives ", name, " its value");
  }
  const std::string text = WordOf(*op, "str_value");
  if (text.empty()) return NumberOf(*op, "value", 0.0);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() + text.size()) return value;
  return InvalidArgument("fill_constant of ", name, ": str_value '", text,
                         "' is no number");
}

Result<LearningRate> ReadRate(
    const ProgramIndex& main, const ProgramIndex& startup,
    const std::map<std::string, LearningRate>& schedules,
    const std::string& name) {
  return RateReader(main, startup, schedules).Read(name);
}

}  // namespace fleet::plan
