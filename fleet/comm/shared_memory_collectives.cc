// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "fleet/comm/reduce.h"
#include "fleet/comm/shared_memory_communicator.h"

namespace fleet::comm {
namespace {

// Data up to this size, in all ranks together, is combined by every rank: one
// round instead of two.
constexpr size_t kOneRoundByteSize = size_t{64} << 10;

constexpr size_t kCacheLine = 64;

size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

void Copy(std::byte* to, const std::byte* from, size_t byte_size) {
  if (to != from && byte_size != 0) std::memcpy(to, from, byte_size);
}

}  // namespace

template <typename In, typename Out>
Status SharedMemory::InPieces(const Call& call, size_t byte_size, size_t piece,
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

size_t SharedMemory::PiecePerRank() const {
  return kSlotByteSize / size() / kCacheLine * kCacheLine;
}

void SharedMemory::StageForOthers(std::byte* stage, const std::byte* from,
                                  size_t part, size_t n) const {
  for (int i = 0; i < size(); ++i) {
    if (i == rank()) continue;
    const auto other = static_cast<size_t>(i);
    Copy(stage + other * PiecePerRank(), from + other * part, n);
  }
}

void SharedMemory::CombineStaged(const Call& call, const std::byte* data,
                                 uint64_t round, size_t offset, size_t n,
                                 std::byte* to) {
  for (int i = 0; i < size(); ++i) {
    inputs_[i] = i == rank() ? data : Stage(i, round) + offset;
  }
  CombineAll(call.op, call.type, inputs_, {&to, 1}, n / ByteSize(call.type));
}

Span SharedMemory::PieceOf(Span data, size_t begin) {
  const size_t width = ByteSize(data.type);
  return {data.data + begin * width,
          std::min(data.count - begin, kSlotByteSize / width), data.type};
}
std::pair<size_t, size_t> SharedMemory::Slice(int i, size_t count,
                                              DataType type) const {
  const size_t unit = kCacheLine / ByteSize(type);
  const size_t per = RoundUp((count + size() - 1) / size(), unit);
  const size_t begin = std::min(count, per * static_cast<size_t>(i));
  return {begin, std::min(per, count - begin)};
}

Place SharedMemory::Find(const std::byte* data, size_t byte_size) const {
  for (const Region& region : regions_) {
    const std::byte* part = region.part(rank());
    if (data >= part && data + byte_size <= part + region.part_byte_size) {
      return {region.id, static_cast<uint64_t>(data - part)};
    }
  }
  return {};
}
std::byte* SharedMemory::At(const Place& place, int rank,
                            size_t byte_size) const {
  for (const Region& region : regions_) {
    if (region.id != place.region) continue;
    if (place.offset + byte_size > region.part_byte_size) return nullptr;
    return region.part(rank) + place.offset;
  }
  return nullptr;
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

// Where there are two ranks, each stages only what the other combines.
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
        if (is_root) StageForOthers(stage, all.data + begin, part, n);
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
        StageForOthers(stage, all.data + begin, part, n);
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
        StageForOthers(stage, from.data + begin, part, n);
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

}  // namespace fleet::comm
