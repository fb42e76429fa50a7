// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/durability.h"

namespace fleet::ps {

Result<Durability> ParseDurability(std::string_view text) {
  for (const Durability each :
       {Durability::kNone, Durability::kLog, Durability::kLogSync}) {
    if (text == ToString(each)) return each;
  }
  return InvalidArgument("durability \"", text,
                         "\": must be none, log or log-sync");
}

const char* ToString(Durability durability) {
  switch (durability) {
    case Durability::kLog:
      return "log";
    case Durability::kLogSync:
      return "log-sync";
    default:
      return "none";
  }
}

}  // namespace fleet::ps
