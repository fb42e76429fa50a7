// SPDX-License-Identifier: Apache-2.0

// The order in which requests reached a table, for a log. A table has parts
// with a lock each (shards, and the count of its steps), so that two requests
// may reach one part in one order and another part in the other. Done again
// part by part, in the order of each part's turns, they give the same bits.

#ifndef FLEET_TABLE_TURN_H_
#define FLEET_TABLE_TURN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fleet/table/key.h"

namespace fleet::table {

struct Turn {
  uint32_t part = 0;
  // A request of many keys reaches a part several times: with some of the keys
  // from this one on.
  uint32_t first_key = 0;
  uint64_t number = 0;  // of the part's turns, from 1
  uint64_t step = 0;    // of the table, as the part saw it

  friend bool operator==(const Turn&, const Turn&) = default;
};
using Turns = std::vector<Turn>;

// What a table knows beside its rows, at the moment at which they are written
// down.
struct TableCut {
  Turns turns;  // the last of each part that is in the rows
  // Whether somebody had set the values of a dense table. Those of one that
  // nobody had set may have been pushed to all the same.
  bool initialized = true;
  // Keys that the entry rule holds back, and how often each was pulled.
  std::vector<std::pair<Key, uint64_t>> candidates;
  // By worker of geo training: the keys that it is not told of yet.
  std::vector<std::vector<Key>> changes;
};

// So many keys of a request are split by shard at a time.
inline constexpr size_t kKeysOfTurn = 4096;

// The places of the keys that a turn of a sparse table with that many shards
// was about.
inline std::vector<uint32_t> KeysOfTurn(const Turn& turn,
                                        std::span<const Key> keys,
                                        uint32_t num_shards) {
  std::vector<uint32_t> places;
  const size_t end =
      num_shards == 1
          ? keys.size()
          : std::min<size_t>(keys.size(), turn.first_key + kKeysOfTurn);
  for (size_t i = turn.first_key; i < end; ++i) {
    if (ShardOfHash(HashKey(keys[i]), num_shards) == turn.part) {
      places.push_back(static_cast<uint32_t>(i));
    }
  }
  return places;
}

}  // namespace fleet::table

#endif  // FLEET_TABLE_TURN_H_
