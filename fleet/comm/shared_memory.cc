// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/shared_memory.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sched.h>
#include <string>
#include <utility>

#include "fleet/comm/left.h"
#include "fleet/comm/patience.h"
#include "fleet/comm/send_window.h"
#include "fleet/comm/shared_memory_communicator.h"

namespace fleet::comm {
namespace {

// How long a wait lets others run before it sleeps. A sleep and a wake cost
// some 10 us, on a virtual machine more, so much longer would gain nothing.
constexpr auto kSpin = std::chrono::microseconds(200);

// The longest sleep without a look at who has died.
constexpr auto kSlice = std::chrono::milliseconds(100);

size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Holds a region for a Buffer. A child that was forked has a copy of it, but
// gives nothing back in its parent's name.
struct Lease {
  explicit Lease(Region region) : region(std::move(region)) {}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    if (getpid() == process) region.released().fetch_add(1);
  }

  const Region region;
  const pid_t process = getpid();
};

constexpr char kDamaged[] = "the shared memory is damaged";

// What precedes the data of a send in its ring.
struct Letter {
  uint64_t count;
  DataType type;
};

std::string Describe(std::string_view what, ConstSpan data) {
  return base::Concat(what, "(", data.count, " x ", ToString(data.type), ")");
}

}  // namespace

SharedMemory::SharedMemory(const Meeting& meeting, CommunicatorOptions options,
                           std::unique_ptr<MemoryExchange> exchange,
                           base::Descriptor memory, base::Mapping mapping)
    : Communicator(meeting.rank, meeting.size, std::move(options)),
      exchange_(std::move(exchange)),
      memory_(std::move(memory)),
      mapping_(std::move(mapping)),
      control_(mapping_.data(), meeting.rank, meeting.size),
      stages_(mapping_.data() + Control::ByteSize(meeting.size)),
      inputs_(meeting.size),
      outputs_(meeting.size),
      senders_(meeting.size),
      receivers_(meeting.size) {}

SharedMemory::~SharedMemory() {
  Finish();
  // A child that was forked does not speak for its parent.
  if (getpid() == process_) control_.Leave();
}

size_t SharedMemory::ReservedByteSize(int size) {
  return Control::ByteSize(size) +
         static_cast<size_t>(size) * kNumSlots * kSlotByteSize;
}

size_t SharedMemory::SegmentByteSize(int size) {
  const auto n = static_cast<size_t>(size);
  return ReservedByteSize(size) + n * n * kRingByteSize;
}

Status SharedMemory::Open(int processes_on_host, Deadline deadline) {
  control_.Introduce();
  RETURN_IF_ERROR(DoBarrier({}, deadline));
  control_.Settle(processes_on_host);
  return OkStatus();
}

Status SharedMemory::DoBarrier(const Call& call, Deadline deadline) {
  RETURN_IF_ERROR(CheckOthers());
  Post(call);
  return WaitRound(round_, call, deadline);
}

Status SharedMemory::WaitForPost(int whom, uint64_t round, const Call& call,
                                 Deadline deadline) {
  const Line& line = control_.line(whom, round);
  return WaitLong({.whom = whom,
                   .ready = [&] { return Posted(line, round); },
                   .missing = [&] { return Missing(round); },
                   .what = [&] { return ToString(call); }},
                  deadline);
}

std::vector<int> SharedMemory::Missing(uint64_t round) const {
  std::vector<int> ranks;
  for (int i = 0; i < size(); ++i) {
    if (i != rank() && !Posted(control_.line(i, round), round)) {
      ranks.push_back(i);
    }
  }
  return ranks;
}

Status SharedMemory::WaitLong(const Waiting& waiting, Deadline deadline) {
  Patience patience(options(), deadline);
  auto waits_for = [&] {
    return base::Concat(waiting.what(), ": no sign of ",
                        RankList(waiting.missing()));
  };
  auto over = [&] { return waiting.ready() || broken() || control_.failed(); };
  if (control_.spin()) {
    const Deadline until = Earlier(deadline, Deadline::After(kSpin));
    do {
      for (int i = 0; i < 32; ++i) {
        if (over()) break;
        base::Pause();
      }
      sched_yield();
    } while (!over() && !until.expired());
  }
  Deadline look = patience.slice();
  while (true) {
    RETURN_IF_ERROR(waiting.stuck());
    const Deadline slice = Earlier(look, Deadline::After(kSlice));
    control_.Sleep(waiting.whom, slice, over);
    if (waiting.ready()) return OkStatus();
    if (broken()) return status();
    // A rank that failed in a later call has come to this one before.
    if (control_.failed() && !waiting.ready()) return CheckOthers();
    if (control_.left(waiting.whom) || slice.expired()) {
      const Status alive = CheckAlive(waiting.missing(), waiting.what());
      if (waiting.ready()) return OkStatus();
      RETURN_IF_ERROR(alive);
    }
    if (!look.expired()) continue;
    RETURN_IF_ERROR(patience.Look(waits_for));
    look = patience.slice();
  }
}

