// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <vector>

#include "fleet/exec/direct.h"
#include "fleet/optim/update.h"

namespace fleet::exec {
namespace {

// The updates of a step, with the values in place of places.
struct Pass {
  struct Addresses {
    int values, gradient, learning_rate;
    std::array<int, optim::kMaxState> state;
    std::array<int, optim::kMaxPowers> powers;
    double rate_factor;
    bool advances_powers;
  };

  optim::UpdateRule rule;
  int skip = kNone;  // of all
  std::vector<Addresses> addresses;
  std::vector<optim::Slice<float>> slices;
  std::vector<optim::Update<float>> updates;
  // Powers that others advance are used from a copy.
  std::vector<std::array<float, optim::kMaxPowers>> powers;

  void Run(void* const* m) {
    if (skip != kNone && *static_cast<const bool*>(m[skip])) return;
    for (size_t i = 0; i < addresses.size(); ++i) {
      const Addresses& at = addresses[i];
      optim::Slice<float>& slice = slices[i];
      optim::Update<float>& update = updates[i];
      slice.values = FloatOut(m, at.values);
      slice.gradient = FloatIn(m, at.gradient);
      for (size_t k = 0; k < at.state.size(); ++k) {
        if (at.state[k] != kNone) slice.state[k] = FloatOut(m, at.state[k]);
      }
      for (size_t k = 0; k < at.powers.size(); ++k) {
        if (at.powers[k] == kNone) continue;
        update.powers[k] = FloatOut(m, at.powers[k]);
        if (at.advances_powers) continue;
        powers[i][k] = *update.powers[k];
        update.powers[k] = &powers[i][k];
      }
      update.learning_rate = at.rate_factor;
      if (at.learning_rate != kNone) {
        update.learning_rate *= *FloatIn(m, at.learning_rate);
      }
    }
    optim::Apply<float>(rule, updates);
  }
};

}  // namespace

bool MakeOptimizerDirect(Graph& graph, int node) {
  Node& n = graph.nodes[node];
  const auto* step = dynamic_cast<const OptimizerStep*>(n.step);
  if (step == nullptr) return false;
  // The step lists its inputs update by update; here they are found by place.
  auto value_at = [&](Place place) {
    if (place == kNothing) return kNone;
    for (size_t i = 0; i < n.step->inputs.size(); ++i) {
      if (n.step->inputs[i] == place) return n.inputs[i];
    }
    return kNone;
  };
  auto pass = std::make_shared<Pass>();
  pass->rule = step->rule();
  const size_t num_state = optim::StateNames(pass->rule).size();
  const size_t num_powers = optim::PowerNames(pass->rule).size();
  const Place skip = step->updates().front().skip;
  pass->skip = value_at(skip);
  if (pass->skip != kNone && !graph.values[pass->skip].dense) return false;
  for (const OptimizerStep::Update& from : step->updates()) {
    if (from.skip != skip) return false;
    Pass::Addresses to{.values = value_at(from.values),
                       .gradient = value_at(from.gradient),
                       .learning_rate = value_at(from.learning_rate),
                       .state = {kNone, kNone, kNone},
                       .powers = {kNone, kNone},
                       .rate_factor = from.rate_factor,
                       .advances_powers = from.advances_powers};
    if (!graph.AreFloat({to.values, to.gradient}) ||
        graph.dims(to.values) != graph.dims(to.gradient)) {
      return false;
    }
    for (size_t k = 0; k < num_state; ++k) {
      to.state[k] = value_at(from.state[k]);
      if (!graph.AreFloat({to.state[k]}) ||
          graph.dims(to.state[k]) != graph.dims(to.values)) {
        return false;
      }
    }
    for (size_t k = 0; k < num_powers; ++k) {
      to.powers[k] = value_at(from.powers[k]);
      if (!graph.AreFloat({to.powers[k]}) || graph.numel(to.powers[k]) != 1) {
        return false;
      }
    }
    if (to.learning_rate != kNone && (!graph.AreFloat({to.learning_rate}) ||
                                      graph.numel(to.learning_rate) != 1)) {
      return false;
    }
    pass->addresses.push_back(to);
    optim::Update<float>& update = pass->updates.emplace_back();
    update.decay = from.decay;
    update.transform = from.transform;
    pass->slices.push_back({nullptr, nullptr, {}, graph.numel(to.values)});
  }
  pass->powers.resize(pass->updates.size());
  for (size_t i = 0; i < pass->updates.size(); ++i) {
    pass->updates[i].slices = {&pass->slices[i], 1};
  }
  n.direct = [pass](void* const* m) { pass->Run(m); };
  return true;
}

}  // namespace fleet::exec
