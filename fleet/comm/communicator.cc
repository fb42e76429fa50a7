// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace fleet::comm {
namespace {

// More calls than this in flight, and Start waits.
constexpr size_t kMaxStarted = 1024;

// How long the end of a communicator waits for what was started and is not
// done: others may just be about to come.
constexpr std::chrono::seconds kEndPatience{1};

Status CheckType(ReduceOp op, DataType type) {
  if (op == ReduceOp::kMean && type < DataType::kFloat16) {
    return InvalidArgument("the mean of ", ToString(type),
                           " does not exist; take the sum");
  }
  return OkStatus();
}

// That `all` is `size` times `part`.
Status CheckParts(std::string_view what, ConstSpan all, ConstSpan part,
                  int size) {
  if (all.type != part.type) {
    return InvalidArgument(what, ": ", ToString(part.type), " of one rank and ",
                           ToString(all.type), " of all");
  }
  if (all.count != part.count * static_cast<size_t>(size)) {
    return InvalidArgument(
        what, ": ", part.count, " elements of each of ", size, " ranks make ",
        part.count * static_cast<size_t>(size), ", not ", all.count);
  }
  return OkStatus();
}

Status CheckRank(std::string_view what, int rank, int size) {
  if (rank >= 0 && rank < size) return OkStatus();
  return InvalidArgument(what, ": rank ", rank, " of a group of ", size);
}

Span BytesSpan(std::span<std::byte> bytes) {
  return {bytes.data(), bytes.size(), DataType::kUInt8};
}

}  // namespace

void AbortHandle::Abort(Status why) {
  base::MutexLock lock(mutex_);
  if (target_ != nullptr) target_->Abort(std::move(why));
}

void AbortHandle::Detach() {
  base::MutexLock lock(mutex_);
  target_ = nullptr;
}

Communicator::Communicator(int rank, int size, CommunicatorOptions options)
    : rank_(rank),
      size_(size),
      options_(std::move(options)),
      abort_handle_(std::make_shared<AbortHandle>(this)),
      queue_(kMaxStarted) {}

Communicator::~Communicator() { Finish(); }

void Communicator::Finish() {
  queue_.Close();
  if (thread_.joinable()) {
    if (!WaitUntilIdle(Deadline::After(kEndPatience))) {
      Abort(FailedPrecondition("rank ", rank_,
                               " ended it while calls were under way that it "
                               "had started and not waited for"));
    }
    thread_.join();
  }
  abort_handle_->Detach();
}

Result<Buffer> Communicator::Allocate(size_t byte_size, Deadline deadline) {
  Call call{.kind = CallKind::kAllocate, .count = byte_size};
  RETURN_IF_ERROR(Begin(call));
  Result<Buffer> buffer = DoAllocate(call, byte_size, deadline);
  RETURN_IF_ERROR(End(buffer.status()));
  return buffer;
}

Result<Buffer> Communicator::DoAllocate(const Call& call, size_t byte_size,
                                        Deadline deadline) {
  RETURN_IF_ERROR(DoBarrier(call, deadline));
  constexpr size_t kAlignment = 64;
  const size_t rounded =
      std::max(kAlignment, (byte_size + kAlignment - 1) & ~(kAlignment - 1));
  std::shared_ptr<void> owner(std::aligned_alloc(kAlignment, rounded),
                              std::free);
  if (owner == nullptr) {
    return Unavailable("no memory for a buffer of ", byte_size, " bytes");
  }
  std::memset(owner.get(), 0, rounded);
  auto* data = static_cast<std::byte*>(owner.get());
  return Buffer(std::move(owner), {data, byte_size});
}

Status Communicator::AllReduce(Span data, ReduceOp op, Deadline deadline) {
  RETURN_IF_ERROR(CheckType(op, data.type));
  Call call{.kind = CallKind::kAllReduce,
            .op = op,
            .type = data.type,
            .count = data.count};
  RETURN_IF_ERROR(Begin(call));
  return End(DoAllReduce(call, data, deadline));
}

Status Communicator::Reduce(Span data, ReduceOp op, int root,
                            Deadline deadline) {
  RETURN_IF_ERROR(CheckType(op, data.type));
  RETURN_IF_ERROR(CheckRank("reduce to root", root, size_));
  Call call{.kind = CallKind::kReduce,
            .op = op,
            .type = data.type,
            .root = root,
            .count = data.count};
  RETURN_IF_ERROR(Begin(call));
  return End(DoReduce(call, data, deadline));
}