Status SharedMemory::Look() {
  if (broken()) return status();
  RETURN_IF_ERROR(CheckOthers());
  return options().interrupt ? options().interrupt() : OkStatus();
}

Status SharedMemory::CheckAlive(std::vector<int> ranks,
                                const std::string& what) {
  std::vector<int> left;
  for (int i : ranks) {
    if (control_.left(i)) left.push_back(i);
  }
  if (!left.empty()) {
    return LeftBefore(what, left);
  }
  for (int i : exchange_->Gone()) {
    // Left and gone is not dead.
    if (control_.left(i) ||
        std::find(ranks.begin(), ranks.end(), i) == ranks.end()) {
      continue;
    }
    return Unavailable(what, ": rank ", i, " died");
  }
  return OkStatus();
}

Result<Buffer> SharedMemory::DoAllocate(const Call& call, size_t byte_size,
                                        Deadline deadline) {
  RETURN_IF_ERROR(DoBarrier(call, deadline));
  // What no rank uses any more can go: no rank will name it again.
  std::erase_if(regions_, [&](const Region& region) {
    return region.released().load() == static_cast<uint32_t>(size());
  });
  ASSIGN_OR_RETURN(Region region, MakeRegion(byte_size, deadline));
  Post(call);
  RETURN_IF_ERROR(WaitRound(round_, call, deadline));
  region.mapping->Prefault();
  regions_.push_back(region);
  const std::span<std::byte> bytes(region.part(rank()), byte_size);
  return Buffer(std::make_shared<Lease>(std::move(region)), bytes);
}

// Every rank takes the pages of its own part, so that they are near its core.
Result<Region> SharedMemory::MakeRegion(size_t byte_size, Deadline deadline) {
  Region region;
  region.id = ++num_regions_;
  region.part_byte_size = byte_size;
  region.stride = RoundUp(std::max<size_t>(1, byte_size), base::kPageByteSize);
  if (region.stride < byte_size ||
      region.stride > (size_t{1} << 62) / static_cast<size_t>(size())) {
    return Unavailable("shared memory of ", byte_size, " bytes");
  }
  const size_t total =
      base::kPageByteSize + static_cast<size_t>(size()) * region.stride;
  base::Descriptor memory;
  if (rank() == 0) {
    // Asked once for all ranks together; each sees only its own part below.
    const Status available = base::CheckAvailable(total);
    Result<base::Descriptor> made = available.ok()
                                        ? base::MakeSharedMemory("fleet", total)
                                        : Result<base::Descriptor>(available);
    RETURN_IF_ERROR(exchange_->Give(made));
    memory = std::move(*made);
  } else {
    ASSIGN_OR_RETURN(memory, exchange_->Take([&] { return Look(); }, deadline));
  }
  ASSIGN_OR_RETURN(base::Mapping mapping, base::Mapping::Of(memory, total));
  const size_t begin =
      rank() == 0
          ? 0
          : base::kPageByteSize + static_cast<size_t>(rank()) * region.stride;
  RETURN_IF_ERROR(mapping.Reserve(
      memory, begin, region.stride + (rank() == 0 ? base::kPageByteSize : 0)));
  region.mapping = std::make_shared<base::Mapping>(std::move(mapping));
  return region;
}

Status SharedMemory::DoSend(ConstSpan data, int to, Deadline deadline) {
  RETURN_IF_ERROR(CheckOthers());
  if (control_.left(to)) {
    return Unavailable(Describe("send", data), " to rank ", to, ", which left");
  }
  const Letter letter{data.count, data.type};
  RETURN_IF_ERROR(
      WriteRing(std::as_bytes(std::span(&letter, 1)), to, data, deadline));
  return WriteRing({data.data, data.byte_size()}, to, data, deadline);
}

