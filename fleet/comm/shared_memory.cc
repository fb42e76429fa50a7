// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/shared_memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <sched.h>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "fleet/comm/patience.h"
#include "fleet/comm/reduce.h"
#include "fleet/comm/shared_memory_control.h"
#include "fleet/comm/shared_memory_meeting.h"
#include "fleet/comm/shared_memory_segment.h"

namespace fleet::comm {
namespace {

// Of one slot of a rank's staging memory. Two ranks' slots in use fit into a
// second-level cache beside the data.
constexpr size_t kSlotByteSize = size_t{128} << 10;

// Data up to this size, in all ranks together, is combined by every rank: one
// round instead of two.
constexpr size_t kOneRoundByteSize = size_t{64} << 10;

// Of a ring for send and receive; taken when it is first used.
constexpr size_t kRingByteSize = size_t{256} << 10;

constexpr size_t kCacheLine = 64;

// Looks without a pause, then with one, then letting others run, then sleep.
// The first is for ranks that arrive together: a pause is as long as the
// smallest collective. A sleep and a wake cost some 10 us, on a virtual machine
// more, so spinning for much longer gains nothing.
constexpr int kQuickLooks = 200;
constexpr int kPauses = 400;
constexpr auto kSpin = std::chrono::microseconds(200);

// The longest sleep without a look at who has died.
constexpr auto kSlice = std::chrono::milliseconds(100);

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

void Copy(std::byte* to, const std::byte* from, size_t byte_size) {
  if (to != from && byte_size != 0) std::memcpy(to, from, byte_size);
}

// A call but its count and number, in one word.
uint64_t Pack(const Call& call) {
  return static_cast<uint64_t>(call.kind) |
         static_cast<uint64_t>(call.op) << 8 |
         static_cast<uint64_t>(call.type) << 16 |
         static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32;
}

// Of a line of the same round as `mine`, so its number is the same.
Call Unpack(const Line& line, const Call& mine) {
  return {.kind = static_cast<CallKind>(line.what & 0xff),
          .op = static_cast<ReduceOp>(line.what >> 8 & 0xff),
          .type = static_cast<DataType>(line.what >> 16 & 0xff),
          .root = static_cast<int32_t>(line.what >> 32),
          .count = line.count,
          .number = mine.number};
}

// Memory from Allocate: a page of control, then a part for each rank.
struct Region {
  uint32_t id = 0;  // the number of its Allocate, from 1
  std::shared_ptr<Mapping> mapping;
  size_t part_byte_size = 0;
  size_t stride = 0;

  std::byte* part(int rank) const {
    return mapping->data() + kPageByteSize + static_cast<size_t>(rank) * stride;
  }
  // How many ranks no longer use it.
  std::atomic<uint32_t>& released() const {
    return *reinterpret_cast<std::atomic<uint32_t>*>(mapping->data());
  }
};

// Holds a region for a Buffer.
struct Lease {
  explicit Lease(Region region) : region(std::move(region)) {}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { region.released().fetch_add(1); }

  const Region region;
};

// Where data lies in a region; `region` is 0 when it lies elsewhere.
struct Place {
  uint32_t region = 0;
  uint64_t offset = 0;
};
static_assert(sizeof(Place) <= kInlineByteSize);

// What precedes the data of a send in its ring.
struct Letter {
  uint64_t count;
  DataType type;
};

std::string Describe(std::string_view what, ConstSpan data) {
  return base::Concat(what, "(", data.count, " x ", ToString(data.type), ")");
}

class SharedMemory final : public Communicator {
 public:
  SharedMemory(const Meeting& meeting, CommunicatorOptions options,
               std::unique_ptr<MemoryExchange> exchange, channel::Fd memory,
               Mapping mapping)
      : Communicator(meeting.rank, meeting.size, std::move(options)),
        exchange_(std::move(exchange)),
        memory_(std::move(memory)),
        mapping_(std::move(mapping)),
        control_(mapping_.data(), meeting.rank, meeting.size),
        stages_(mapping_.data() + Control::ByteSize(meeting.size)),
        inputs_(meeting.size),
        outputs_(meeting.size),
        has_ring_(meeting.size) {}

