// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/shared_memory_control.h"

#include <cstring>
#include <linux/membarrier.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include "fleet/base/futex.h"
#include "fleet/base/shared_memory.h"

namespace fleet::comm {
namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(sizeof(Line) == kLineSpacing);
// Round, call and payload are in the first cache line of the pair.
static_assert(offsetof(Line, payload) + kInlineByteSize <= 64);

long Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

size_t Control::ByteSize(int size) {
  const auto n = static_cast<size_t>(size);
  const size_t all = sizeof(News) + sizeof(Hub) + n * sizeof(State) +
                     n * kNumSlots * sizeof(Line) + n * n * sizeof(RingState);
  return (all + base::kPageByteSize - 1) / base::kPageByteSize *
         base::kPageByteSize;
}

Control::Control(std::byte* memory, int rank, int size)
    : rank_(rank), size_(size) {
  auto take = [&]<typename T>(T*& place, size_t count) {
    place = reinterpret_cast<T*>(memory);
    memory += count * sizeof(T);
  };
  const auto n = static_cast<size_t>(size);
  take(news_, 1);
  take(hub_, 1);
  take(states_, n);
  take(lines_, n * kNumSlots);
  take(rings_, n * n);
}

void Control::Introduce() {
  State& mine = states_[rank_];
  CPU_ZERO(&mine.cores);
  (void)sched_getaffinity(0, sizeof(mine.cores), &mine.cores);
  mine.can_membarrier =
      Membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

void Control::Settle(int processes_on_host) {
  cpu_set_t all = states_[rank_].cores;
  bool bound = false;  // ranks have cores of their own
  bool can_membarrier = true;
  for (int i = 0; i < size_; ++i) {
    can_membarrier = can_membarrier && states_[i].can_membarrier != 0;
    bound = bound || CPU_EQUAL(&all, &states_[i].cores) == 0;
    CPU_OR(&all, &all, &states_[i].cores);
  }
  const int needed = bound ? size_ : processes_on_host;
  spin_ = processes_on_host > 0 && needed <= CPU_COUNT(&all);
  membarrier_ = spin_ && can_membarrier;
}

void Control::FullFence() {
#if defined(__SANITIZE_THREAD__)
  // It knows no fences.
  hub_->sleepers.fetch_add(0);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

void Control::WakeSleepers() {
  for (int i = 0; i < size_; ++i) {
    if (WaitsForMe(i)) RingBell(i);
  }
}

void Control::WakeAll() {
  for (int i = 0; i < size_; ++i) RingBell(i);
}

void Control::RingBell(int rank) { base::FutexWake(states_[rank].event); }

uint32_t Control::BeginSleep(int whom) {
  const uint32_t seen = states_[rank_].event.load();
  states_[rank_].waits_for.store(whom + 1);
  hub_->sleepers.fetch_add(1);
  FullFence();
  if (membarrier_) (void)Membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  return seen;
}

void Control::EndSleep() {
  hub_->sleepers.fetch_sub(1);
  states_[rank_].waits_for.store(0);
}

void Control::Leave() {
  states_[rank_].left.store(1, std::memory_order_release);
  WakeAll();
}

void Control::Fail(const Status& why) {
  uint32_t none = 0;
  if (news_->state.compare_exchange_strong(none, kWriting)) {
    news_->rank = rank_;
    news_->code = static_cast<int32_t>(why.code());
    const size_t length =
        why.message().copy(news_->text, sizeof(news_->text) - 1);
    news_->text[length] = '\0';
    news_->state.store(kWritten);
  }
  WakeAll();
}

Status Control::failure() const {
  const std::string text(news_->text,
                         strnlen(news_->text, sizeof(news_->text)));
  return Status(static_cast<StatusCode>(news_->code),
                base::Concat("rank ", news_->rank, " gave up: ", text));
}

}  // namespace fleet::comm
