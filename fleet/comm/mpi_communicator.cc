// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/mpi_communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "fleet/comm/left.h"
#include "fleet/comm/reduce.h"

namespace fleet::comm {
namespace {

constexpr int kNoticeTag = 1;
constexpr int kMailTag = 2;      // what is sent: type and count
constexpr int kMailDataTag = 3;  // its elements

constexpr uint64_t kAnyCall = std::numeric_limits<uint64_t>::max();

// MPI counts with an int; what is longer travels in pieces.
constexpr size_t kMaxCount = size_t{1} << 30;

struct Letter {
  DataType type;
  uint64_t count;
};

// Moves elements as they are.
MPI_Datatype Raw(DataType type) {
  switch (ByteSize(type)) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    default:
      return MPI_UINT64_T;
  }
}

// The type of MPI whose arithmetic is that of types.h, if there is one: MPI has
// no float16, and its max and min of floats may lose a NaN.
std::optional<MPI_Datatype> Native(ReduceOp op, DataType type) {
  const bool compares = op == ReduceOp::kMax || op == ReduceOp::kMin;
  switch (type) {
    case DataType::kUInt8:
      return MPI_UINT8_T;
    case DataType::kInt8:
      return MPI_INT8_T;
    case DataType::kInt16:
      return MPI_INT16_T;
    case DataType::kInt32:
      return MPI_INT32_T;
    case DataType::kInt64:
      return MPI_INT64_T;
    case DataType::kFloat32:
      return compares ? std::nullopt : std::optional(MPI_FLOAT);
    case DataType::kFloat64:
      return compares ? std::nullopt : std::optional(MPI_DOUBLE);
    default:
      return std::nullopt;
  }
}

MPI_Op Native(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return MPI_MAX;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kProduct:
      return MPI_PROD;
    default:
      return MPI_SUM;
  }
}

bool Overlap(ConstSpan a, ConstSpan b) {
  const std::less<> before;
  return before(a.data, b.data + b.byte_size()) &&
         before(b.data, a.data + a.byte_size());
}

// MPI forbids that what is sent and what is received overlap.
const std::byte* Apart(ConstSpan from, ConstSpan to,
                       std::vector<std::byte>& copy) {
  if (!Overlap(from, to)) return from.data;
  copy.assign(from.data, from.data + from.byte_size());
  return copy.data();
}

Status CheckCount(const Call& call, size_t count) {
  if (count <= kMaxCount) return OkStatus();
  return Unimplemented(ToString(call), ": more than ", kMaxCount,
                       " elements of all ranks together by MPI");
}

std::vector<std::byte> ToBytes(const void* data, size_t byte_size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  return {bytes, bytes + byte_size};
}

}  // namespace

MpiCommunicator::MpiCommunicator(MpiLibrary& library, MPI_Comm comm, int rank,
                                 int size, CommunicatorOptions options)
    : Communicator(rank, size, std::move(options)),
      library_(library),
      comm_(comm),
      peers_(size) {
  library_.AddUser();
}

// The communicator of MPI is never freed: late notices may still come for it,
// and MPI gives its number to the next one.
MpiCommunicator::~MpiCommunicator() {
  Finish();
  {
    base::MutexLock lock(library_.mutex);
    Tell({.news = News::kLeft}).ok();
  }
  library_.RemoveUser();
}

Status MpiCommunicator::Tell(const Notice& notice) {
  static_assert(std::is_trivially_copyable_v<Notice>);
  if (told_) return OkStatus();
  told_ = notice.news != News::kCall;
  if (notice.news == News::kCall) called_ = notice.call.number;
  for (int i = 0; i < size(); ++i) {
    if (i != rank()) RETURN_IF_ERROR(TellOne(i, notice));
  }
  return OkStatus();
}

Status MpiCommunicator::TellOne(int to, const Notice& notice) {
  const size_t byte_size = offsetof(Notice, text) + notice.text_size;
  return library_.Send(comm_, to, kNoticeTag, ToBytes(&notice, byte_size))
      .status();
}

Status MpiCommunicator::TellCount(int to, News news, uint64_t count) {
  return TellOne(to, {.news = news, .call = {.count = count}});
}

