// SPDX-License-Identifier: Apache-2.0

// The control part of the memory that a group shares: where ranks say how far
// they are, sleep, wake each other, and leave word of a failure. Zero is where
// everything begins.
//
// Rounds. Collectives go in rounds, numbered from 1, alike on all ranks. A rank
// posts a round and waits until all others have posted it; what it wrote before
// is then seen by them. Round r uses slot r % 4 of the lines and of the staging
// memory. Before a rank writes for round r, it has waited for round r - 2; who
// posted round r - 2 has finished reading those of round r - 4. So no slot is
// overwritten while somebody reads it, a rank may be one round ahead of its
// reading, and no second barrier is needed. All collectives keep to it at their
// end, whatever they do inside: the next call may be of another kind.

#ifndef FLEET_COMM_SHARED_MEMORY_CONTROL_H_
#define FLEET_COMM_SHARED_MEMORY_CONTROL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <sched.h>

#include "fleet/base/deadline.h"
#include "fleet/base/futex.h"
#include "fleet/base/status.h"
#include "fleet/comm/types.h"

namespace fleet::comm {

// Two cache lines: the prefetcher fetches neighbours in pairs.
inline constexpr size_t kLineSpacing = 128;
inline constexpr size_t kNumSlots = 4;

// Small messages travel in the line itself.
inline constexpr size_t kInlineByteSize = 40;

// What a rank says about a round: its call, and up to kInlineByteSize of data.
// One cache line. Written by its rank, `round` last.
struct alignas(kLineSpacing) Line {
  std::atomic<uint64_t> round;
  uint64_t what;  // kind, operation, type and root
  uint64_t count;
  std::byte payload[kInlineByteSize];
};

// One direction between two ranks, for send and receive: see base/ring.h.
struct RingState {
  alignas(kLineSpacing) std::atomic<uint64_t> written;
  alignas(kLineSpacing) std::atomic<uint64_t> read;
};

class Control final {
 public:
  // How much memory `size` ranks need, a whole number of pages.
  static size_t ByteSize(int size);

  // `memory` outlives it.
  Control(std::byte* memory, int rank, int size);

  Line& line(int rank, uint64_t round) const {
    return lines_[static_cast<size_t>(rank) * kNumSlots + round % kNumSlots];
  }
  RingState& ring(int from, int to) const {
    return rings_[static_cast<size_t>(from) * size_ + to];
  }

  // Every rank calls Introduce before a first round that all wait for, and
  // Settle after it. Waits then spin() if there is a core for each of the
  // `processes_on_host`.
  //
  // Usually every word to sleepers costs a fence, which is as long as the
  // smallest collective. Where waits spin and the kernel can do it, who goes to
  // sleep makes the kernel do the fence on the other cores instead.
  void Introduce();
  void Settle(int processes_on_host);
  bool spin() const { return spin_; }

  // Wakes those who wait for this rank, after it wrote something.
  void WakeWaiters() {
    Fence();
    if (hub_->sleepers.load(std::memory_order_relaxed) != 0) WakeSleepers();
  }
  // Wakes where only `rank` can wait for it.
  void WakeWaiter(int rank) {
    Fence();
    if (WaitsForMe(rank)) RingBell(rank);
  }

  // Sleeps until `whom` wrote something, somebody left or failed, or until
  // `deadline`, unless over(). May return for no reason.
  template <typename Over>
  void Sleep(int whom, base::Deadline deadline, Over over) {
    const uint32_t seen = BeginSleep(whom);
    if (!over()) base::FutexSleep(states_[rank_].event, seen, deadline);
    EndSleep();
  }

  // While this rank waits for `to` to receive; that one looks up.
  void BeginSend(int to) {
    states_[rank_].sends_to.store(to + 1);
    WakeWaiter(to);
  }
  void EndSend() { states_[rank_].sends_to.store(0); }
  bool sends_to_me(int rank) const {
    return states_[rank].sends_to.load() == rank_ + 1;
  }

  // This rank makes no more calls.
  void Leave();
  bool left(int rank) const {
    return states_[rank].left.load(std::memory_order_acquire) != 0;
  }

  // Leaves word of this rank's failure and wakes all. Of several the first
  // counts.
  void Fail(const Status& why);
  bool failed() const {
    return news_->state.load(std::memory_order_acquire) == kWritten;
  }
  // Once failed(): who failed, and why.
  Status failure() const;

 private:
  // Who failed first. Written once.
  struct alignas(kLineSpacing) News {
    std::atomic<uint32_t> state;
    int32_t rank;
    int32_t code;
    char text[1012];
  };
  struct alignas(kLineSpacing) Hub {
    std::atomic<uint32_t> sleepers;
  };
  struct alignas(kLineSpacing) State {
    std::atomic<int32_t> waits_for;  // 1 + the rank, while it sleeps
    std::atomic<uint32_t> event;     // changed to wake the rank
    std::atomic<uint32_t> left;
    std::atomic<int32_t> sends_to;  // 1 + the rank, while it waits for it
    // Set by Introduce.
    uint32_t can_membarrier;
    cpu_set_t cores;
  };
  static constexpr uint32_t kWriting = 1;
  static constexpr uint32_t kWritten = 2;

  // Orders what was written before the look at who sleeps.
  void Fence() {
    if (membarrier_) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      FullFence();
    }
  }
  void FullFence();
  bool WaitsForMe(int rank) const {
    return states_[rank].waits_for.load(std::memory_order_relaxed) == rank_ + 1;
  }
  void WakeSleepers();
  void WakeAll();
  void RingBell(int rank);
  uint32_t BeginSleep(int whom);
  void EndSleep();

  const int rank_;
  const int size_;
  News* news_;
  Hub* hub_;
  State* states_;
  Line* lines_;
  RingState* rings_;
  bool spin_ = false;
  bool membarrier_ = false;
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_SHARED_MEMORY_CONTROL_H_