  ~SharedMemory() override {
    Finish();
    // A child that was forked does not speak for its parent.
    if (getpid() == process_) control_.Leave();
  }

  static size_t StagesByteSize(int size) {
    return static_cast<size_t>(size) * kNumSlots * kSlotByteSize;
  }
  // Controls and stages, which exist from the start.
  static size_t ReservedByteSize(int size) {
    return Control::ByteSize(size) + StagesByteSize(size);
  }
  static size_t SegmentByteSize(int size) {
    const auto n = static_cast<size_t>(size);
    return ReservedByteSize(size) + n * n * kRingByteSize;
  }

  // The first round: all ranks have the memory.
  Status Open(int processes_on_host, Deadline deadline) {
    control_.Introduce();
    RETURN_IF_ERROR(DoBarrier({}, deadline));
    control_.Settle(processes_on_host);
    return OkStatus();
  }

  std::string_view backend() const override { return "shared memory"; }

 protected:
  Result<Buffer> DoAllocate(const Call& call, size_t byte_size,
                            Deadline deadline) override;
  Status DoAllReduce(const Call& call, Span data, Deadline deadline) override;
  Status DoReduce(const Call& call, Span data, Deadline deadline) override;
  Status DoBroadcast(const Call& call, Span data, Deadline deadline) override;
  Status DoAllGather(const Call& call, ConstSpan mine, Span all,
                     Deadline deadline) override;
  Status DoReduceScatter(const Call& call, ConstSpan all, Span mine,
                         Deadline deadline) override;
  Status DoScatter(const Call& call, ConstSpan all, Span mine,
                   Deadline deadline) override;
  Status DoGather(const Call& call, ConstSpan mine, Span all,
                  Deadline deadline) override;
  Status DoAllToAll(const Call& call, ConstSpan from, Span to,
                    Deadline deadline) override;
  Status DoBarrier(const Call& call, Deadline deadline) override {
    RETURN_IF_ERROR(CheckOthers());
    Post(call);
    return WaitRound(round_, call, deadline);
  }
  Status DoSend(ConstSpan data, int to, Deadline deadline) override;
  Status DoRecv(Span data, int from, Deadline deadline) override;
  void DoAbort() override { control_.Fail(status()); }

 private:
  std::byte* Stage(int rank, uint64_t round) const {
    return stages_ +
           (static_cast<size_t>(rank) * kNumSlots + round % kNumSlots) *
               kSlotByteSize;
  }
  std::byte* RingData(int from, int to) const {
    return mapping_.data() + RingOffset(from, to);
  }
  size_t RingOffset(int from, int to) const {
    return ReservedByteSize(size()) +
           (static_cast<size_t>(from) * size() + to) * kRingByteSize;
  }

  // Where to write for the next round.
  Line& NextLine() const { return control_.line(rank(), round_ + 1); }
  std::byte* NextStage() const { return Stage(rank(), round_ + 1); }

  // Says that this rank's part of the next round is written.
  void Post(const Call& call) {
    ++round_;
    Line& line = control_.line(rank(), round_);
    line.what = Pack(call);
    line.count = call.count;
    line.round.store(round_, std::memory_order_release);
    control_.WakeWaiters();
  }

  // Until all ranks have posted `round`, in the same call.
  Status WaitRound(uint64_t round, const Call& call, Deadline deadline) {
    const uint64_t what = Pack(call);
    for (int i = 0; i < size(); ++i) {
      if (i == rank()) continue;
      const Line& line = control_.line(i, round);
      if (!Quickly([&] { return Posted(line, round); })) {
        RETURN_IF_ERROR(WaitLong(
            i, deadline, [&] { return Posted(line, round); },
            [&] { return Missing(round); }, [&] { return ToString(call); }));
      }
      if (line.what != what || line.count != call.count) {
        return Mismatch(rank(), call, i, Unpack(line, call));
      }
    }
    return OkStatus();
  }