Status MpiCommunicator::Hear(uint64_t during) {
  if (broken()) return status();
  while (true) {
    int here = 0;
    MPI_Status from;
    RETURN_IF_ERROR(
        MpiStatus(MPI_Iprobe(MPI_ANY_SOURCE, kNoticeTag, comm_, &here, &from),
                  "MPI_Iprobe"));
    if (here == 0) break;
    Notice notice;
    // It has arrived, so this does not wait.
    RETURN_IF_ERROR(
        MpiStatus(MPI_Recv(&notice, sizeof(notice), MPI_BYTE, from.MPI_SOURCE,
                           kNoticeTag, comm_, MPI_STATUS_IGNORE),
                  "MPI_Recv"));
    Peer& peer = peers_[from.MPI_SOURCE];
    switch (notice.news) {
      case News::kCall:
        peer.calls.push_back(notice.call);
        break;
      case News::kLeft:
        peer.left = true;
        break;
      case News::kReceived:
        peer.window.PeerReceived(notice.call.count);
        break;
      case News::kWaits:
        peer.window.PeerWaits(notice.call.count);
        break;
      case News::kFailed:
        if (!failure_.ok() && failed_in_ <= notice.call.number) break;
        failed_in_ = notice.call.number;
        failure_ = Status(notice.code,
                          base::Concat("rank ", from.MPI_SOURCE, " gave up: ",
                                       std::string_view(notice.text.data(),
                                                        notice.text_size)));
        break;
    }
  }
  if (failure_.ok() || failed_in_ > during) return OkStatus();
  told_ = true;  // by that rank
  return failure_;
}

std::vector<int> MpiCommunicator::Missing() const {
  std::vector<int> missing;
  for (int i = 0; i < size(); ++i) {
    if (i != rank() && peers_[i].calls.empty()) missing.push_back(i);
  }
  return missing;
}

Result<bool> MpiCommunicator::AllCalled(const Call& call) {
  for (int i = 0; i < size(); ++i) {
    if (i == rank() || peers_[i].calls.empty()) continue;
    const Call& theirs = peers_[i].calls.front();
    if (theirs == call) continue;
    return Mismatch(rank(), call, i, theirs);
  }
  std::vector<int> missing = Missing();
  if (missing.empty()) {
    for (int i = 0; i < size(); ++i) {
      if (i != rank()) peers_[i].calls.pop_front();
    }
    return true;
  }
  std::erase_if(missing, [&](int i) { return !peers_[i].left; });
  if (missing.empty()) return false;
  return LeftBefore(ToString(call), missing);
}

Status MpiCommunicator::Agree(const Call& call, Patience& patience) {
  {
    base::MutexLock lock(library_.mutex);
    RETURN_IF_ERROR(Tell({.news = News::kCall, .call = call}));
  }
  return library_.Poll(
      patience,
      [&]() REQUIRES(library_.mutex) -> Result<bool> {
        RETURN_IF_ERROR(Hear(call.number));
        return AllCalled(call);
      },
      [&] {
        return base::Concat(ToString(call), ": no sign of ",
                            RankList(Missing()));
      });
}

template <typename Operation>
Status MpiCommunicator::Move(std::string_view name, Patience& patience,
                             Operation begin) {
  MPI_Request request = MPI_REQUEST_NULL;
  uint64_t during = 0;
  {
    base::MutexLock lock(library_.mutex);
    RETURN_IF_ERROR(library_.usable());
    RETURN_IF_ERROR(MpiStatus(begin(&request), name));
    during = called_;
  }
  Status moved = library_.Poll(
      patience,
      [&]() REQUIRES(library_.mutex) -> Result<bool> {
        int done = 0;
        RETURN_IF_ERROR(
            MpiStatus(MPI_Test(&request, &done, MPI_STATUS_IGNORE), name));
        if (done != 0) return true;
        RETURN_IF_ERROR(Hear(during));
        return false;
      },
      [&] {
        return base::Concat(name, ": all ranks came, but it is not complete");
      });
  if (moved.ok()) return moved;
  base::MutexLock lock(library_.mutex);
  library_.Forbid(moved);
  return moved;
}

MpiCommunicator::Slices MpiCommunicator::MakeSlices(size_t count) const {
  Slices slices;
  const auto ranks = static_cast<size_t>(size());
  for (size_t i = 0; i < ranks; ++i) {
    const size_t begin = count * i / ranks;
    slices.begins.push_back(static_cast<int>(begin));
    slices.counts.push_back(static_cast<int>(count * (i + 1) / ranks - begin));
  }
  return slices;
}

