// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/sum_stream.h"

#include <algorithm>
#include <array>

#include "fleet/table/row_copy.h"

namespace fleet::ps {
namespace {

// Keys that are looked at together: their places in the hash table are asked
// for ahead.
constexpr size_t kBlock = 64;

// Rows that are copied are asked for so many steps ahead.
constexpr size_t kAhead = 16;

}  // namespace

void SumStream::Begin(std::span<const ValuesOfKeys> parts, size_t dim,
                      uint32_t num_servers, std::span<const float> shows,
                      std::span<const float> clicks) {
  parts_ = parts;
  shows_ = shows;
  clicks_ = clicks;
  dim_ = dim;
  num_servers_ = num_servers;
  part_ = 0;
  in_part_ = 0;
  place_ = 0;
  over_ = false;
  size_t num_keys = 0;
  for (const ValuesOfKeys& part : parts) num_keys += part.keys.size();
  filter_.Reset(num_keys);
  for (const ValuesOfKeys& part : parts) {
    for (Key key : part.keys) filter_.Mark(key);
  }
  repeats_.Reset(std::min(num_keys, 2 * filter_.num_again()));
  sums_.clear();
  sums_of_shows_.clear();
  sums_of_clicks_.clear();
  of_server_.resize(num_servers);
  for (OfServer& server : of_server_) {
    server.keys.clear();
    server.values.clear();
    server.shows.clear();
    server.clicks.clear();
  }
}

size_t SumStream::Reach(uint32_t server, size_t count) {
  const std::vector<Key>& found = of_server_[server].keys;
  while (!over_ && found.size() < count) {
    if (part_ == parts_.size()) {
      SendRepeats();
      over_ = true;
      break;
    }
    const ValuesOfKeys& part = parts_[part_];
    const size_t n = std::min(kBlock, part.keys.size() - in_part_);
    Look(part.keys.subspan(in_part_, n), part.values.data() + in_part_ * dim_,
         place_);
    place_ += n;
    in_part_ += n;
    if (in_part_ == part.keys.size()) {
      ++part_;
      in_part_ = 0;
    }
  }
  return found.size();
}

void SumStream::Look(std::span<const Key> keys, const float* values,
                     size_t place) {
  std::array<bool, kBlock> may_repeat;
  for (size_t i = 0; i < keys.size(); ++i) {
    may_repeat[i] = filter_.MayRepeat(keys[i]);
    if (may_repeat[i]) repeats_.Prefetch(keys[i]);
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    if (may_repeat[i]) {
      MergeRepeat(keys[i], values + i * dim_, place + i);
    } else if (shows_.empty()) {
      Send(keys[i], values + i * dim_, 0.0f, 0.0f);
    } else {
      Send(keys[i], values + i * dim_, shows_[place + i], clicks_[place + i]);
    }
  }
}

void SumStream::Send(Key key, const float* values, float show, float click) {
  OfServer& server =
      of_server_[num_servers_ == 1 ? 0 : table::ServerOfKey(key, num_servers_)];
  server.keys.push_back(key);
  server.values.push_back(values);
  if (shows_.empty()) return;
  server.shows.push_back(show);
  server.clicks.push_back(click);
}

void SumStream::MergeRepeat(Key key, const float* values, size_t place) {
  const size_t number = repeats_.Add(key);
  if (number * dim_ == sums_.size()) {
    sums_.insert(sums_.end(), values, values + dim_);
    if (shows_.empty()) return;
    sums_of_shows_.push_back(shows_[place]);
    sums_of_clicks_.push_back(clicks_[place]);
    return;
  }
  float* __restrict sum = &sums_[number * dim_];
  if (dim_ == 16) {
    for (size_t k = 0; k < 16; ++k) sum[k] += values[k];
  } else {
    for (size_t k = 0; k < dim_; ++k) sum[k] += values[k];
  }
  if (shows_.empty()) return;
  sums_of_shows_[number] += shows_[place];
  sums_of_clicks_[number] += clicks_[place];
}

void SumStream::SendRepeats() {
  const std::span<const Key> keys = repeats_.keys();
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool shown = !shows_.empty();
    Send(keys[i], &sums_[i * dim_], shown ? sums_of_shows_[i] : 0.0f,
         shown ? sums_of_clicks_[i] : 0.0f);
  }
}

std::span<const float> SumStream::values(uint32_t server, size_t begin,
                                         size_t count,
                                         std::vector<float>& memory) const {
  if (count == 0) return {};
  const float* const* from = of_server_[server].values.data() + begin;
  size_t in_place = 1;
  while (in_place < count && from[in_place] == from[0] + in_place * dim_) {
    ++in_place;
  }
  if (in_place == count) return {from[0], count * dim_};
  if (memory.size() < count * dim_) memory.resize(count * dim_);
  float* const to = memory.data();
  table::WithRowSize(dim_, [&](auto copy) {
    for (size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(from[i + kAhead]);
      copy(to + i * dim_, from[i]);
    }
  });
  return {to, count * dim_};
}

}  // namespace fleet::ps