  static bool Posted(const Line& line, uint64_t round) {
    return line.round.load(std::memory_order_acquire) == round;
  }

  std::vector<int> Missing(uint64_t round) const {
    std::vector<int> ranks;
    for (int i = 0; i < size(); ++i) {
      if (i != rank() && !Posted(control_.line(i, round), round)) {
        ranks.push_back(i);
      }
    }
    return ranks;
  }

  template <typename Ready>
  bool Quickly(Ready ready) const {
    if (ready()) return true;
    if (!control_.spin()) return false;
    for (int i = 0; i < kQuickLooks; ++i) {
      if (ready()) return true;
    }
    for (int i = 0; i < kPauses; ++i) {
      if (ready()) return true;
      Pause();
    }
    return false;
  }

  // Until `whom` has made ready() true. `missing` are all ranks whose absence
  // keeps the call from its end, `what` is the call.
  template <typename Ready, typename MissingRanks, typename What>
  [[gnu::noinline]] Status WaitLong(int whom, Deadline deadline, Ready ready,
                                    MissingRanks missing, What what);
  // The failure of another rank. That rank has told the job; this one only
  // ends.
  Status CheckOthers() {
    if (!control_.failed()) [[likely]]
      return OkStatus();
    Abort(control_.failure());
    return status();
  }
  // What ends a wait that is no WaitLong.
  Status Look() {
    if (broken()) return status();
    RETURN_IF_ERROR(CheckOthers());
    return options().interrupt ? options().interrupt() : OkStatus();
  }
  // Unavailable when one of `ranks` has left or died.
  Status CheckAlive(std::vector<int> ranks, const std::string& what);

  // One piece after the other through the staging memory: in(stage, begin, n)
  // writes bytes [begin, begin + n) of this rank's part, out(round, begin, n)
  // reads those of the others. While a piece is read, the next one is already
  // there.
  template <typename In, typename Out>
  Status InPieces(const Call& call, size_t byte_size, size_t piece,
                  Deadline deadline, In in, Out out) {
    RETURN_IF_ERROR(CheckOthers());
    const size_t pieces = std::max<size_t>(1, (byte_size + piece - 1) / piece);
    for (size_t i = 0; i < pieces; ++i) {
      const size_t begin = i * piece;
      in(NextStage(), begin, std::min(piece, byte_size - begin));
      Post(call);
      if (i == 0) continue;
      RETURN_IF_ERROR(WaitRound(round_ - 1, call, deadline));
      out(round_ - 1, begin - piece, piece);
    }
    RETURN_IF_ERROR(WaitRound(round_, call, deadline));
    const size_t begin = (pieces - 1) * piece;
    out(round_, begin, byte_size - begin);
    return OkStatus();
  }

  // Of a part for each rank in one slot.
  size_t PiecePerRank() const {
    return kSlotByteSize / size() / kCacheLine * kCacheLine;
  }

  // Combines `n` bytes of this rank's `data` with what lies at `offset` in the
  // other ranks' stages of `round`.
  void CombineStaged(const Call& call, const std::byte* data, uint64_t round,
                     size_t offset, size_t n, std::byte* to) {
    for (int i = 0; i < size(); ++i) {
      inputs_[i] = i == rank() ? data : Stage(i, round) + offset;
    }
    CombineAll(call.op, call.type, inputs_, {&to, 1}, n / ByteSize(call.type));
  }

  Status AllReduceInline(const Call& call, Span data, Deadline deadline);
  Status AllReduceByAll(const Call& call, Span data, Deadline deadline);
  Status AllReduceInSlices(const Call& call, Span data, Deadline deadline);
  Status AllReduceInPlace(const Call& call, Span data,
                          std::span<std::byte* const> buffers,
                          Deadline deadline);