Result<std::vector<std::byte>> MpiCommunicator::CombineSlice(
    const Call& call, const std::byte* data, const Slices& slices,
    Patience& patience) {
  const auto count = static_cast<size_t>(slices.counts[rank()]);
  const size_t byte_size = count * ByteSize(call.type);
  const auto ranks = static_cast<size_t>(size());
  std::vector<std::byte> parts(byte_size * ranks);
  std::vector<int> counts(ranks, static_cast<int>(count));
  std::vector<int> begins(ranks);
  std::vector<const std::byte*> inputs(ranks);
  for (size_t i = 0; i < ranks; ++i) {
    begins[i] = static_cast<int>(count * i);
    inputs[i] = parts.data() + byte_size * i;
  }
  const MPI_Datatype raw = Raw(call.type);
  RETURN_IF_ERROR(Move("MPI_Ialltoallv", patience, [&](MPI_Request* request) {
    return MPI_Ialltoallv(data, slices.counts.data(), slices.begins.data(), raw,
                          parts.data(), counts.data(), begins.data(), raw,
                          comm_, request);
  }));
  std::vector<std::byte> combined(byte_size);
  std::byte* const output = combined.data();
  CombineAll(call.op, call.type, inputs, {&output, 1}, count);
  return combined;
}

Status MpiCommunicator::DoAllReduce(const Call& call, Span data,
                                    Deadline deadline) {
  Patience patience(options(), deadline);
  RETURN_IF_ERROR(Agree(call, patience));
  if (size() == 1) return OkStatus();
  const auto native = Native(call.op, call.type);
  for (size_t begin = 0; begin < data.count; begin += kMaxCount) {
    const size_t count = std::min(kMaxCount, data.count - begin);
    std::byte* const part = data.data + begin * ByteSize(call.type);
    if (native) {
      RETURN_IF_ERROR(
          Move("MPI_Iallreduce", patience, [&](MPI_Request* request) {
            return MPI_Iallreduce(MPI_IN_PLACE, part, static_cast<int>(count),
                                  *native, Native(call.op), comm_, request);
          }));
      continue;
    }
    const Slices slices = MakeSlices(count);
    ASSIGN_OR_RETURN(std::vector<std::byte> mine,
                     CombineSlice(call, part, slices, patience));
    const MPI_Datatype raw = Raw(call.type);
    RETURN_IF_ERROR(
        Move("MPI_Iallgatherv", patience, [&](MPI_Request* request) {
          return MPI_Iallgatherv(mine.data(), slices.counts[rank()], raw, part,
                                 slices.counts.data(), slices.begins.data(),
                                 raw, comm_, request);
        }));
  }
  if (native && call.op == ReduceOp::kMean) {
    Divide(call.type, data.data, data.count, size());
  }
  return OkStatus();
}

Status MpiCommunicator::DoReduce(const Call& call, Span data,
                                 Deadline deadline) {
  Patience patience(options(), deadline);
  RETURN_IF_ERROR(Agree(call, patience));
  if (size() == 1) return OkStatus();
  const bool is_root = rank() == call.root;
  const auto native = Native(call.op, call.type);
  for (size_t begin = 0; begin < data.count; begin += kMaxCount) {
    const size_t count = std::min(kMaxCount, data.count - begin);
    std::byte* const part = data.data + begin * ByteSize(call.type);
    if (native) {
      RETURN_IF_ERROR(Move("MPI_Ireduce", patience, [&](MPI_Request* request) {
        return MPI_Ireduce(is_root ? MPI_IN_PLACE : part,
                           is_root ? part : nullptr, static_cast<int>(count),
                           *native, Native(call.op), call.root, comm_, request);
      }));
      continue;
    }
    const Slices slices = MakeSlices(count);
    ASSIGN_OR_RETURN(std::vector<std::byte> mine,
                     CombineSlice(call, part, slices, patience));
    const MPI_Datatype raw = Raw(call.type);
    RETURN_IF_ERROR(Move("MPI_Igatherv", patience, [&](MPI_Request* request) {
      return MPI_Igatherv(mine.data(), slices.counts[rank()], raw,
                          is_root ? part : nullptr, slices.counts.data(),
                          slices.begins.data(), raw, call.root, comm_, request);
    }));
  }
  if (native && is_root && call.op == ReduceOp::kMean) {
    Divide(call.type, data.data, data.count, size());
  }
  return OkStatus();
}

Status MpiCommunicator::DoBroadcast(const Call& call, Span data,
                                    Deadline deadline) {
  Patience patience(options(), deadline);
  RETURN_IF_ERROR(Agree(call, patience));
  for (size_t begin = 0; begin < data.count; begin += kMaxCount) {
    const auto count =
        static_cast<int>(std::min(kMaxCount, data.count - begin));
    RETURN_IF_ERROR(Move("MPI_Ibcast", patience, [&](MPI_Request* request) {
      return MPI_Ibcast(data.data + begin * ByteSize(call.type), count,
                        Raw(call.type), call.root, comm_, request);
    }));
  }
  return OkStatus();
}

