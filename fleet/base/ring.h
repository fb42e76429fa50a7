// SPDX-License-Identifier: Apache-2.0

// Bytes from one writer to one reader, often in another process, through memory
// that both see.
//
// The memory is cut into blocks. The writer fills one after the other and says
// in `places` which one it took; it may use a block again when all of it has
// been read, and takes the lowest such. So a reader that keeps up finds its
// bytes in the same few blocks, which stay in a cache, however many there are.
//
// `written` and `read` count bytes since the start and never wrap. What is
// beyond them belongs to one end alone: the writer writes, then moves
// `written`; the reader reads, then moves `read`. Neither end waits here; how
// they sleep and wake each other is their owners' matter.

#ifndef FLEET_BASE_RING_H_
#define FLEET_BASE_RING_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <vector>

namespace fleet::base {

// Where the parts of a ring lie; it begins as zeros. All outlives both ends.
struct RingMemory {
  std::atomic<uint64_t>* written;  // changed by the writer only
  std::atomic<uint64_t>* read;     // changed by the reader only
  uint32_t* places;                // block i of the stream: at i % num_blocks
  std::byte* blocks;
  size_t block_byte_size;
  uint32_t num_blocks;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Whether a writer that uses all blocks has no room. For the reader: a writer
// only knows it sooner.
inline bool IsFull(const RingMemory& memory) {
  const uint64_t written = memory.written->load();
  const uint64_t read = memory.read->load();
  return written % memory.block_byte_size == 0 &&
         written / memory.block_byte_size - read / memory.block_byte_size >=
             memory.num_blocks;
}

// One thread.
class RingWriter final {
 public:
  // Uses the first `usable` blocks only, until Extend.
  RingWriter(const RingMemory& memory, uint32_t usable) : memory_(memory) {
    Extend(usable);
  }

  // Copies as much of `bytes` as goes into the block in use, or into the next
  // one when that is full; returns how many. 0 when no block is free, or what
  // the reader says makes no sense: see damaged().
  size_t Put(std::span<const std::byte> bytes) {
    if (left_ == 0 && !TakeBlock()) return 0;
    const size_t count = std::min(left_, bytes.size());
    if (count == 0) return 0;
    std::memcpy(at_, bytes.data(), count);
    at_ += count;
    left_ -= count;
    written_ += count;
    return count;
  }
  // Lets the reader see what was put.
  void Publish(std::memory_order order) {
    memory_.written->store(written_, order);
  }

  // Whether Put would take a byte.
  bool has_room() const {
    return left_ != 0 || !free_.empty() || memory_.read->load() >= first_end_;
  }
  bool damaged() const { return damaged_; }

  // Blocks that may be used, and more of them: they exist.
  uint32_t usable() const { return usable_; }
  void Extend(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) free_.push(usable_++);
  }

 private:
  bool TakeBlock() {
    const uint64_t read = memory_.read->load();
    damaged_ = damaged_ || read > written_;
    if (damaged_) return false;
    for (; !used_.empty() && first_end_ <= read; used_.pop_front()) {
      free_.push(used_.front());
      first_end_ += memory_.block_byte_size;
    }
    if (free_.empty()) return false;
    const uint32_t place = free_.top();
    free_.pop();
    used_.push_back(place);
    memory_.places[written_ / memory_.block_byte_size % memory_.num_blocks] =
        place;
    at_ = memory_.blocks + place * memory_.block_byte_size;
    left_ = memory_.block_byte_size;
    return true;
  }

  const RingMemory memory_;
  uint64_t written_ = 0;
  std::byte* at_ = nullptr;
  size_t left_ = 0;  // in the block in use
  uint32_t usable_ = 0;
  bool damaged_ = false;
  std::deque<uint32_t> used_;                     // in the order of the stream
  uint64_t first_end_ = memory_.block_byte_size;  // of the first of them
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free_;
};

// One thread.
class RingReader final {
 public:
  explicit RingReader(const RingMemory& memory) : memory_(memory) {}

  // Whether there is something to take.
  bool has_bytes() const { return memory_.written->load() != read_; }

  // Copies as much into `into` as lies in the next block; returns how many. 0
  // when nothing is there, or what the writer says makes no sense: see
  // damaged().
  size_t Take(std::span<std::byte> into) {
    const uint64_t there = memory_.written->load() - read_;
    if (there == 0 || into.empty()) return 0;
    const size_t in_block = read_ % memory_.block_byte_size;
    const uint32_t place =
        memory_.places[read_ / memory_.block_byte_size % memory_.num_blocks];
    // The other end is never trusted with an address.
    damaged_ = damaged_ || place >= memory_.num_blocks ||
               there > memory_.num_blocks * memory_.block_byte_size;
    if (damaged_) return 0;
    const size_t count = std::min({static_cast<size_t>(there), into.size(),
                                   memory_.block_byte_size - in_block});
    std::memcpy(into.data(),
                memory_.blocks + place * memory_.block_byte_size + in_block,
                count);
    read_ += count;
    return count;
  }
  // Gives back to the writer what was taken.
  void Publish(std::memory_order order) { memory_.read->store(read_, order); }
  bool damaged() const { return damaged_; }

 private:
  const RingMemory memory_;
  uint64_t read_ = 0;
  bool damaged_ = false;
};

}  // namespace fleet::base

#endif  // FLEET_BASE_RING_H_