  // Elements [begin, ...) of `data`, as many as a slot holds.
  static Span PieceOf(Span data, size_t begin) {
    const size_t width = ByteSize(data.type);
    return {data.data + begin * width,
            std::min(data.count - begin, kSlotByteSize / width), data.type};
  }
  void StagePiece(Span piece);
  void CombineSlice(const Call& call, Span piece, uint64_t round);
  void TakeSlices(Span piece, uint64_t round);

  // The elements that rank `i` combines of `count`: whole cache lines.
  std::pair<size_t, size_t> Slice(int i, size_t count, DataType type) const {
    const size_t unit = kCacheLine / ByteSize(type);
    const size_t per = RoundUp((count + size() - 1) / size(), unit);
    const size_t begin = std::min(count, per * static_cast<size_t>(i));
    return {begin, std::min(per, count - begin)};
  }

  Place Find(const std::byte* data, size_t byte_size) const {
    for (const Region& region : regions_) {
      const std::byte* part = region.part(rank());
      if (data >= part && data + byte_size <= part + region.part_byte_size) {
        return {region.id, static_cast<uint64_t>(data - part)};
      }
    }
    return {};
  }
  // Where `place` of `rank` is here; null when it is not in memory that this
  // rank knows.
  std::byte* At(const Place& place, int rank, size_t byte_size) const {
    for (const Region& region : regions_) {
      if (region.id != place.region) continue;
      if (place.offset + byte_size > region.part_byte_size) return nullptr;
      return region.part(rank) + place.offset;
    }
    return nullptr;
  }
  Result<Region> MakeRegion(size_t byte_size, Deadline deadline);

  Status WriteRing(std::span<const std::byte> bytes, int to, ConstSpan data,
                   Deadline deadline);
  Status ReadRing(std::span<std::byte> bytes, int from, ConstSpan data,
                  Deadline deadline);

  const std::unique_ptr<MemoryExchange> exchange_;
  const channel::Fd memory_;
  const Mapping mapping_;
  Control control_;
  std::byte* const stages_;

  const pid_t process_ = getpid();

  uint64_t round_ = 0;  // posted last
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;

