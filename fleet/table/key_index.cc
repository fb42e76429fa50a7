// SPDX-License-Identifier: Apache-2.0

#include "fleet/table/key_index.h"

#include <algorithm>

namespace fleet::table {
namespace {

constexpr size_t kMinCapacity = 320;
// From here on huge pages pay.
constexpr size_t kHugeFrom = size_t{8} << 20;

}  // namespace

// By half: while both are there, an index of n keys takes 12 / 0.8 bytes for
// the old and half as much again for the new, 37.5 bytes a key. Doubling would
// take 45, and at four fifths a look-up reads 3 entries, which are neighbours.
Status KeyIndex::Grow(size_t additional) {
  size_t capacity = std::max(kMinCapacity, capacity_ + capacity_ / 2);
  while (limit_of(capacity) < size_ + additional) capacity += capacity / 2;
  const size_t byte_size = capacity * sizeof(Entry);
  ASSIGN_OR_RETURN(PageMemory memory,
                   PageMemory::Make(byte_size, byte_size >= kHugeFrom));
  auto* entries = reinterpret_cast<Entry*>(memory.data());
  for (size_t at = 0; at < capacity; ++at) entries[at].value = kNone;

  Entry* const old = std::exchange(entries_, entries);
  const size_t old_capacity = std::exchange(capacity_, capacity);
  size_ = 0;
  for (size_t at = 0; at < old_capacity; ++at) {
    if (old[at].value == kNone) continue;
    const Key key = old[at].key();
    *FindOrInsert(key, Home(HashKey(key))) = old[at].value;
  }
  memory_ = std::move(memory);
  return OkStatus();
}

bool KeyIndex::Erase(Key key) {
  uint32_t* value = Find(key);
  if (value == nullptr) return false;
  size_t hole = static_cast<size_t>(
      reinterpret_cast<Entry*>(reinterpret_cast<std::byte*>(value) -
                               offsetof(Entry, value)) -
      entries_);
  // Later entries of the run move into the hole when it is not before their
  // home.
  for (size_t at = hole;;) {
    if (++at == capacity_) at = 0;
    if (entries_[at].value == kNone) break;
    const size_t home = Home(HashKey(entries_[at].key()));
    const size_t from_home = at >= home ? at - home : at + capacity_ - home;
    const size_t from_hole = at >= hole ? at - hole : at + capacity_ - hole;
    if (from_home < from_hole) continue;
    entries_[hole] = entries_[at];
    hole = at;
  }
  entries_[hole].value = kNone;
  --size_;
  return true;
}

}  // namespace fleet::table