Status MpiCommunicator::DoAllGather(const Call& call, ConstSpan mine, Span all,
                                    Deadline deadline) {
  Patience patience(options(), deadline);
  RETURN_IF_ERROR(Agree(call, patience));
  RETURN_IF_ERROR(CheckCount(call, all.count));
  std::vector<std::byte> copy;
  const std::byte* const from = Apart(mine, all, copy);
  const auto count = static_cast<int>(mine.count);
  const MPI_Datatype raw = Raw(call.type);
  return Move("MPI_Iallgather", patience, [&](MPI_Request* request) {
    return MPI_Iallgather(from, count, raw, all.data, count, raw, comm_,
                          request);
  });
}

Status MpiCommunicator::DoReduceScatter(const Call& call, ConstSpan all,
                                        Span mine, Deadline deadline) {
  Patience patience(options(), deadline);
  RETURN_IF_ERROR(Agree(call, patience));
  RETURN_IF_ERROR(CheckCount(call, all.count));
  std::vector<std::byte> copy;
  const std::byte* const from = Apart(all, mine, copy);
  const auto count = static_cast<int>(mine.count);
  if (const auto native = Native(call.op, call.type)) {
    RETURN_IF_ERROR(
        Move("MPI_Ireduce_scatter_block", patience, [&](MPI_Request* request) {
          return MPI_Ireduce_scatter_block(from, mine.data, count, *native,
                                           Native(call.op), comm_, request);
        }));
    if (call.op == ReduceOp::kMean) {
      Divide(call.type, mine.data, mine.count, size());
    }
    return OkStatus();
  }
  ASSIGN_OR_RETURN(std::vector<std::byte> combined,
                   CombineSlice(call, from, MakeSlices(all.count), patience));
  std::copy(combined.begin(), combined.end(), mine.data);
  return OkStatus();
}

Status MpiCommunicator::DoScatter(const Call& call, ConstSpan all, Span mine,
                                  Deadline deadline) {
  Patience patience(options(), deadline);
  RETURN_IF_ERROR(Agree(call, patience));
  RETURN_IF_ERROR(CheckCount(call, mine.count * size()));
  std::vector<std::byte> copy;
  const bool is_root = rank() == call.root;
  const std::byte* const from = is_root ? Apart(all, mine, copy) : nullptr;
  const auto count = static_cast<int>(mine.count);
  const MPI_Datatype raw = Raw(call.type);
  return Move("MPI_Iscatter", patience, [&](MPI_Request* request) {
    return MPI_Iscatter(from, count, raw, mine.data, count, raw, call.root,
                        comm_, request);
  });
}

Status MpiCommunicator::DoGather(const Call& call, ConstSpan mine, Span all,
                                 Deadline deadline) {
  Patience patience(options(), deadline);
  RETURN_IF_ERROR(Agree(call, patience));
  RETURN_IF_ERROR(CheckCount(call, mine.count * size()));
  std::vector<std::byte> copy;
  const bool is_root = rank() == call.root;
  const std::byte* const from = is_root ? Apart(mine, all, copy) : mine.data;
  const auto count = static_cast<int>(mine.count);
  const MPI_Datatype raw = Raw(call.type);
  return Move("MPI_Igather", patience, [&](MPI_Request* request) {
    return MPI_Igather(from, count, raw, is_root ? all.data : nullptr, count,
                       raw, call.root, comm_, request);
  });
}

Status MpiCommunicator::DoAllToAll(const Call& call, ConstSpan from, Span to,
                                   Deadline deadline) {
  Patience patience(options(), deadline);
  RETURN_IF_ERROR(Agree(call, patience));
  RETURN_IF_ERROR(CheckCount(call, to.count));
  std::vector<std::byte> copy;
  const std::byte* const sent = Apart(from, to, copy);
  const auto count = static_cast<int>(call.count);
  const MPI_Datatype raw = Raw(call.type);
  return Move("MPI_Ialltoall", patience, [&](MPI_Request* request) {
    return MPI_Ialltoall(sent, count, raw, to.data, count, raw, comm_, request);
  });
}

Status MpiCommunicator::DoBarrier(const Call& call, Deadline deadline) {
  // When all have made the call, all have come.
  Patience patience(options(), deadline);
  return Agree(call, patience);
}

