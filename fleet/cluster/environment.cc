// SPDX-License-Identifier: Apache-2.0

#include "fleet/cluster/environment.h"

#include <charconv>
#include <system_error>
#include <unistd.h>

namespace fleet::cluster {

Environment ReadEnvironment() {
  Environment env;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == text.npos) continue;
    env.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return env;
}

std::optional<std::string_view> Find(const Environment& env,
                                     std::string_view name) {
  const auto found = env.find(name);
  if (found == env.end()) return std::nullopt;
  return found->second;
}

Result<std::string_view> Require(const Environment& env,
                                 std::string_view name) {
  if (const auto value = Find(env, name)) return *value;
  return InvalidArgument("Can not find ", name,
                         ", please check your environment.");
}

Result<std::optional<int>> FindInt(const Environment& env,
                                   std::string_view name) {
  const auto value = Find(env, name);
  if (!value) return std::optional<int>();
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = value->find_first_not_of(kBlanks);
  const size_t last = value->find_last_not_of(kBlanks);
  int number = 0;
  if (first != std::string_view::npos) {
    const char* end = value->data() + last + 1;
    const auto [stop, error] =
        std::from_chars(value->data() + first, end, number);
    if (error == std::errc() && stop == end) return std::optional<int>(number);
  }
  return InvalidArgument(name, "='", *value, "' is not a whole number");
}

Result<int> RequireInt(const Environment& env, std::string_view name) {
  RETURN_IF_ERROR(Require(env, name).status());
  ASSIGN_OR_RETURN(std::optional<int> number, FindInt(env, name));
  return *number;
}

}  // namespace fleet::cluster