Status SharedMemory::DoRecv(Span data, int from, Deadline deadline) {
  RETURN_IF_ERROR(CheckOthers());
  Letter letter{};
  RETURN_IF_ERROR(ReadRing(std::as_writable_bytes(std::span(&letter, 1)), from,
                           data, deadline));
  if (letter.count != data.count || letter.type != data.type) {
    return FailedPrecondition(
        "rank ", rank(), " called ", Describe("recv", data), " from rank ",
        from, ", which sent ", letter.count, " x ", ToString(letter.type));
  }
  return ReadRing({data.data, data.byte_size()}, from, data, deadline);
}

base::RingMemory SharedMemory::Ring(int from, int to, std::byte* data) const {
  RingState& state = control_.ring(from, to);
  return {.written = &state.written,
          .read = &state.read,
          .places = reinterpret_cast<uint32_t*>(data),
          .blocks = data + kRingPlacesByteSize,
          .block_byte_size = kRingBlockByteSize,
          .num_blocks = kRingBlocks};
}

size_t SharedMemory::RingOffset(int from, int to) const {
  return ReservedByteSize(size()) +
         (static_cast<size_t>(from) * size() + to) * kRingByteSize;
}

Result<SharedMemory::SendRing*> SharedMemory::Sender(int peer) {
  std::optional<SendRing>& ring = senders_[peer];
  if (ring.has_value()) return &*ring;
  ASSIGN_OR_RETURN(
      base::Mapping mapping,
      base::Mapping::OfPart(memory_, RingOffset(rank(), peer), kRingByteSize));
  RETURN_IF_ERROR(mapping.Reserve(
      memory_, 0, kRingPlacesByteSize + kFirstRingBlocks * kRingBlockByteSize));
  const base::RingMemory memory = Ring(rank(), peer, mapping.data());
  ring.emplace(
      SendRing{std::move(mapping), base::RingWriter(memory, kFirstRingBlocks)});
  return &*ring;
}

Result<SharedMemory::RecvRing*> SharedMemory::Receiver(int peer) {
  std::optional<RecvRing>& ring = receivers_[peer];
  if (ring.has_value()) return &*ring;
  ASSIGN_OR_RETURN(
      base::Mapping mapping,
      base::Mapping::OfPart(memory_, RingOffset(peer, rank()), kRingByteSize));
  const base::RingMemory memory = Ring(peer, rank(), mapping.data());
  ring.emplace(RecvRing{std::move(mapping), base::RingReader(memory)});
  return &*ring;
}

Status SharedMemory::WaitForRoom(SendRing& ring, int to, ConstSpan data,
                                 Deadline deadline) {
  auto has_room = [&] { return ring.writer.has_room(); };
  const uint32_t usable = ring.writer.usable();
  if (usable < kRingBlocks) {
    // Blocks that were used are in a cache; so a receiver that is at it gets a
    // moment.
    control_.Sleep(to, Earlier(deadline, Deadline::After(kSpin)),
                   [&] { return has_room() || broken() || control_.failed(); });
    if (has_room()) return OkStatus();
    const uint32_t more = std::min(usable, kRingBlocks - usable);
    RETURN_IF_ERROR(ring.mapping.Reserve(
        memory_, kRingPlacesByteSize + usable * kRingBlockByteSize,
        more * kRingBlockByteSize));
    ring.writer.Extend(more);
    return OkStatus();
  }
  // Only the control of the peer's ring is looked at.
  const base::RingMemory theirs = Ring(to, rank(), mapping_.data());
  control_.BeginSend(to);
  const Status waited = WaitLong(
      {.whom = to,
       .ready = has_room,
       .missing = [&] { return std::vector<int>{to}; },
       .what =
           [&] {
             return base::Concat(Describe("send", data), " to rank ", to);
           },
       .stuck = [&]() -> Status {
         if (!control_.sends_to_me(to) || has_room() || !IsFull(theirs)) {
           return OkStatus();
         }
         return BothSend(rank(), to);
       }},
      deadline);
  control_.EndSend();
  return waited;
}

