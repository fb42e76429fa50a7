// SPDX-License-Identifier: Apache-2.0

#include "fleet/channel/shared_memory.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <poll.h>
#include <thread>
#include <unistd.h>

#include "fleet/base/cores.h"
#include "fleet/base/futex.h"
#include "fleet/base/ring.h"
#include "fleet/base/shared_memory.h"
#include "fleet/channel/handover.h"

namespace fleet::channel {
namespace {

using base::Deadline;

constexpr size_t kCacheLine = 64;
constexpr size_t kMaxRing = size_t{1} << 40;

// Blocks of a ring. While one is read the next is written, and the others are
// room for an end that is late.
constexpr uint32_t kNumBlocks = 4;

constexpr char kDamaged[] = "the shared memory is damaged";

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

// One direction: a ring, and how its ends sleep. Each end writes its own line
// only.
//
// Sleeping: a side reads its event, says that it sleeps, looks once more, and
// sleeps while the event stays. The other side moves its position, then looks
// whether somebody sleeps, and if so changes the event and wakes. Both "say,
// then look" are sequentially consistent, so one of the two sees the other.
struct RingControl {
  alignas(kCacheLine) std::atomic<uint64_t> written;
  std::atomic<uint32_t> room_event;  // changed by the reader
  std::atomic<uint32_t> writer_sleeps;
  uint32_t places[kNumBlocks];

  alignas(kCacheLine) std::atomic<uint64_t> read;
  std::atomic<uint32_t> data_event;  // changed by the writer
  std::atomic<uint32_t> reader_sleeps;

  // Either end is finished with it.
  alignas(kCacheLine) std::atomic<uint32_t> shut;
};
static_assert(2 * sizeof(RingControl) <= base::kPageByteSize);

// The memory: a page with the two controls, then the two rings. Ring 0 goes
// from the process that made the memory to the one that took it.
size_t SegmentByteSize(size_t ring_byte_size) {
  return base::kPageByteSize + 2 * ring_byte_size;
}

RingControl& ControlOf(const base::Mapping& mapping, int ring) {
  return reinterpret_cast<RingControl*>(mapping.data())[ring];
}

base::RingMemory RingOf(const base::Mapping& mapping, int ring) {
  RingControl& control = ControlOf(mapping, ring);
  const size_t byte_size = (mapping.byte_size() - base::kPageByteSize) / 2;
  return {.written = &control.written,
          .read = &control.read,
          .places = control.places,
          .blocks = mapping.data() + base::kPageByteSize +
                    static_cast<size_t>(ring) * byte_size,
          .block_byte_size = byte_size / kNumBlocks,
          .num_blocks = kNumBlocks};
}

class SharedMemoryStream final : public ByteStream {
 public:
  // `out_ring` is 0 for the maker of the memory, 1 for the taker.
  SharedMemoryStream(base::Descriptor life, base::Mapping mapping, int out_ring,
                     bool spin)
      : life_(std::move(life)),
        mapping_(std::move(mapping)),
        out_(ControlOf(mapping_, out_ring)),
        in_(ControlOf(mapping_, 1 - out_ring)),
        most_(RingOf(mapping_, out_ring).block_byte_size),
        spin_(spin),
        writer_(RingOf(mapping_, out_ring), kNumBlocks),
        reader_(RingOf(mapping_, 1 - out_ring)),
        watcher_([this] { WatchLife(); }) {}

  ~SharedMemoryStream() override {
    Shut();
    watcher_.join();
  }

  Result<size_t> TryWrite(std::span<const iovec> pieces) override {
    if (PeerEnded()) return Unavailable(HowItEnded());
    // A block at a time, so that the reader copies out while the writer copies
    // in.
    const size_t moved = Move(
        pieces, [&](std::span<std::byte> bytes) { return writer_.Put(bytes); });
    if (writer_.damaged()) return Unavailable(kDamaged);
    if (moved == 0) return moved;
    writer_.Publish(std::memory_order_seq_cst);
    if (out_.reader_sleeps.load() != 0) base::FutexWake(out_.data_event);
    return moved;
  }

  Result<size_t> TryRead(std::span<const iovec> pieces) override {
    // Asked before the look at what is there: what a peer wrote before it ended
    // is then seen.
    const bool ended = PeerEnded();
    const size_t moved = Move(pieces, [&](std::span<std::byte> bytes) {
      return reader_.Take(bytes);
    });
    if (reader_.damaged()) return Unavailable(kDamaged);
    if (moved == 0) {
      if (ended && !reader_.has_bytes()) return Unavailable(HowItEnded());
      return moved;
    }
    reader_.Publish(std::memory_order_seq_cst);
    if (in_.writer_sleeps.load() != 0) base::FutexWake(in_.room_event);
    return moved;
  }