  uint32_t num_regions_ = 0;
  std::vector<Region> regions_;
  std::vector<bool> has_ring_;  // to that rank
};

template <typename Ready, typename MissingRanks, typename What>
Status SharedMemory::WaitLong(int whom, Deadline deadline, Ready ready,
                              MissingRanks missing, What what) {
  Patience patience(options(), deadline);
  auto waits_for = [&] {
    return base::Concat(what(), ": no sign of ", RankList(missing()));
  };
  auto over = [&] { return ready() || broken() || control_.failed(); };
  if (control_.spin()) {
    const Deadline until = Earlier(deadline, Deadline::After(kSpin));
    do {
      for (int i = 0; i < 32; ++i) {
        if (over()) break;
        Pause();
      }
      sched_yield();
    } while (!over() && !until.expired());
  }
  Deadline look = patience.slice();
  while (true) {
    const Deadline slice = Earlier(look, Deadline::After(kSlice));
    control_.Sleep(whom, slice, over);
    if (ready()) return OkStatus();
    if (broken()) return status();
    RETURN_IF_ERROR(CheckOthers());
    if (control_.left(whom) || slice.expired()) {
      const Status alive = CheckAlive(missing(), what());
      if (ready()) return OkStatus();
      RETURN_IF_ERROR(alive);
    }
    if (!look.expired()) continue;
    RETURN_IF_ERROR(patience.Look(waits_for));
    look = patience.slice();
  }
}

Status SharedMemory::CheckAlive(std::vector<int> ranks,
                                const std::string& what) {
  std::vector<int> left;
  for (int i : ranks) {
    if (control_.left(i)) left.push_back(i);
  }
  if (!left.empty()) {
    return Unavailable(what, ": ", RankList(left), " left before it");
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

Status SharedMemory::DoAllReduce(const Call& call, Span data,
                                 Deadline deadline) {
  RETURN_IF_ERROR(CheckOthers());
  const size_t byte_size = data.byte_size();
  if (byte_size <= kInlineByteSize) {
    return AllReduceInline(call, data, deadline);
  }
  if (size() == 1) return OkStatus();
  if (byte_size * size() <= kOneRoundByteSize) {
    return AllReduceByAll(call, data, deadline);
  }
  // All ranks say where their data is, and who must copy has copied the first
  // piece; then all know the way to go.
  const Place mine = Find(data.data, byte_size);
  if (mine.region == 0) StagePiece(PieceOf(data, 0));
  std::memcpy(NextLine().payload, &mine, sizeof(mine));
  Post(call);
  RETURN_IF_ERROR(WaitRound(round_, call, deadline));
  int num_in_place = 0;
  for (int i = 0; i < size(); ++i) {
    Place place;
    std::memcpy(&place, control_.line(i, round_).payload, sizeof(place));
    outputs_[i] = At(place, i, byte_size);
    num_in_place += outputs_[i] != nullptr;
  }
  if (num_in_place == size()) {
    return AllReduceInPlace(call, data, outputs_, deadline);
  }
  if (num_in_place != 0) {
    StagePiece(PieceOf(data, 0));
    Post(call);
    RETURN_IF_ERROR(WaitRound(round_, call, deadline));
  }
  return AllReduceInSlices(call, data, deadline);
}

Status SharedMemory::AllReduceInline(const Call& call, Span data,
                                     Deadline deadline) {
  Copy(NextLine().payload, data.data, data.byte_size());
  Post(call);
  RETURN_IF_ERROR(WaitRound(round_, call, deadline));
  for (int i = 0; i < size(); ++i) {
    inputs_[i] = control_.line(i, round_).payload;
  }
  CombineAll(call.op, call.type, inputs_, {&data.data, 1}, data.count);
  return OkStatus();
}

// Every rank combines everything itself: one round.
Status SharedMemory::AllReduceByAll(const Call& call, Span data,
                                    Deadline deadline) {
  Copy(NextStage(), data.data, data.byte_size());
  Post(call);
  RETURN_IF_ERROR(WaitRound(round_, call, deadline));
  CombineStaged(call, data.data, round_, 0, data.byte_size(), data.data);
  return OkStatus();
}

// Of two ranks, each stages what the other combines.
void SharedMemory::StagePiece(Span piece) {
  const size_t width = ByteSize(piece.type);
  const auto [begin, count] = size() > 2
                                  ? std::pair(size_t{0}, piece.count)
                                  : Slice(1 - rank(), piece.count, piece.type);
  Copy(NextStage() + begin * width, piece.data + begin * width, count * width);
}

// The result goes into `piece` and to where the others take it from. Of two
// ranks that is the other's input: it has the cache lines next. With more it is
// where this rank's own input of the slice was, which nobody reads.
void SharedMemory::CombineSlice(const Call& call, Span piece, uint64_t round) {
  const auto [begin, count] = Slice(rank(), piece.count, piece.type);
  const size_t offset = begin * ByteSize(piece.type);
  for (int i = 0; i < size(); ++i) {
    inputs_[i] = (i == rank() ? piece.data : Stage(i, round)) + offset;
  }
  std::byte* const outputs[] = {
      piece.data + offset,
      Stage(size() == 2 ? 1 - rank() : rank(), round) + offset};
  CombineAll(call.op, call.type, inputs_, outputs, count);
}

void SharedMemory::TakeSlices(Span piece, uint64_t round) {
  const size_t width = ByteSize(piece.type);
  for (int i = 0; i < size(); ++i) {
    if (i == rank()) continue;
    const auto [begin, count] = Slice(i, piece.count, piece.type);
    Copy(piece.data + begin * width,
         Stage(size() == 2 ? rank() : i, round) + begin * width, count * width);
  }
}

// Piece by piece; of each, a rank combines one slice, and the others take the
// result. The first piece is staged and posted by all. While a rank combines
// its slice of one piece, it stages the next and takes the results of the one
// before: one round for each piece, and one more.
Status SharedMemory::AllReduceInSlices(const Call& call, Span data,
                                       Deadline deadline) {
  const size_t step = kSlotByteSize / ByteSize(data.type);
  for (size_t begin = 0; begin < data.count; begin += step) {
    const bool is_last = begin + step >= data.count;
    CombineSlice(call, PieceOf(data, begin), round_);
    if (!is_last) StagePiece(PieceOf(data, begin + step));
    // Behind the last round others may begin a call that writes two rounds
    // ahead, into what is taken here.
    if (is_last && begin > 0) {
      TakeSlices(PieceOf(data, begin - step), round_ - 1);
    }
    Post(call);
    if (!is_last && begin > 0) {
      TakeSlices(PieceOf(data, begin - step), round_ - 2);
    }
    RETURN_IF_ERROR(WaitRound(round_, call, deadline));
    if (is_last) TakeSlices(PieceOf(data, begin), round_ - 1);
  }
  return OkStatus();
}

// The owner of a slice writes the result into the buffers of all ranks, so
// that nothing is left to do when all owners are done.
Status SharedMemory::AllReduceInPlace(const Call& call, Span data,
                                      std::span<std::byte* const> buffers,
                                      Deadline deadline) {
  const auto [begin, count] = Slice(rank(), data.count, call.type);
  for (int i = 0; i < size(); ++i) {
    outputs_[i] = buffers[i] + begin * ByteSize(call.type);
    inputs_[i] = outputs_[i];
  }
  CombineAll(call.op, call.type, inputs_, outputs_, count);
  Post(call);
  return WaitRound(round_, call, deadline);
}

Status SharedMemory::DoReduce(const Call& call, Span data, Deadline deadline) {
  const bool is_root = rank() == call.root;
  return InPieces(
      call, data.byte_size(), kSlotByteSize, deadline,
      [&](std::byte* stage, size_t begin, size_t n) {
        if (!is_root) Copy(stage, data.data + begin, n);
      },
      [&](uint64_t round, size_t begin, size_t n) {
        std::byte* at = data.data + begin;
        if (is_root) CombineStaged(call, at, round, 0, n, at);
      });
}

Status SharedMemory::DoBroadcast(const Call& call, Span data,
                                 Deadline deadline) {
  const bool is_root = rank() == call.root;
  return InPieces(
      call, data.byte_size(), kSlotByteSize, deadline,
      [&](std::byte* stage, size_t begin, size_t n) {
        if (is_root) Copy(stage, data.data + begin, n);
      },
      [&](uint64_t round, size_t begin, size_t n) {
        if (!is_root) Copy(data.data + begin, Stage(call.root, round), n);
      });
}

Status SharedMemory::DoAllGather(const Call& call, ConstSpan mine, Span all,
                                 Deadline deadline) {
  const size_t part = mine.byte_size();
  return InPieces(
      call, part, kSlotByteSize, deadline,
      [&](std::byte* stage, size_t begin, size_t n) {
        Copy(stage, mine.data + begin, n);
      },
      [&](uint64_t round, size_t begin, size_t n) {
        for (int i = 0; i < size(); ++i) {
          Copy(all.data + static_cast<size_t>(i) * part + begin,
               i == rank() ? mine.data + begin : Stage(i, round), n);
        }
      });
}

Status SharedMemory::DoGather(const Call& call, ConstSpan mine, Span all,
                              Deadline deadline) {
  const size_t part = mine.byte_size();
  const bool is_root = rank() == call.root;
  return InPieces(
      call, part, kSlotByteSize, deadline,
      [&](std::byte* stage, size_t begin, size_t n) {
        if (!is_root) Copy(stage, mine.data + begin, n);
      },
      [&](uint64_t round, size_t begin, size_t n) {
        if (!is_root) return;
        for (int i = 0; i < size(); ++i) {
          Copy(all.data + static_cast<size_t>(i) * part + begin,
               i == rank() ? mine.data + begin : Stage(i, round), n);
        }
      });
}

Status SharedMemory::DoScatter(const Call& call, ConstSpan all, Span mine,
                               Deadline deadline) {
  const size_t part = mine.byte_size();
  const size_t piece = PiecePerRank();
  const bool is_root = rank() == call.root;
  return InPieces(
      call, part, piece, deadline,
      [&](std::byte* stage, size_t begin, size_t n) {
        if (!is_root) return;
        for (int i = 0; i < size(); ++i) {
          if (i == rank()) continue;
          Copy(stage + static_cast<size_t>(i) * piece,
               all.data + static_cast<size_t>(i) * part + begin, n);
        }
      },
      [&](uint64_t round, size_t begin, size_t n) {
        const auto i = static_cast<size_t>(rank());
        Copy(mine.data + begin,
             is_root ? all.data + i * part + begin
                     : Stage(call.root, round) + i * piece,
             n);
      });
}

Status SharedMemory::DoReduceScatter(const Call& call, ConstSpan all, Span mine,
                                     Deadline deadline) {
  const size_t part = mine.byte_size();
  const size_t piece = PiecePerRank();
  const auto me = static_cast<size_t>(rank());
  return InPieces(
      call, part, piece, deadline,
      [&](std::byte* stage, size_t begin, size_t n) {
        for (int i = 0; i < size(); ++i) {
          if (i == rank()) continue;
          Copy(stage + static_cast<size_t>(i) * piece,
               all.data + static_cast<size_t>(i) * part + begin, n);
        }
      },
      [&](uint64_t round, size_t begin, size_t n) {
        CombineStaged(call, all.data + me * part + begin, round, me * piece, n,
                      mine.data + begin);
      });
}

Status SharedMemory::DoAllToAll(const Call& call, ConstSpan from, Span to,
                                Deadline deadline) {
  const size_t part = from.byte_size() / static_cast<size_t>(size());
  const size_t piece = PiecePerRank();
  const auto me = static_cast<size_t>(rank());
  return InPieces(
      call, part, piece, deadline,
      [&](std::byte* stage, size_t begin, size_t n) {
        for (int i = 0; i < size(); ++i) {
          if (i == rank()) continue;
          Copy(stage + static_cast<size_t>(i) * piece,
               from.data + static_cast<size_t>(i) * part + begin, n);
        }
      },
      [&](uint64_t round, size_t begin, size_t n) {
        for (int i = 0; i < size(); ++i) {
          Copy(to.data + static_cast<size_t>(i) * part + begin,
               i == rank() ? from.data + me * part + begin
                           : Stage(i, round) + me * piece,
               n);
        }
      });
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
  region.stride = RoundUp(std::max<size_t>(1, byte_size), kPageByteSize);
  if (region.stride < byte_size ||
      region.stride > (size_t{1} << 62) / static_cast<size_t>(size())) {
    return Unavailable("shared memory of ", byte_size, " bytes");
  }
  const size_t total =
      kPageByteSize + static_cast<size_t>(size()) * region.stride;
  channel::Fd memory;
  if (rank() == 0) {
    // Of all ranks together; each sees only its own part below.
    const Status available = CheckAvailable(total);
    Result<channel::Fd> made = available.ok() ? MakeSharedMemory(total)
                                              : Result<channel::Fd>(available);
    RETURN_IF_ERROR(exchange_->Give(made));
    memory = std::move(*made);
  } else {
    ASSIGN_OR_RETURN(memory, exchange_->Take([&] { return Look(); }, deadline));
  }
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::Of(memory, total));
  const size_t begin =
      rank() == 0 ? 0
                  : kPageByteSize + static_cast<size_t>(rank()) * region.stride;
  RETURN_IF_ERROR(mapping.Reserve(
      memory, begin, region.stride + (rank() == 0 ? kPageByteSize : 0)));
  region.mapping = std::make_shared<Mapping>(std::move(mapping));
  return region;
}

Status SharedMemory::DoSend(ConstSpan data, int to, Deadline deadline) {
  RETURN_IF_ERROR(CheckOthers());
  if (control_.left(to)) {
    return Unavailable(Describe("send", data), " to rank ", to, ", which left");
  }
  if (!has_ring_[to]) {
    RETURN_IF_ERROR(
        mapping_.Reserve(memory_, RingOffset(rank(), to), kRingByteSize));
    has_ring_[to] = true;
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

Status SharedMemory::WriteRing(std::span<const std::byte> bytes, int to,
                               ConstSpan data, Deadline deadline) {
  RingState& ring = control_.ring(rank(), to);
  std::byte* place = RingData(rank(), to);
  while (!bytes.empty()) {
    const uint64_t written = ring.written.load(std::memory_order_relaxed);
    auto room = [&] {
      return kRingByteSize -
             (written - ring.read.load(std::memory_order_acquire));
    };
    if (!Quickly([&] { return room() != 0; })) {
      RETURN_IF_ERROR(WaitLong(
          to, deadline, [&] { return room() != 0; },
          [&] { return std::vector<int>{to}; },
          [&] {
            return base::Concat(Describe("send", data), " to rank ", to);
          }));
    }
    // A quarter at a time, so that the other side copies out meanwhile.
    const size_t at = written % kRingByteSize;
    const size_t n = std::min({bytes.size(), static_cast<size_t>(room()),
                               kRingByteSize - at, kRingByteSize / 4});
    std::memcpy(place + at, bytes.data(), n);
    ring.written.store(written + n, std::memory_order_release);
    control_.WakeWaiter(to);
    bytes = bytes.subspan(n);
  }
  return OkStatus();
}

Status SharedMemory::ReadRing(std::span<std::byte> bytes, int from,
                              ConstSpan data, Deadline deadline) {
  RingState& ring = control_.ring(from, rank());
  const std::byte* place = RingData(from, rank());
  while (!bytes.empty()) {
    const uint64_t read = ring.read.load(std::memory_order_relaxed);
    auto there = [&] {
      return ring.written.load(std::memory_order_acquire) - read;
    };
    if (!Quickly([&] { return there() != 0; })) {
      RETURN_IF_ERROR(WaitLong(
          from, deadline, [&] { return there() != 0; },
          [&] { return std::vector<int>{from}; },
          [&] {
            return base::Concat(Describe("recv", data), " from rank ", from);
          }));
    }
    const size_t at = read % kRingByteSize;
    const size_t n = std::min({bytes.size(), static_cast<size_t>(there()),
                               kRingByteSize - at, kRingByteSize / 4});
    std::memcpy(bytes.data(), place + at, n);
    ring.read.store(read + n, std::memory_order_release);
    control_.WakeWaiter(from);
    bytes = bytes.subspan(n);
  }
  return OkStatus();
}

struct Segment {
  channel::Fd memory;
  Mapping mapping;
};

// By rank 0.
Result<Segment> MakeSegment(const Meeting& meeting) {
  const size_t byte_size = SharedMemory::SegmentByteSize(meeting.size);
  Segment segment;
  ASSIGN_OR_RETURN(segment.memory, MakeSharedMemory(byte_size));
  ASSIGN_OR_RETURN(segment.mapping, Mapping::Of(segment.memory, byte_size));
  RETURN_IF_ERROR(segment.mapping.Reserve(
      segment.memory, 0, SharedMemory::ReservedByteSize(meeting.size)));
  return segment;
}

Result<Segment> ShareSegment(const Meeting& meeting, MemoryExchange& exchange,
                             const base::InterruptCheck& interrupt,
                             Deadline deadline) {
  if (meeting.rank == 0) {
    Result<Segment> segment = MakeSegment(meeting);
    if (!segment.ok()) {
      return exchange.Give(Result<channel::Fd>(segment.status()));
    }
    Result<channel::Fd> memory = std::move(segment->memory);
    RETURN_IF_ERROR(exchange.Give(memory));
    segment->memory = std::move(*memory);
    return segment;
  }
  Segment segment;
  ASSIGN_OR_RETURN(segment.memory, exchange.Take(interrupt, deadline));
  ASSIGN_OR_RETURN(
      segment.mapping,
      Mapping::Of(segment.memory, SharedMemory::SegmentByteSize(meeting.size)));
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
