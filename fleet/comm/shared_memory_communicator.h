// SPDX-License-Identifier: Apache-2.0

// The communicator behind shared_memory.h; shared_memory.cc holds how ranks
// meet, wait, allocate and send, shared_memory_collectives.cc the collectives.

#ifndef FLEET_COMM_SHARED_MEMORY_COMMUNICATOR_H_
#define FLEET_COMM_SHARED_MEMORY_COMMUNICATOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "fleet/base/descriptor.h"
#include "fleet/base/futex.h"
#include "fleet/base/ring.h"
#include "fleet/base/shared_memory.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/meeting.h"
#include "fleet/comm/shared_memory_control.h"
#include "fleet/comm/shared_memory_meeting.h"

namespace fleet::comm {

// The size of one slot of a rank's staging memory. Two ranks' slots in use fit
// into a second-level cache beside the data.
inline constexpr size_t kSlotByteSize = size_t{128} << 10;

// A ring for send and receive: places of blocks, then blocks. It is mapped when
// it is first used, with kFirstRingBlocks; more are taken when the receiver is
// late. Messages that count as kSendAhead take a quarter more with what
// precedes them. While one block is read the next is written.
inline constexpr size_t kRingBlockByteSize = size_t{64} << 10;
inline constexpr uint32_t kFirstRingBlocks = 4;
inline constexpr uint32_t kRingBlocks =
    kSendAhead / 4 * 5 / kRingBlockByteSize + 2;
inline constexpr size_t kRingPlacesByteSize = 2 * base::kPageByteSize;
static_assert(kRingBlocks * sizeof(uint32_t) <= kRingPlacesByteSize);
inline constexpr size_t kRingByteSize =
    kRingPlacesByteSize + kRingBlocks * kRingBlockByteSize;

// Looks without a pause, then with one; then WaitLong. The first is for ranks
// that arrive together: a pause is as long as the smallest collective.
inline constexpr int kQuickLooks = 200;
inline constexpr int kPauses = 400;

// Memory from Allocate: a page of control, then a part for each rank.
struct Region {
  uint32_t id = 0;  // the number of its Allocate, from 1
  std::shared_ptr<base::Mapping> mapping;
  size_t part_byte_size = 0;
  size_t stride = 0;

  std::byte* part(int rank) const {
    return mapping->data() + base::kPageByteSize +
           static_cast<size_t>(rank) * stride;
  }
  // How many ranks no longer use it.
  std::atomic<uint32_t>& released() const {
    return *reinterpret_cast<std::atomic<uint32_t>*>(mapping->data());
  }
};

// Where data lies in a region; `region` is 0 when it lies elsewhere.
struct Place {
  uint32_t region = 0;
  uint64_t offset = 0;
};
static_assert(sizeof(Place) <= kInlineByteSize);

// A call but its count and number, in one word.
inline uint64_t Pack(const Call& call) {
  return static_cast<uint64_t>(call.kind) |
         static_cast<uint64_t>(call.op) << 8 |
         static_cast<uint64_t>(call.type) << 16 |
         static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32;
}

// The call in a line of the same round as `mine`, so its number is the same.
inline Call Unpack(const Line& line, const Call& mine) {
  return {.kind = static_cast<CallKind>(line.what & 0xff),
          .op = static_cast<ReduceOp>(line.what >> 8 & 0xff),
          .type = static_cast<DataType>(line.what >> 16 & 0xff),
          .root = static_cast<int32_t>(line.what >> 32),
          .count = line.count,
          .number = mine.number};
}

// The communicator of one rank. All ranks map one segment:
//
//   controls   a line for each of the last rounds, failures, who has left
//   stages     a few slots for each rank, through which collectives pass data
//   rings      one from each rank to each other, for send and receive
//
// and a region for each Allocate, in which collectives work in place. A
// collective is a number of rounds. In a round a rank writes its part, posts
// its line, and waits until all others have posted theirs.
class SharedMemory final : public Communicator {
 public:
  SharedMemory(const Meeting& meeting, CommunicatorOptions options,
               std::unique_ptr<MemoryExchange> exchange,
               base::Descriptor memory, base::Mapping mapping);
  ~SharedMemory() override;

