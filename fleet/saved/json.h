// SPDX-License-Identifier: Apache-2.0

// JSON as the header of a container has it: what Python's json module writes
// and reads, so integers of any size, NaN, Infinity and -Infinity, and texts in
// which half a surrogate pair may stand alone. Functions are thread-safe.

#ifndef FLEET_SAVED_JSON_H_
#define FLEET_SAVED_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fleet/base/status.h"
#include "fleet/saved/value.h"

namespace fleet::saved {

struct Json;
using JsonArray = std::vector<Json>;
using JsonObject = std::vector<std::pair<std::string, Json>>;

struct Json {
  std::variant<std::monostate, bool, int64_t, BigInteger, double, std::string,
               JsonArray, JsonObject>
      held;

  // The member of an object; null when this is no object or has none.
  const Json* Find(std::string_view name) const;
};

// The value that `text` consists of. DataLoss for text that is none, for a
// number that has no room in a double or more than 4300 digits, and for arrays
// and objects in each other more than `max_depth` deep.
Result<Json> ParseJson(std::string_view text, int max_depth);

// Append what Python's json.dumps writes: ASCII, the shortest digits that give
// the number again. False for a text that is no UTF-8.
bool AppendJsonText(std::string& out, std::string_view text);
void AppendJsonNumber(std::string& out, double number);

}  // namespace fleet::saved

#endif  // FLEET_SAVED_JSON_H_
