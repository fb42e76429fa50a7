// SPDX-License-Identifier: Apache-2.0

// Which names tables may have.

#ifndef FLEET_TABLE_TABLE_NAME_H_
#define FLEET_TABLE_TABLE_NAME_H_

#include <string_view>

#include "fleet/base/status.h"

namespace fleet::table {

// Names come from programs and over the wire, and stand in lists, a line each:
// InvalidArgument for none, and for one with control characters. All others may
// be saved; a name becomes that of a file by base::FileNameOf.
Status CheckTableName(std::string_view table);

}  // namespace fleet::table

#endif  // FLEET_TABLE_TABLE_NAME_H_
