// SPDX-License-Identifier: Apache-2.0

#include "fleet/optim/update_rule.h"

#include <type_traits>

namespace fleet::optim {

std::span<const std::string_view> StateNames(const UpdateRule& rule) {
  return std::visit(
      [](const auto& r) { return std::span<const std::string_view>(r.kState); },
      rule);
}

double InitialState(const UpdateRule& rule) {
  const Adagrad* adagrad = std::get_if<Adagrad>(&rule);
  return adagrad != nullptr ? adagrad->initial : 0.0;
}

std::span<const std::string_view> PowerNames(const UpdateRule& rule) {
  return std::visit(
      [](const auto& r) {
        return std::span<const std::string_view>(r.kPowers);
      },
      rule);
}

double PowerBase(const UpdateRule& rule, size_t power) {
  return std::visit(
      [power](const auto& r) {
        if constexpr (std::remove_cvref_t<decltype(r)>::kPowers.empty()) {
          return 1.0;
        } else {
          return power == 0 ? r.beta1 : r.beta2;
        }
      },
      rule);
}

bool UpdatesOnlyGivenRows(const UpdateRule& rule) {
  const Adam* adam = std::get_if<Adam>(&rule);
  // With a gradient of zero SGD and Adagrad change nothing; Paddle's Ftrl skips
  // such rows, though its formula would not leave them as they are.
  return std::holds_alternative<Sgd>(rule) ||
         std::holds_alternative<Adagrad>(rule) ||
         std::holds_alternative<Ftrl>(rule) || (adam != nullptr && adam->lazy);
}

}  // namespace fleet::optim
