// SPDX-License-Identifier: Apache-2.0

// Keys of rows, and how they are spread.

#ifndef FLEET_TABLE_KEY_H_
#define FLEET_TABLE_KEY_H_

#include <cstddef>
#include <cstdint>

namespace fleet::table {

// The id of a row: any 64 bits. A negative id of the user's is its two's
// complement.
using Key = uint64_t;

// Spreads keys over all 64 bits; no two keys have the same hash.
inline uint64_t HashKey(Key key) {
  uint64_t x = key + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// `hash` scaled to [0, count): its upper bits decide, so the order of hashes
// is the order of places.
inline uint64_t ScaleHash(uint64_t hash, uint64_t count) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(hash) * count) >>
                               64);
}

// The shard of a table, among `num_shards`, that holds a key with this hash.
// By lower bits than the place inside the shard, which would otherwise fill
// only a part of its index.
inline uint32_t ShardOfHash(uint64_t hash, uint32_t num_shards) {
  return static_cast<uint32_t>(((hash & 0xffffffffu) * num_shards) >> 32);
}

// The server, among `num_servers`, that holds `key`: by a hash of its own, so
// that the keys of one server still spread over shards and indexes.
inline uint32_t ServerOfKey(Key key, uint32_t num_servers) {
  const uint64_t hash = HashKey(key ^ 0x5851f42d4c957f2du);
  return static_cast<uint32_t>(((hash >> 32) * num_servers) >> 32);
}

}  // namespace fleet::table

#endif  // FLEET_TABLE_KEY_H_