Status Communicator::Broadcast(Span data, int root, Deadline deadline) {
  RETURN_IF_ERROR(CheckRank("broadcast from root", root, size_));
  Call call{.kind = CallKind::kBroadcast,
            .type = data.type,
            .root = root,
            .count = data.count};
  RETURN_IF_ERROR(Begin(call));
  return End(DoBroadcast(call, data, deadline));
}

Status Communicator::AllGather(ConstSpan mine, Span all, Deadline deadline) {
  RETURN_IF_ERROR(CheckParts("all_gather", all, mine, size_));
  Call call{
      .kind = CallKind::kAllGather, .type = mine.type, .count = mine.count};
  RETURN_IF_ERROR(Begin(call));
  return End(DoAllGather(call, mine, all, deadline));
}

Status Communicator::ReduceScatter(ConstSpan all, Span mine, ReduceOp op,
                                   Deadline deadline) {
  RETURN_IF_ERROR(CheckType(op, mine.type));
  RETURN_IF_ERROR(CheckParts("reduce_scatter", all, mine, size_));
  Call call{.kind = CallKind::kReduceScatter,
            .op = op,
            .type = mine.type,
            .count = mine.count};
  RETURN_IF_ERROR(Begin(call));
  return End(DoReduceScatter(call, all, mine, deadline));
}

Status Communicator::Scatter(ConstSpan all, Span mine, int root,
                             Deadline deadline) {
  RETURN_IF_ERROR(CheckRank("scatter from root", root, size_));
  if (rank_ == root) {
    RETURN_IF_ERROR(CheckParts("scatter", all, mine, size_));
  }
  Call call{.kind = CallKind::kScatter,
            .type = mine.type,
            .root = root,
            .count = mine.count};
  RETURN_IF_ERROR(Begin(call));
  return End(DoScatter(call, all, mine, deadline));
}

Status Communicator::Gather(ConstSpan mine, Span all, int root,
                            Deadline deadline) {
  RETURN_IF_ERROR(CheckRank("gather to root", root, size_));
  if (rank_ == root) {
    RETURN_IF_ERROR(CheckParts("gather", all, mine, size_));
  }
  Call call{.kind = CallKind::kGather,
            .type = mine.type,
            .root = root,
            .count = mine.count};
  RETURN_IF_ERROR(Begin(call));
  return End(DoGather(call, mine, all, deadline));
}

Status Communicator::AllToAll(ConstSpan from, Span to, Deadline deadline) {
  if (from.type != to.type || from.count != to.count) {
    return InvalidArgument("all_to_all: from ", from.count, " x ",
                           ToString(from.type), " to ", to.count, " x ",
                           ToString(to.type));
  }
  if (from.count % static_cast<size_t>(size_) != 0) {
    return InvalidArgument("all_to_all: ", from.count,
                           " elements do not make equal parts for ", size_,
                           " ranks");
  }
  Call call{.kind = CallKind::kAllToAll,
            .type = from.type,
            .count = from.count / static_cast<size_t>(size_)};
  RETURN_IF_ERROR(Begin(call));
  return End(DoAllToAll(call, from, to, deadline));
}

Status Communicator::Barrier(Deadline deadline) {
  Call call{.kind = CallKind::kBarrier};
  RETURN_IF_ERROR(Begin(call));
  return End(DoBarrier(call, deadline));
}

Status Communicator::Agree(Call call, Deadline deadline) {
  RETURN_IF_ERROR(Begin(call));
  return End(DoBarrier(call, deadline));
}

Status Communicator::Send(ConstSpan data, int to, Deadline deadline) {
  RETURN_IF_ERROR(CheckRank("send to", to, size_));
  if (to == rank_) return InvalidArgument("send: rank ", to, " to itself");
  WaitForStarted();
  if (broken()) return status();
  return End(DoSend(data, to, deadline));
}

Status Communicator::Recv(Span data, int from, Deadline deadline) {
  RETURN_IF_ERROR(CheckRank("receive from", from, size_));
  if (from == rank_) {
    return InvalidArgument("receive: rank ", from, " from itself");
  }
  WaitForStarted();
  if (broken()) return status();
  return End(DoRecv(data, from, deadline));
}