Status SharedMemory::WriteRing(std::span<const std::byte> bytes, int to,
                               ConstSpan data, Deadline deadline) {
  ASSIGN_OR_RETURN(SendRing* const ring, Sender(to));
  base::RingWriter& writer = ring->writer;
  while (!bytes.empty()) {
    if (!Quickly([&] { return writer.has_room(); })) {
      RETURN_IF_ERROR(WaitForRoom(*ring, to, data, deadline));
    }
    // A block at a time, so that the other side copies out meanwhile.
    const size_t count = writer.Put(bytes);
    if (writer.damaged()) return DataLoss(kDamaged);
    writer.Publish(std::memory_order_release);
    control_.WakeWaiter(to);
    bytes = bytes.subspan(count);
  }
  return OkStatus();
}

Status SharedMemory::ReadRing(std::span<std::byte> bytes, int from,
                              ConstSpan data, Deadline deadline) {
  ASSIGN_OR_RETURN(RecvRing* const ring, Receiver(from));
  base::RingReader& reader = ring->reader;
  auto has_bytes = [&] { return reader.has_bytes(); };
  while (!bytes.empty()) {
    if (!Quickly(has_bytes)) {
      RETURN_IF_ERROR(
          WaitLong({.whom = from,
                    .ready = has_bytes,
                    .missing = [&] { return std::vector<int>{from}; },
                    .what =
                        [&] {
                          return base::Concat(Describe("recv", data),
                                              " from rank ", from);
                        }},
                   deadline));
    }
    const size_t count = reader.Take(bytes);
    if (reader.damaged()) return DataLoss(kDamaged);
    reader.Publish(std::memory_order_release);
    control_.WakeWaiter(from);
    bytes = bytes.subspan(count);
  }
  return OkStatus();
}

namespace {

struct Segment {
  base::Descriptor memory;
  base::Mapping mapping;
};

// By rank 0.
Result<Segment> MakeSegment(const Meeting& meeting) {
  const size_t byte_size = SharedMemory::SegmentByteSize(meeting.size);
  Segment segment;
  ASSIGN_OR_RETURN(segment.memory, base::MakeSharedMemory("fleet", byte_size));
  const size_t reserved = SharedMemory::ReservedByteSize(meeting.size);
  ASSIGN_OR_RETURN(segment.mapping,
                   base::Mapping::OfPart(segment.memory, 0, reserved));
  RETURN_IF_ERROR(segment.mapping.Reserve(segment.memory, 0, reserved));
  return segment;
}

Result<Segment> ShareSegment(const Meeting& meeting, MemoryExchange& exchange,
                             const base::InterruptCheck& interrupt,
                             Deadline deadline) {
  if (meeting.rank == 0) {
    Result<Segment> segment = MakeSegment(meeting);
    if (!segment.ok()) {
      return exchange.Give(Result<base::Descriptor>(segment.status()));
    }
    Result<base::Descriptor> memory = std::move(segment->memory);
    RETURN_IF_ERROR(exchange.Give(memory));
    segment->memory = std::move(*memory);
    return segment;
  }
  Segment segment;
  ASSIGN_OR_RETURN(segment.memory, exchange.Take(interrupt, deadline));
  ASSIGN_OR_RETURN(
      segment.mapping,
      base::Mapping::OfPart(segment.memory, 0,
                            SharedMemory::ReservedByteSize(meeting.size)));
  return segment;
}

Result<std::unique_ptr<Communicator>> Connect(const Meeting& meeting,
                                              CommunicatorOptions options,
                                              Deadline deadline) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<MemoryExchange> exchange,
      MemoryExchange::Connect(meeting, options.interrupt, deadline));
  ASSIGN_OR_RETURN(Segment segment, ShareSegment(meeting, *exchange,
                                                 options.interrupt, deadline));
  auto communicator = std::make_unique<SharedMemory>(
      meeting, std::move(options), std::move(exchange),
      std::move(segment.memory), std::move(segment.mapping));
  RETURN_IF_ERROR(communicator->Open(meeting.processes_on_host, deadline));
  return communicator;
}

}  // namespace

Result<std::unique_ptr<Communicator>> ConnectSharedMemory(
    const Meeting& meeting, CommunicatorOptions options, Deadline deadline) {
  const std::string who = base::Concat(options.name, ": rank ", meeting.rank,
                                       ": connect by shared memory");
  Result<std::unique_ptr<Communicator>> connected =
      Connect(meeting, std::move(options), deadline);
  if (!connected.ok()) return connected.status().WithContext(who);
  return connected;
}

}  // namespace fleet::comm
