// SPDX-License-Identifier: Apache-2.0

// Collectives over a group of ranks: every rank of the group makes the same
// calls in the same order.
//
//   ASSIGN_OR_RETURN(Buffer bucket, comm.Allocate(byte_size, deadline));
//   ... write gradients into bucket ...
//   RETURN_IF_ERROR(comm.AllReduce(bucket.As(DataType::kFloat32),
//                                  ReduceOp::kMean, deadline));
//
// The in-process backend (in_process.h) defines the semantics; every other one
// passes the same suite, communicator_conformance.h. How the ranks of a job get
// their communicators is in world.h.

#ifndef FLEET_COMM_COMMUNICATOR_H_
#define FLEET_COMM_COMMUNICATOR_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/future.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/queue.h"
#include "fleet/base/status.h"
#include "fleet/comm/types.h"

namespace fleet::comm {

using base::Deadline;
using ConstBytes = std::span<const std::byte>;

// See Communicator::Send. Enough for the activations of a pipeline's stages in
// flight, little enough that a sender whose receiver is late is noticed before
// memory is short.
inline constexpr uint64_t kSendAhead = uint64_t{64} << 20;
inline constexpr uint64_t kMinSendCharge = 64;

// Memory that a communicator gave, in which its reductions need no copy. It may
// outlive the communicator, as plain memory.
class Buffer final {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<void> owner, std::span<std::byte> bytes)
      : owner_(std::move(owner)), bytes_(bytes) {}

  std::span<std::byte> bytes() const { return bytes_; }
  const std::shared_ptr<void>& owner() const { return owner_; }
  Span As(DataType type) const {
    return {bytes_.data(), bytes_.size() / ByteSize(type), type};
  }

 private:
  std::shared_ptr<void> owner_;
  std::span<std::byte> bytes_;
};

struct CommunicatorOptions {
  // In messages and logs: "world", "group 2".
  std::string name = "world";
  // A wait so long is reported once in the log: which ranks, which call.
  std::chrono::milliseconds stall_report = std::chrono::seconds(60);
  // Asked on the waiting thread ten times a second while a call waits, so that
  // ^C ends it. What it answers breaks the communicator.
  base::InterruptCheck interrupt;
  // Before a rank that is gone is the reason of a failure: how long to wait for
  // an Abort by somebody who knows more of it.
  std::chrono::milliseconds reason_patience{0};
  // Told once, of the failure that broke this communicator, be it this rank's
  // or one that another rank told it; not of an Abort on this rank.
  std::function<void(const Status&)> on_failure;
};

class Communicator;

// A way to abort a communicator that may already be gone; then it does nothing.
// Thread-safe.
class AbortHandle final {
 public:
  explicit AbortHandle(Communicator* target) : target_(target) {}
  void Abort(Status why);

 private:
  friend class Communicator;
  void Detach();

  base::Mutex mutex_;
  Communicator* target_ GUARDED_BY(mutex_);
};

