// SPDX-License-Identifier: Apache-2.0

// The environment of a process as a value. Whoever starts things reads the
// real one, once; below that everything takes it as an argument, so that a test
// writes its own.

#ifndef FLEET_CLUSTER_ENVIRONMENT_H_
#define FLEET_CLUSTER_ENVIRONMENT_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "fleet/base/status.h"

namespace fleet::cluster {

using Environment = std::map<std::string, std::string, std::less<>>;

// That of this process as it is now. No thread may change it meanwhile.
Environment ReadEnvironment();

// The value of `name`, nullopt when it is not set. One that is set and empty
// is "". The view lives as long as `env`.
std::optional<std::string_view> Find(const Environment& env,
                                     std::string_view name);

// The value of `name`, which has to be set. InvalidArgument "Can not find NAME,
// please check your environment." otherwise: Paddle's words, which scripts
// look for.
Result<std::string_view> Require(const Environment& env, std::string_view name);

// Whole numbers, blanks around them allowed. InvalidArgument names the
// variable and its value when that is something else.
Result<std::optional<int>> FindInt(const Environment& env,
                                   std::string_view name);
Result<int> RequireInt(const Environment& env, std::string_view name);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_ENVIRONMENT_H_