  // Controls and stages, which exist from the start.
  static size_t ReservedByteSize(int size);
  static size_t SegmentByteSize(int size);

  // The first round: all ranks have the memory.
  Status Open(int processes_on_host, Deadline deadline);

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
  Status DoBarrier(const Call& call, Deadline deadline) override;
  Status DoSend(ConstSpan data, int to, Deadline deadline) override;
  Status DoRecv(Span data, int from, Deadline deadline) override;
  void DoAbort() override { control_.Fail(status()); }

 private:
  // ---- rounds

  // The slot of `rank` for `round`.
  std::byte* Stage(int rank, uint64_t round) const;
  // Where to write for the next round.
  Line& NextLine() const { return control_.line(rank(), round_ + 1); }
  std::byte* NextStage() const { return Stage(rank(), round_ + 1); }
  // Says that this rank's part of the next round is written.
  void Post(const Call& call);
  static bool Posted(const Line& line, uint64_t round) {
    return line.round.load(std::memory_order_acquire) == round;
  }
  // Waits until all ranks have posted `round`, in the same call.
  Status WaitRound(uint64_t round, const Call& call, Deadline deadline);

  // Looks whether ready() for as long as ranks in step are apart. False: the
  // wait may become long.
  template <typename Ready>
  bool Quickly(Ready ready) const;
  // A wait that may become long: until `whom` has made ready() true.
  struct Waiting {
    int whom;
    std::function<bool()> ready;
    // All ranks whose absence keeps the call from its end, and the call.
    std::function<std::vector<int>()> missing;
    std::function<std::string()> what;
    // Why it will never be ready, if that is so.
    std::function<Status()> stuck = [] { return OkStatus(); };
  };
  Status WaitLong(const Waiting& waiting, Deadline deadline);
  Status WaitForPost(int whom, uint64_t round, const Call& call,
                     Deadline deadline);
  std::vector<int> Missing(uint64_t round) const;
  // The failure of another rank.
  Status CheckOthers() const;
  // The reason to end a wait that does not go through WaitLong: an abort, the
  // failure of another rank, or what the interrupt check says.
  Status Look();
  // Unavailable when one of `ranks` has left or died.
  Status CheckAlive(std::vector<int> ranks, const std::string& what);

  // ---- collectives, in shared_memory_collectives.cc

  // One piece after the other through the staging memory: in(stage, begin, n)
  // writes bytes [begin, begin + n) of this rank's part, out(round, begin, n)
  // reads those of the others. While a piece is read, the next one is already
  // there.
  template <typename In, typename Out>
  Status InPieces(const Call& call, size_t byte_size, size_t piece,
                  Deadline deadline, In in, Out out);

  // How many bytes each rank has in a slot that holds a part for each.
  size_t PiecePerRank() const;
  // Parts of `part` bytes lie one after the other from `from` on: `n` bytes of
  // each other rank's part go into its piece of the stage.
  void StageForOthers(std::byte* stage, const std::byte* from, size_t part,
                      size_t n) const;

  // Combines `n` bytes of this rank's `data` with what lies at `offset` in the
  // other ranks' stages of `round`.
  void CombineStaged(const Call& call, const std::byte* data, uint64_t round,
                     size_t offset, size_t n, std::byte* to);

  Status AllReduceInline(const Call& call, Span data, Deadline deadline);
  Status AllReduceByAll(const Call& call, Span data, Deadline deadline);
  Status AllReduceInSlices(const Call& call, Span data, Deadline deadline);
  Status AllReduceInPlace(const Call& call, Span data,
                          std::span<std::byte* const> buffers,
                          Deadline deadline);

