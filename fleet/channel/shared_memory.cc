// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/shared_memory.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <climits>

#include "fleet/base/cores.h"
#include "fleet/channel/handover.h"

namespace fleet::channel {
namespace {

using base::Deadline;

constexpr size_t kCacheLine = 64;
constexpr size_t kPage = 4096;
constexpr size_t kMaxRing = size_t{1} << 40;

// A sleep and a wake cost about 5 us, so spinning for longer than a few times
// that gains nothing.
constexpr auto kSpin = std::chrono::microseconds(20);

// When a spin was in vain, but the peer came soon after, the spin stood in its
// way: both run on one core, since others keep the rest busy. Spinning then
// costs twenty times a sleep (round trips of 90 us instead of 4). So the next
// waits sleep at once: 1, 3, 7 and so on up to 255 of them after each such
// spin, none after one that was worth it. A peer that took longer was at work,
// and says nothing.
constexpr auto kSoonAfterSpin = 10 * kSpin;
constexpr uint32_t kMaxWaitsWithoutSpin = 255;

// One direction. The positions count bytes since the start and never wrap; a
// position modulo the size is a place in the ring. Each side writes its own
// line only.
//
// Sleeping: a side reads its event, says that it sleeps, looks once more, and
// sleeps while the event stays. The other side moves its position, then looks
// whether somebody sleeps, and if so changes the event and wakes. Both "say,
// then look" are sequentially consistent, so one of the two sees the other.
struct RingControl {
  alignas(kCacheLine) std::atomic<uint64_t> written;
  std::atomic<uint32_t> room_event;  // changed by the reader
  std::atomic<uint32_t> writer_sleeps;

  alignas(kCacheLine) std::atomic<uint64_t> read;
  std::atomic<uint32_t> data_event;  // changed by the writer
  std::atomic<uint32_t> reader_sleeps;

  // Either end is finished with it.
  alignas(kCacheLine) std::atomic<uint32_t> shut;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(2 * sizeof(RingControl) <= kPage);

// The memory: a page with the two controls, then the two rings. Ring 0 goes
// from the process that made the memory to the one that took it.
size_t SegmentByteSize(size_t ring_byte_size) {
  return kPage + 2 * ring_byte_size;
}

class Mapping final {
 public:
  static Result<Mapping> Of(const base::Descriptor& memory, size_t byte_size) {
    void* at = mmap(nullptr, byte_size, PROT_READ | PROT_WRITE, MAP_SHARED,
                    memory.get(), 0);
    if (at == MAP_FAILED) return ErrnoStatus(errno, "map shared memory");
    return Mapping(static_cast<std::byte*>(at), byte_size);
  }
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        byte_size_(other.byte_size_) {}
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, byte_size_);
  }

  RingControl& control(int ring) const {
    return reinterpret_cast<RingControl*>(data_)[ring];
  }
  std::byte* ring(int ring) const {
    return data_ + kPage + static_cast<size_t>(ring) * ring_byte_size();
  }
  size_t ring_byte_size() const { return (byte_size_ - kPage) / 2; }

 private:
  Mapping(std::byte* data, size_t byte_size)
      : data_(data), byte_size_(byte_size) {}