Status MpiCommunicator::DoSend(ConstSpan data, int to, Deadline deadline) {
  Patience patience(options(), deadline);
  const Letter letter{data.type, data.count};
  Peer& peer = peers_[to];
  SendWindow& window = peer.window;
  auto left = [&] { return Unavailable("send to rank ", to, ", which left"); };
  {
    base::MutexLock lock(library_.mutex);
    RETURN_IF_ERROR(Hear(kAnyCall));
    if (peer.left) return left();
    window.Send(SendCharge(data.byte_size()));
    if (!window.fits()) {
      if (window.untold()) {
        RETURN_IF_ERROR(TellCount(to, News::kReceived, window.Tell()));
      }
      RETURN_IF_ERROR(TellCount(to, News::kWaits, window.need()));
    }
    // Copied, because MPI cannot take back what it has begun to send.
    RETURN_IF_ERROR(library_.SendBehind(comm_, to, kMailTag,
                                        ToBytes(&letter, sizeof(letter))));
    for (size_t begin = 0; begin < data.byte_size(); begin += kMaxCount) {
      const size_t count = std::min(kMaxCount, data.byte_size() - begin);
      RETURN_IF_ERROR(library_.SendBehind(comm_, to, kMailDataTag,
                                          ToBytes(data.data + begin, count)));
    }
    if (window.fits()) return OkStatus();
  }
  return library_.Poll(
      patience,
      [&]() REQUIRES(library_.mutex) -> Result<bool> {
        RETURN_IF_ERROR(Hear(kAnyCall));
        if (window.fits()) return true;
        if (window.peer_waits()) return BothSend(rank(), to);
        if (peer.left) return left();
        return false;
      },
      [&] {
        return base::Concat("send(", data.count, " x ", ToString(data.type),
                            "): not received by rank ", to);
      });
}

Status MpiCommunicator::DoRecv(Span data, int from, Deadline deadline) {
  Patience patience(options(), deadline);
  const std::string what =
      base::Concat("recv(", data.count, " x ", ToString(data.type), ")");
  auto has_come = [&]() -> Result<bool> {
    int here = 0;
    RETURN_IF_ERROR(
        MpiStatus(MPI_Iprobe(from, kMailTag, comm_, &here, MPI_STATUS_IGNORE),
                  "MPI_Iprobe"));
    return here != 0;
  };
  RETURN_IF_ERROR(library_.Poll(
      patience,
      [&]() REQUIRES(library_.mutex) -> Result<bool> {
        ASSIGN_OR_RETURN(bool here, has_come());
        if (here) return true;
        RETURN_IF_ERROR(Hear(kAnyCall));
        if (!peers_[from].left) return false;
        // What it sent before it left comes before that.
        ASSIGN_OR_RETURN(here, has_come());
        if (here) return true;
        return Unavailable(what, " from rank ", from, ", which left");
      },
      [&] { return base::Concat(what, ": nothing from rank ", from); }));
  Letter letter;
  {
    base::MutexLock lock(library_.mutex);
    RETURN_IF_ERROR(library_.usable());
    RETURN_IF_ERROR(MpiStatus(MPI_Recv(&letter, sizeof(letter), MPI_BYTE, from,
                                       kMailTag, comm_, MPI_STATUS_IGNORE),
                              "MPI_Recv"));
  }
  if (letter.type != data.type || letter.count != data.count) {
    return FailedPrecondition("rank ", rank(), " called ", what, " from rank ",
                              from, ", which sent ", letter.count, " x ",
                              ToString(letter.type));
  }
  for (size_t begin = 0; begin < data.byte_size(); begin += kMaxCount) {
    const auto count =
        static_cast<int>(std::min(kMaxCount, data.byte_size() - begin));
    RETURN_IF_ERROR(Move("MPI_Irecv", patience, [&](MPI_Request* request) {
      return MPI_Irecv(data.data + begin, count, MPI_BYTE, from, kMailDataTag,
                       comm_, request);
    }));
  }
  base::MutexLock lock(library_.mutex);
  SendWindow& window = peers_[from].window;
  if (!window.Receive(SendCharge(data.byte_size()))) return OkStatus();
  return TellCount(from, News::kReceived, window.Tell());
}

void MpiCommunicator::DoAbort() {
  const Status why = status();
  base::MutexLock lock(library_.mutex);
  Notice notice{.news = News::kFailed, .code = why.code()};
  notice.call.number = called_;
  notice.text_size =
      static_cast<uint32_t>(std::min(why.message().size(), notice.text.size()));
  std::memcpy(notice.text.data(), why.message().data(), notice.text_size);
  library_.NoteFailure();
  Tell(notice).ok();
}

}  // namespace fleet::comm