  // Elements [begin, ...) of `data`, as many as a slot holds.
  static Span PieceOf(Span data, size_t begin);
  void StagePiece(Span piece);
  void CombineSlice(const Call& call, Span piece, uint64_t round);
  void TakeSlices(Span piece, uint64_t round);

  // The elements that rank `i` combines of `count`: whole cache lines.
  std::pair<size_t, size_t> Slice(int i, size_t count, DataType type) const;

  // ---- regions

  Place Find(const std::byte* data, size_t byte_size) const;
  // Where `place` of `rank` is here; null when it is not in memory that this
  // rank knows.
  std::byte* At(const Place& place, int rank, size_t byte_size) const;
  Result<Region> MakeRegion(size_t byte_size, Deadline deadline);

  // ---- rings

  base::RingMemory Ring(int from, int to, std::byte* data) const;
  // Where it begins in the segment.
  size_t RingOffset(int from, int to) const;
  struct SendRing {
    base::Mapping mapping;
    base::RingWriter writer;
  };
  struct RecvRing {
    base::Mapping mapping;
    base::RingReader reader;
  };
  // The rings with `peer`, made when they are first asked for.
  Result<SendRing*> Sender(int peer);
  Result<RecvRing*> Receiver(int peer);
  // Until there is room: that the receiver gives back, or else more blocks, or
  // else as long as Communicator::Send says.
  Status WaitForRoom(SendRing& ring, int to, ConstSpan data, Deadline deadline);
  Status WriteRing(std::span<const std::byte> bytes, int to, ConstSpan data,
                   Deadline deadline);
  Status ReadRing(std::span<std::byte> bytes, int from, ConstSpan data,
                  Deadline deadline);

  const std::unique_ptr<MemoryExchange> exchange_;
  const base::Descriptor memory_;
  const base::Mapping mapping_;
  Control control_;
  std::byte* const stages_;

  const pid_t process_ = getpid();

  uint64_t round_ = 0;  // posted last
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;

  uint32_t num_regions_ = 0;
  std::vector<Region> regions_;
  // By rank; made when they are first used.
  std::vector<std::optional<SendRing>> senders_;
  std::vector<std::optional<RecvRing>> receivers_;
};

// What every round passes through, in both source files.

inline std::byte* SharedMemory::Stage(int rank, uint64_t round) const {
  return stages_ + (static_cast<size_t>(rank) * kNumSlots + round % kNumSlots) *
                       kSlotByteSize;
}

inline void SharedMemory::Post(const Call& call) {
  ++round_;
  Line& line = control_.line(rank(), round_);
  line.what = Pack(call);
  line.count = call.count;
  line.round.store(round_, std::memory_order_release);
  control_.WakeWaiters();
}

inline Status SharedMemory::WaitRound(uint64_t round, const Call& call,
                                      Deadline deadline) {
  const uint64_t what = Pack(call);
  for (int i = 0; i < size(); ++i) {
    if (i == rank()) continue;
    const Line& line = control_.line(i, round);
    if (!Quickly([&] { return Posted(line, round); })) {
      RETURN_IF_ERROR(WaitForPost(i, round, call, deadline));
    }
    if (line.what != what || line.count != call.count) {
      return Mismatch(rank(), call, i, Unpack(line, call));
    }
  }
  return OkStatus();
}

template <typename Ready>
bool SharedMemory::Quickly(Ready ready) const {
  if (ready()) return true;
  if (!control_.spin()) return false;
  for (int i = 0; i < kQuickLooks; ++i) {
    if (ready()) return true;
  }
  for (int i = 0; i < kPauses; ++i) {
    if (ready()) return true;
    base::Pause();
  }
  return false;
}

inline Status SharedMemory::CheckOthers() const {
  if (!control_.failed()) [[likely]]
    return OkStatus();
  return control_.failure();
}

}  // namespace fleet::comm

#endif  // FLEET_COMM_SHARED_MEMORY_COMMUNICATOR_H_