Result<std::vector<std::vector<std::byte>>> Communicator::AllGatherBytes(
    ConstBytes mine, Deadline deadline) {
  const int64_t my_size = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(size_);
  auto bytes_of = [](auto* numbers) {
    return reinterpret_cast<std::byte*>(numbers);
  };
  RETURN_IF_ERROR(AllGather(
      {reinterpret_cast<const std::byte*>(&my_size), 1, DataType::kInt64},
      {bytes_of(sizes.data()), sizes.size(), DataType::kInt64}, deadline));
  // Equal parts, as large as the largest needs.
  const size_t part =
      static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<std::byte> padded(part);
  std::copy(mine.begin(), mine.end(), padded.begin());
  std::vector<std::byte> all(part * size_);
  RETURN_IF_ERROR(AllGather(BytesSpan(padded), BytesSpan(all), deadline));
  std::vector<std::vector<std::byte>> parts(size_);
  for (int i = 0; i < size_; ++i) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(part * i);
    parts[i].assign(begin, begin + sizes[i]);
  }
  return parts;
}

Result<std::vector<std::byte>> Communicator::BroadcastBytes(ConstBytes mine,
                                                            int root,
                                                            Deadline deadline) {
  int64_t byte_size = static_cast<int64_t>(mine.size());
  RETURN_IF_ERROR(
      Broadcast({reinterpret_cast<std::byte*>(&byte_size), 1, DataType::kInt64},
                root, deadline));
  std::vector<std::byte> bytes(static_cast<size_t>(byte_size));
  if (rank_ == root) bytes.assign(mine.begin(), mine.end());
  RETURN_IF_ERROR(Broadcast(BytesSpan(bytes), root, deadline));
  return bytes;
}

base::Future<> Communicator::Start(std::function<Status(Communicator&)> calls) {
  Started started{std::move(calls), {}};
  base::Future<> future = started.done.future();
  started_.fetch_add(1, std::memory_order_relaxed);
  {
    base::MutexLock lock(mutex_);
    if (!thread_.joinable()) thread_ = std::jthread([this] { RunStarted(); });
  }
  FLEET_CHECK(queue_.Push(std::move(started), Deadline::Infinite()).ok());
  return future;
}

void Communicator::RunStarted() {
  thread_id_ = std::this_thread::get_id();
  while (true) {
    Result<std::optional<Started>> next = queue_.Pop(Deadline::Infinite());
    if (!next.ok() || !next->has_value()) return;
    Started& started = **next;
    // The outcome is there before a direct call goes on.
    started.done.Set(started.calls(*this));
    base::MutexLock lock(mutex_);
    if (started_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      idle_.NotifyAll();
    }
  }
}

void Communicator::Abort(Status why) { Break(std::move(why), false); }

Status Communicator::status() const {
  base::MutexLock lock(mutex_);
  return why_;
}

void Communicator::WaitForStarted() {
  if (started_.load(std::memory_order_acquire) != 0 &&
      std::this_thread::get_id() != thread_id_) {
    WaitUntilIdle(Deadline::Infinite());
  }
}

bool Communicator::WaitUntilIdle(Deadline deadline) {
  base::MutexLock lock(mutex_);
  while (started_.load(std::memory_order_acquire) != 0) {
    if (!idle_.WaitUntil(mutex_, deadline) && deadline.expired()) break;
  }
  return started_.load(std::memory_order_acquire) == 0;
}

Status Communicator::Begin(Call& call) {
  WaitForStarted();
  if (broken()) return status();
  call.number = ++calls_;
  return OkStatus();
}

Status Communicator::End(Status outcome) {
  if (outcome.ok()) return outcome;
  if (outcome.code() == StatusCode::kUnavailable) WaitForReason();
  Break(std::move(outcome), true);
  return status();
}

void Communicator::WaitForReason() {
  const Deadline deadline = Deadline::After(options_.reason_patience);
  base::MutexLock lock(mutex_);
  while (why_.ok() && !deadline.expired()) {
    broke_.WaitUntil(mutex_, deadline);
  }
}

void Communicator::Break(Status why, bool tell) {
  FLEET_CHECK(!why.ok());
  why = why.WithContext(options_.name);
  {
    base::MutexLock lock(mutex_);
    if (!why_.ok()) return;
    why_ = std::move(why);
    broken_.store(true, std::memory_order_release);
    broke_.NotifyAll();
  }
  DoAbort();
  if (tell && options_.on_failure) options_.on_failure(status());
}

}  // namespace fleet::comm