  void WaitWritable(Deadline deadline) override {
    Wait(out_.room_event, out_.writer_sleeps, write_spin_, deadline,
         [&] { return writer_.has_room(); });
  }

  void WaitReadable(Deadline deadline) override {
    Wait(in_.data_event, in_.reader_sleeps, read_spin_, deadline,
         [&] { return reader_.has_bytes(); });
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
    base::FutexWake(out_.room_event);
    base::FutexWake(out_.data_event);
    base::FutexWake(in_.room_event);
    base::FutexWake(in_.data_event);
  }

  // Nothing is ever sent over the socket once the memory was handed over, so
  // the only thing to come is its end.
  void WatchLife() {
    WaitFor(life_.get(), POLLIN, Deadline::Infinite());
    peer_died_.store(true);
    WakeAll();
  }

  // What the thread that waits in one direction knows of its spinning.
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
          base::Pause();
        }
      } while (!spin_until.expired());
    }
    const uint32_t seen = event.load();
    sleeps.store(1);
    if (!over()) base::FutexSleep(event, seen, deadline);
    sleeps.store(0);
    if (spin && ready() && !soon_after.expired()) {
      record.penalty = std::min(2 * record.penalty + 1, kMaxWaitsWithoutSpin);
      record.num_to_skip = record.penalty;
    }
  }

  // Goes through `pieces` with `move`, up to the size of a block. Returns how
  // many bytes it moved.
  template <typename MoveSome>
  size_t Move(std::span<const iovec> pieces, MoveSome move) {
    size_t moved = 0;
    for (const iovec& piece : pieces) {
      std::span<std::byte> bytes(static_cast<std::byte*>(piece.iov_base),
                                 std::min(piece.iov_len, most_ - moved));
      while (!bytes.empty()) {
        const size_t count = move(bytes);
        if (count == 0) return moved;
        moved += count;
        bytes = bytes.subspan(count);
      }
    }
    return moved;
  }

  const base::Descriptor life_;
  const base::Mapping mapping_;
  RingControl& out_;
  RingControl& in_;
  const size_t most_;  // moved at a time
  const bool spin_;

  std::atomic<bool> shut_ = false;
  std::atomic<bool> peer_died_ = false;

  // Apart from each other: two threads use them.
  alignas(kCacheLine) base::RingWriter writer_;
  SpinRecord write_spin_;
  alignas(kCacheLine) base::RingReader reader_;
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

// With all its pages: one that cannot be had later would be a SIGBUS.
Result<base::Mapping> MapWhole(const base::Descriptor& memory,
                               size_t byte_size) {
  ASSIGN_OR_RETURN(base::Mapping mapping, base::Mapping::Of(memory, byte_size));
  RETURN_IF_ERROR(mapping.Reserve(memory, 0, byte_size));
  return mapping;
}

}  // namespace

Result<std::unique_ptr<ByteStream>> OfferSharedMemory(
    base::Descriptor life, const SharedMemoryOptions& options) {
  if (options.ring_byte_size > kMaxRing) {
    return InvalidArgument("a ring of ", options.ring_byte_size, " bytes");
  }
  const size_t ring_byte_size =
      std::bit_ceil(std::max(options.ring_byte_size, base::kPageByteSize));
  const size_t byte_size = SegmentByteSize(ring_byte_size);
  Handover handover;
  Result<base::Descriptor> memory =
      base::MakeSharedMemory("fleet-channel", byte_size);
  // New memory is zero, and zero is where every control begins.
  Result<base::Mapping> mapping = memory.ok()
                                      ? MapWhole(*memory, byte_size)
                                      : Result<base::Mapping>(memory.status());
  if (!mapping.ok()) {
    mapping.status().message().copy(handover.reason,
                                    sizeof(handover.reason) - 1);
    // The lack of memory is the news, not that the peer left as well.
    (void)SendHandover(life.get(), handover, -1);
    return mapping.status();
  }
  const bool spin = options.processes_on_host > 0 &&
                    options.processes_on_host <= base::NumCores();
  handover.ring_byte_size = ring_byte_size;
  handover.spin = spin;
  RETURN_IF_ERROR(SendHandover(life.get(), handover, memory->get()));
  return std::make_unique<SharedMemoryStream>(std::move(life),
                                              *std::move(mapping), 0, spin);
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
  if (!std::has_single_bit(ring_byte_size) ||
      ring_byte_size < base::kPageByteSize || ring_byte_size > kMaxRing ||
      !memory.valid()) {
    return DataLoss("what was handed over is no shared memory");
  }
  const size_t byte_size = SegmentByteSize(ring_byte_size);
  ASSIGN_OR_RETURN(base::Mapping mapping, base::Mapping::Of(memory, byte_size));
  const bool spin = handover.spin != 0;
  return std::make_unique<SharedMemoryStream>(std::move(life),
                                              std::move(mapping), 1, spin);
}

}  // namespace fleet::channel