  std::byte* data_;
  size_t byte_size_;
};

// Not the private kind: the sleeper is in another process.
void FutexSleep(std::atomic<uint32_t>& word, uint32_t seen, Deadline deadline) {
  timespec left{};
  if (!deadline.is_infinite()) {
    const int64_t ns = deadline.remaining().count();
    left.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    left.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  }
  // Whatever ends it, the caller looks again.
  (void)syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen,
                deadline.is_infinite() ? nullptr : &left, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  (void)syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE,
                INT_MAX, nullptr, nullptr, 0);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class SharedMemoryStream final : public ByteStream {
 public:
  // `out_ring` is 0 for the maker of the memory, 1 for the taker.
  SharedMemoryStream(base::Descriptor life, Mapping mapping, int out_ring,
                     bool spin)
      : life_(std::move(life)),
        mapping_(std::move(mapping)),
        byte_size_(mapping_.ring_byte_size()),
        out_(mapping_.control(out_ring)),
        in_(mapping_.control(1 - out_ring)),
        out_data_(mapping_.ring(out_ring)),
        in_data_(mapping_.ring(1 - out_ring)),
        spin_(spin),
        watcher_([this] { WatchLife(); }) {}

  ~SharedMemoryStream() override {
    Shut();
    watcher_.join();
  }

  Result<size_t> TryWrite(std::span<const iovec> pieces) override {
    if (PeerEnded()) return Unavailable(HowItEnded());
    const uint64_t used = written_ - out_.read.load(std::memory_order_acquire);
    if (used > byte_size_) return Unavailable("the shared memory is damaged");
    // A quarter at a time, so that the reader copies out while the writer
    // copies in.
    size_t room = std::min<size_t>(byte_size_ - used, byte_size_ / 4);
    size_t moved = 0;
    for (const iovec& piece : pieces) {
      const size_t count = std::min(room, piece.iov_len);
      CopyIn(static_cast<const std::byte*>(piece.iov_base), count);
      room -= count;
      moved += count;
      if (room == 0) break;
    }
    if (moved == 0) return moved;
    out_.written.store(written_);
    if (out_.reader_sleeps.load() != 0) FutexWake(out_.data_event);
    return moved;
  }

  Result<size_t> TryRead(std::span<const iovec> pieces) override {
    // Asked before the look at what is there: what a peer wrote before it ended
    // is then seen.
    const bool ended = PeerEnded();
    const uint64_t there = in_.written.load(std::memory_order_acquire) - read_;
    if (there > byte_size_) return Unavailable("the shared memory is damaged");
    if (there == 0 && ended) return Unavailable(HowItEnded());
    size_t left = std::min<size_t>(there, byte_size_ / 4);
    size_t moved = 0;
    for (const iovec& piece : pieces) {
      const size_t count = std::min(left, piece.iov_len);
      CopyOut(static_cast<std::byte*>(piece.iov_base), count);
      left -= count;
      moved += count;
      if (left == 0) break;
    }
    if (moved == 0) return moved;
    in_.read.store(read_);
    if (in_.writer_sleeps.load() != 0) FutexWake(in_.room_event);
    return moved;
  }

  void WaitWritable(Deadline deadline) override {
    Wait(out_.room_event, out_.writer_sleeps, write_spin_, deadline,
         [&] { return written_ - out_.read.load() < byte_size_; });
  }

  void WaitReadable(Deadline deadline) override {
    Wait(in_.data_event, in_.reader_sleeps, read_spin_, deadline,
         [&] { return in_.written.load() != read_; });
  }

  void Shut() override {
    shut_.store(true);
    out_.shut.store(1);
    in_.shut.store(1);
    WakeAll();
    (void)shutdown(life_.get(), SHUT_RDWR);
  }

  size_t read_ahead() const override { return 0; }

 private:
  bool PeerEnded() const { return peer_died_.load() || out_.shut.load() != 0; }
  const char* HowItEnded() const {
    return out_.shut.load() != 0 ? "the peer closed the channel"
                                 : "the peer died";
  }

  void WakeAll() {
    FutexWake(out_.room_event);
    FutexWake(out_.data_event);
    FutexWake(in_.room_event);
    FutexWake(in_.data_event);
  }

  // Nothing is ever sent over the socket once the memory was handed over, so
  // the only thing to come is its end.
  void WatchLife() {
    WaitFor(life_.get(), POLLIN, Deadline::Infinite());
    peer_died_.store(true);
    WakeAll();
  }

  // Of one direction, and of the thread that waits there.
  struct SpinRecord {
    uint32_t num_to_skip = 0;
    uint32_t penalty = 0;
  };

  template <typename Ready>
  void Wait(std::atomic<uint32_t>& event, std::atomic<uint32_t>& sleeps,
            SpinRecord& record, Deadline deadline, Ready ready) {
    auto over = [&] { return ready() || shut_.load() || PeerEnded(); };
    const bool spin = spin_ && record.num_to_skip == 0;
    if (record.num_to_skip > 0) --record.num_to_skip;
    const Deadline soon_after =
        spin ? Deadline::After(kSoonAfterSpin) : deadline;
    if (spin) {
      const Deadline spin_until = Earlier(deadline, Deadline::After(kSpin));
      do {
        // The time is asked for only now and then: it costs more than a look.
        for (int i = 0; i < 64; ++i) {
          if (over()) {
            record.penalty = 0;
            return;
          }
          Pause();
        }
      } while (!spin_until.expired());
    }
    const uint32_t seen = event.load();
    sleeps.store(1);
    if (!over()) FutexSleep(event, seen, deadline);
    sleeps.store(0);
    if (spin && ready() && !soon_after.expired()) {
      record.penalty = std::min(2 * record.penalty + 1, kMaxWaitsWithoutSpin);
      record.num_to_skip = record.penalty;
    }
  }

  void CopyIn(const std::byte* from, size_t count) {
    if (count == 0) return;
    const size_t at = written_ & (byte_size_ - 1);
    const size_t first = std::min(count, byte_size_ - at);
    std::memcpy(out_data_ + at, from, first);
    std::memcpy(out_data_, from + first, count - first);
    written_ += count;
  }

  void CopyOut(std::byte* to, size_t count) {
    if (count == 0) return;
    const size_t at = read_ & (byte_size_ - 1);
    const size_t first = std::min(count, byte_size_ - at);
    std::memcpy(to, in_data_ + at, first);
    std::memcpy(to + first, in_data_, count - first);
    read_ += count;
  }

  const base::Descriptor life_;
  const Mapping mapping_;
  const size_t byte_size_;  // of a ring; a power of two
  RingControl& out_;
  RingControl& in_;
  std::byte* const out_data_;
  const std::byte* const in_data_;
  const bool spin_;

  std::atomic<bool> shut_ = false;
  std::atomic<bool> peer_died_ = false;

  // Our own positions are kept here too: what the peer may have scribbled over
  // is never trusted with an address.
  alignas(kCacheLine) uint64_t written_ = 0;
  SpinRecord write_spin_;
  alignas(kCacheLine) uint64_t read_ = 0;
  SpinRecord read_spin_;

  std::jthread watcher_;  // last: it uses all of the above
};

// What goes over the socket beside the descriptor. Both ends are of one
// release on one machine, so plain memory does.
struct Handover {
  uint64_t ring_byte_size = 0;  // 0: there is none, and `reason` says why
  uint32_t spin = 0;
  char reason[244] = "";
};

Status SendHandover(int socket, const Handover& handover, int memory) {
  return SendDescriptor(socket, std::as_bytes(std::span(&handover, 1)), memory);
}

// Sealed, so that no process can shorten it under the other's feet.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Result<base::Descriptor> MakeMemory(size_t byte_size) {
  auto memory = base::Descriptor::OfThisProcess(
      memfd_create("fleet-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) return ErrnoStatus(errno, "shared memory");
  // Every page now: a page that cannot be had later would be a SIGBUS.
  if (fallocate(memory.get(), 0, 0, static_cast<off_t>(byte_size)) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) {
    return Unavailable(ErrnoStatus(errno, base::Concat("shared memory of ",
                                                       byte_size, " bytes"))
                           .message());
  }
  return memory;
}

}  // namespace

Result<std::unique_ptr<ByteStream>> OfferSharedMemory(
    base::Descriptor life, const SharedMemoryOptions& options) {
  if (options.ring_byte_size > kMaxRing) {
    return InvalidArgument("a ring of ", options.ring_byte_size, " bytes");
  }
  const size_t ring_byte_size =
      std::bit_ceil(std::max(options.ring_byte_size, kPage));
  const size_t byte_size = SegmentByteSize(ring_byte_size);
  Handover handover;
  Result<base::Descriptor> memory = MakeMemory(byte_size);
  if (!memory.ok()) {
    memory.status().message().copy(handover.reason,
                                   sizeof(handover.reason) - 1);
    // The lack of memory is the news, not that the peer left as well.
    (void)SendHandover(life.get(), handover, -1);
    return memory.status();
  }
  // New memory is zero, and zero is where every control begins.
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::Of(*memory, byte_size));
  const bool spin = options.processes_on_host > 0 &&
                    options.processes_on_host <= base::NumCores();
  handover.ring_byte_size = ring_byte_size;
  handover.spin = spin;
  RETURN_IF_ERROR(SendHandover(life.get(), handover, memory->get()));
  return std::make_unique<SharedMemoryStream>(std::move(life),
                                              std::move(mapping), 0, spin);
}

