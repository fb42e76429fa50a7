// SPDX-License-Identifier: Apache-2.0

// What survives of the updates that a server has acknowledged; see
// docs/howto/durability.md.

#ifndef FLEET_PS_DURABILITY_H_
#define FLEET_PS_DURABILITY_H_

#include <string_view>

#include "fleet/base/status.h"

namespace fleet::ps {

enum class Durability {
  kNone,     // what was saved
  kLog,      // all, when the process dies; all but 50 ms, when the host does
  kLogSync,  // all
};
// "none", "log" or "log-sync"; InvalidArgument for others.
Result<Durability> ParseDurability(std::string_view text);
const char* ToString(Durability durability);

}  // namespace fleet::ps

#endif  // FLEET_PS_DURABILITY_H_
