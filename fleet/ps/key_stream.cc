// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/key_stream.h"

#include <algorithm>

#include "fleet/table/row_copy.h"

namespace fleet::ps {
namespace {

// Keys that are looked at together: their places in the hash table are asked
// for ahead.
constexpr size_t kBlock = 64;

}  // namespace

void KeyStream::Begin(std::span<const RowsOfKeys> parts, size_t dim,
                      uint32_t num_servers) {
  parts_ = parts;
  dim_ = dim;
  num_servers_ = num_servers;
  part_ = 0;
  place_ = 0;
  size_t num_keys = 0;
  for (const RowsOfKeys& part : parts) num_keys += part.keys.size();
  distinct_.Reset(num_keys);
  rows_.clear();
  repeats_.clear();
  if (num_servers == 1) return;
  of_server_.resize(num_servers);
  for (OfServer& server : of_server_) {
    server.keys.clear();
    server.numbers.clear();
  }
}

void KeyStream::Look(std::span<const Key> keys, float* rows) {
  for (Key key : keys) distinct_.Prefetch(key);
  for (Key key : keys) {
    const uint32_t number = distinct_.Add(key);
    if (number < rows_.size()) {
      repeats_.push_back({rows, number});
    } else {
      rows_.push_back(rows);
      if (num_servers_ > 1) {
        OfServer& server = of_server_[table::ServerOfKey(key, num_servers_)];
        server.keys.push_back(key);
        server.numbers.push_back(number);
      }
    }
    rows += dim_;
  }
}

size_t KeyStream::Reach(uint32_t server, size_t count) {
  while (part_ < parts_.size() && size(server) < count) {
    const RowsOfKeys& part = parts_[part_];
    const size_t n = std::min(kBlock, part.keys.size() - place_);
    Look(part.keys.subspan(place_, n), part.rows.data() + place_ * dim_);
    place_ += n;
    if (place_ == part.keys.size()) {
      ++part_;
      place_ = 0;
    }
  }
  return size(server);
}

std::span<const Key> KeyStream::keys(uint32_t server, size_t begin,
                                     size_t count) const {
  const std::span<const Key> all =
      num_servers_ == 1 ? distinct_.keys() : of_server_[server].keys;
  return all.subspan(begin, count);
}

void KeyStream::Count(uint32_t server, size_t begin,
                      std::span<uint32_t> counts) const {
  std::vector<uint32_t> by_number(rows_.size(), 1);
  for (const Repeat& repeat : repeats_) ++by_number[repeat.number];
  for (size_t i = 0; i < counts.size(); ++i) {
    counts[i] = by_number[number(server, begin + i)];
  }
}

std::span<float> KeyStream::Direct(uint32_t server, size_t begin,
                                   size_t count) const {
  float* const first = rows_[number(server, begin)];
  const float* const last = rows_[number(server, begin + count - 1)];
  if (num_servers_ > 1 || last != first + (count - 1) * dim_) return {};
  // In one part, rows are in the order of their numbers.
  for (const RowsOfKeys& part : parts_) {
    const float* const end = part.rows.data() + part.rows.size();
    if (first < part.rows.data() || first >= end) continue;
    if (last >= end) return {};
    return {first, count * dim_};
  }
  return {};
}

void KeyStream::Scatter(uint32_t server, size_t begin, size_t count,
                        const float* rows) {
  table::WithRowSize(dim_, [&](auto copy) {
    for (size_t i = 0; i < count; ++i) {
      copy(rows_[number(server, begin + i)], rows + i * dim_);
    }
  });
}

void KeyStream::CopyRepeats() const {
  table::WithRowSize(dim_, [&](auto copy) {
    for (const Repeat& repeat : repeats_) {
      copy(repeat.to, rows_[repeat.number]);
    }
  });
}

}  // namespace fleet::ps
