// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_PS_KEY_STREAM_H_
#define FLEET_PS_KEY_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fleet/ps/distinct_keys.h"
#include "fleet/table/key.h"

namespace fleet::ps {

// Keys and where their rows go: rows[i * dim] is that of keys[i].
struct RowsOfKeys {
  std::span<const Key> keys;
  std::span<float> rows;
};

// The keys of a pull, each once, by server, found while those before them are
// already under way. A row goes to the first place of its key, and is copied to
// the others at the end. Memory is used again by the next Begin.
class KeyStream final {
 public:
  // `parts` and what they show stay until the last call.
  void Begin(std::span<const RowsOfKeys> parts, size_t dim,
             uint32_t num_servers);

  // Looks at keys until `server` has at least `count` different ones, or there
  // are no more. Returns how many it has.
  size_t Reach(uint32_t server, size_t count);
  // All of them.
  void Finish() { (void)Reach(0, SIZE_MAX); }

  // The different keys of `server`, from `begin` on.
  std::span<const Key> keys(uint32_t server, size_t begin, size_t count) const;
  // How often each of them occurs, after Finish.
  void Count(uint32_t server, size_t begin, std::span<uint32_t> counts) const;
  // Where their rows can be received as they come; empty when they do not lie
  // side by side.
  std::span<float> Direct(uint32_t server, size_t begin, size_t count) const;
  // Else: puts them where they belong.
  void Scatter(uint32_t server, size_t begin, size_t count, const float* rows);

  // Fills the places of keys that had occurred before. All rows have come.
  void CopyRepeats() const;

 private:
  struct Repeat {
    float* to;
    uint32_t number;
  };
  struct OfServer {
    std::vector<Key> keys;
    std::vector<uint32_t> numbers;
  };
  void Look(std::span<const Key> keys, float* rows);
  size_t size(uint32_t server) const {
    return num_servers_ == 1 ? distinct_.size()
                             : of_server_[server].keys.size();
  }
  uint32_t number(uint32_t server, size_t i) const {
    return num_servers_ == 1 ? static_cast<uint32_t>(i)
                             : of_server_[server].numbers[i];
  }

  std::span<const RowsOfKeys> parts_;
  size_t dim_ = 0;
  uint32_t num_servers_ = 1;
  size_t part_ = 0;  // the next to look at
  size_t place_ = 0;

  DistinctKeys distinct_;
  std::vector<float*> rows_;  // of each different key, by number
  std::vector<Repeat> repeats_;
  std::vector<OfServer> of_server_;  // where there are several
};

}  // namespace fleet::ps

#endif  // FLEET_PS_KEY_STREAM_H_