Result<std::unique_ptr<ByteStream>> TakeSharedMemory(base::Descriptor life,
                                                     Deadline deadline) {
  if (!WaitFor(life.get(), POLLIN, deadline)) {
    return DeadlineExceeded("no shared memory was handed over");
  }
  Handover handover;
  ASSIGN_OR_RETURN(base::Descriptor memory,
                   ReceiveDescriptor(life.get(), std::as_writable_bytes(
                                                     std::span(&handover, 1))));
  if (handover.ring_byte_size == 0) {
    handover.reason[sizeof(handover.reason) - 1] = '\0';
    return FailedPrecondition("the peer has no memory to share: ",
                              handover.reason);
  }
  const size_t ring_byte_size = handover.ring_byte_size;
  if (!std::has_single_bit(ring_byte_size) || ring_byte_size < kPage ||
      ring_byte_size > kMaxRing || !memory.valid()) {
    return DataLoss("what was handed over is no shared memory");
  }
  const size_t byte_size = SegmentByteSize(ring_byte_size);
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals ||
      lseek(memory.get(), 0, SEEK_END) != static_cast<off_t>(byte_size)) {
    return DataLoss("the shared memory that was handed over is not of ",
                    byte_size, " bytes, sealed");
  }
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::Of(memory, byte_size));
  const bool spin = handover.spin != 0;
  return std::make_unique<SharedMemoryStream>(std::move(life),
                                              std::move(mapping), 1, spin);
}

}  // namespace fleet::channel
