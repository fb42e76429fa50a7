// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/table_name.h"

namespace fleet::table {

Status CheckTableName(std::string_view table) {
  if (table.empty()) return InvalidArgument("a table without a name");
  for (const char c : table) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) continue;
    return InvalidArgument("the name of a table has the byte ", int{byte},
                           ", which is no letter");
  }
  return OkStatus();
}

}  // namespace fleet::table
