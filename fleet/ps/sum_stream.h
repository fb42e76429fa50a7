// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PS_SUM_STREAM_H_
#define FLEET_PS_SUM_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fleet/ps/distinct_keys.h"
#include "fleet/table/key.h"

namespace fleet::ps {

// Keys and what belongs to them: values[i * dim] to keys[i].
struct ValuesOfKeys {
  std::span<const Key> keys;
  std::span<const float> values;
};

// The keys of a push, each once, by server, with the sum of what belongs to
// them.
// A key that occurs once can go as soon as it was looked at, while those behind
// it are still to be; those that may occur again follow when all were looked
// at. Memory is used again by the next Begin.
class SumStream final {
 public:
  // `parts` and what they show stay until the last call; each key has `dim`
  // values. `shows` and `clicks`, which are summed, belong to the keys of all
  // parts in their order, or are empty.
  void Begin(std::span<const ValuesOfKeys> parts, size_t dim,
             uint32_t num_servers, std::span<const float> shows = {},
             std::span<const float> clicks = {});

  // Looks at keys until `server` has at least `count` that can go, or there are
  // no more. Returns how many it has.
  size_t Reach(uint32_t server, size_t count);

  // The keys of `server` that can go, from `begin` on. Good until the
  // next Reach.
  std::span<const Key> keys(uint32_t server, size_t begin, size_t count) const {
    return std::span(of_server_[server].keys).subspan(begin, count);
  }
  // Their values, side by side: where they lie, or copied into `memory`.
  std::span<const float> values(uint32_t server, size_t begin, size_t count,
                                std::vector<float>& memory) const;
  std::span<const float> shows(uint32_t server, size_t begin,
                               size_t count) const {
    return std::span(of_server_[server].shows).subspan(begin, count);
  }
  std::span<const float> clicks(uint32_t server, size_t begin,
                                size_t count) const {
    return std::span(of_server_[server].clicks).subspan(begin, count);
  }

 private:
  struct OfServer {
    std::vector<Key> keys;
    std::vector<const float*> values;
    std::vector<float> shows;
    std::vector<float> clicks;
  };

  void Look(std::span<const Key> keys, const float* values, size_t place);
  void Send(Key key, const float* values, float show, float click);
  void MergeRepeat(Key key, const float* values, size_t place);
  void SendRepeats();

  std::span<const ValuesOfKeys> parts_;
  std::span<const float> shows_;
  std::span<const float> clicks_;
  size_t dim_ = 0;
  uint32_t num_servers_ = 1;
  size_t part_ = 0;     // the next to look at
  size_t in_part_ = 0;  // and its next key
  size_t place_ = 0;    // the same, counted over all parts
  bool over_ = false;

  RepeatFilter filter_;
  std::vector<OfServer> of_server_;
  // Sums of keys that may occur again, by the number of the key.
  DistinctKeys repeats_;
  std::vector<float> sums_;
  std::vector<float> sums_of_shows_;
  std::vector<float> sums_of_clicks_;
};

}  // namespace fleet::ps

#endif  // FLEET_PS_SUM_STREAM_H_