// One rank's end of a group. A call returns when this rank's part is done and
// its memory may be used; for memory of a GPU, when it is in the order of the
// stream. Any failure breaks the communicator: the ranks no longer agree on
// where they are, so all later calls answer the same. Failures:
//   InvalidArgument      this call makes no sense. The only failure that does
//                        not break the communicator.
//   FailedPrecondition   another rank made another call; shows both.
//   DeadlineExceeded     ranks are late; names them and the call.
//   Unavailable          a rank died or left; names it.
//   what Abort or the interrupt check was given.
//
// One thread at a time may call; Abort may come from any.
class Communicator {
 public:
  Communicator(int rank, int size, CommunicatorOptions options);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return options_.name; }
  // "shared memory", "tcp", ...: what moves the bytes.
  virtual std::string_view backend() const = 0;
  // Whether spans may be memory of a GPU, and only that.
  virtual bool on_device() const { return false; }

  // All ranks ask for the same size. The memory is zero.
  Result<Buffer> Allocate(size_t byte_size, Deadline deadline);

  // In place.
  Status AllReduce(Span data, ReduceOp op, Deadline deadline);
  // The result is in the root's `data`; that of others stays as it was.
  Status Reduce(Span data, ReduceOp op, int root, Deadline deadline);
  Status Broadcast(Span data, int root, Deadline deadline);
  // `all` holds the parts of all ranks in their order.
  Status AllGather(ConstSpan mine, Span all, Deadline deadline);
  // Rank i gets part i of the combined `all`.
  Status ReduceScatter(ConstSpan all, Span mine, ReduceOp op,
                       Deadline deadline);
  // Only the root's `all` is looked at.
  Status Scatter(ConstSpan all, Span mine, int root, Deadline deadline);
  Status Gather(ConstSpan mine, Span all, int root, Deadline deadline);
  // Part i of `from` goes to rank i; part i of `to` came from rank i.
  Status AllToAll(ConstSpan from, Span to, Deadline deadline);
  Status Barrier(Deadline deadline);
  // A barrier that stands for `call` of another communicator over the same
  // ranks, and compares and shows it as its own: for backends that only move
  // data. Its number is set here.
  Status Agree(Call call, Deadline deadline);

  // Between two ranks, in order, apart from the collectives.
  //
  // A send returns at once while no more than kSendAhead bytes, its own with
  // them, have been sent to that rank and not yet been received by it; a
  // message counts as kMinSendCharge bytes at least. Beyond that it waits until
  // it is so again, which for a message of more than kSendAhead means its
  // receive. Some backends let a sender go a little farther. DeadlineExceeded
  // names the rank that does not receive. Two ranks that wait so for each other
  // would do it for ever: FailedPrecondition, which names both. Sends of a
  // GPU's memory do not wait here: they are in the order of the stream.
  //
  // A receive of another size or type than was sent is FailedPrecondition and
  // shows both.
  Status Send(ConstSpan data, int to, Deadline deadline);
  Status Recv(Span data, int from, Deadline deadline);

  // Objects: bytes whose sizes may differ, so these take two rounds.
  Result<std::vector<std::vector<std::byte>>> AllGatherBytes(ConstBytes mine,
                                                             Deadline deadline);
  // The root's bytes, on every rank.
  Result<std::vector<std::byte>> BroadcastBytes(ConstBytes mine, int root,
                                                Deadline deadline);

  // Runs `calls` on a thread of this communicator, after those given before.
  // Calls made directly wait until all that was started is done, so that the
  // order is that of the program.
  base::Future<> Start(std::function<Status(Communicator&)> calls);

  // Wakes every waiter with `why`, which is not ok, and breaks the
  // communicator. Of several the first counts.
  void Abort(Status why);
  // For those who do not own the communicator.
  const std::shared_ptr<AbortHandle>& abort_handle() const {
    return abort_handle_;
  }
  // Ok until it is broken.
  Status status() const;

 protected:
  // What a backend implements. Arguments have been checked, and `call` is what
  // the other ranks must have made too. On failure the backend returns it, and
  // the base breaks the communicator.
  virtual Result<Buffer> DoAllocate(const Call& call, size_t byte_size,
                                    Deadline deadline);  // plain memory
  virtual Status DoAllReduce(const Call& call, Span data,
                             Deadline deadline) = 0;
  virtual Status DoReduce(const Call& call, Span data, Deadline deadline) = 0;
  virtual Status DoBroadcast(const Call& call, Span data,
                             Deadline deadline) = 0;
  virtual Status DoAllGather(const Call& call, ConstSpan mine, Span all,
                             Deadline deadline) = 0;
  virtual Status DoReduceScatter(const Call& call, ConstSpan all, Span mine,
                                 Deadline deadline) = 0;
  virtual Status DoScatter(const Call& call, ConstSpan all, Span mine,
                           Deadline deadline) = 0;
  virtual Status DoGather(const Call& call, ConstSpan mine, Span all,
                          Deadline deadline) = 0;
  virtual Status DoAllToAll(const Call& call, ConstSpan from, Span to,
                            Deadline deadline) = 0;
  virtual Status DoBarrier(const Call& call, Deadline deadline) = 0;
  virtual Status DoSend(ConstSpan data, int to, Deadline deadline) = 0;
  virtual Status DoRecv(Span data, int from, Deadline deadline) = 0;
  // Wakes this rank's waiters; status() is already not ok.
  virtual void DoAbort() {}

  // Ends the thread behind Start and the way through abort_handle(). Calls that
  // were started and that others do not come to are aborted after a second.
  // First thing in a backend's destructor.
  void Finish();

  const CommunicatorOptions& options() const { return options_; }
  // For waits: true once broken, cheap.
  bool broken() const { return broken_.load(std::memory_order_acquire); }

 private:
  void WaitForStarted();
  // Until all that was started is done; false at `deadline`.
  bool WaitUntilIdle(Deadline deadline);
  // A number for the call, once what was started before is done.
  Status Begin(Call& call);
  // Breaks the communicator when `outcome` is a failure, and returns it.
  Status End(Status outcome);
  void WaitForReason();
  void Break(Status why, bool tell);
  void RunStarted();

  const int rank_;
  const int size_;
  const CommunicatorOptions options_;
  const std::shared_ptr<AbortHandle> abort_handle_;
  uint64_t calls_ = 0;

  std::atomic<bool> broken_ = false;
  mutable base::Mutex mutex_;
  Status why_ GUARDED_BY(mutex_);
  base::CondVar broke_;  // why_ is set

  struct Started {
    std::function<Status(Communicator&)> calls;
    base::Promise<> done;
  };
  std::atomic<int> started_ = 0;  // given and not yet done
  base::CondVar idle_;            // started_ became 0, under mutex_
  base::BoundedQueue<Started> queue_;
  std::jthread thread_;                     // made by the first Start
  std::atomic<std::thread::id> thread_id_;  // set by that thread
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_COMMUNICATOR_H_
