// SPDX-License-Identifier: Apache-2.0

// Where the processes of a job meet: a few short texts by name that all of them
// see. It is for the start of a job and for rare events, not for data.
//
//   store.Set("address/3", ToString(mine), deadline);
//   store.Wait({"address/0", "address/1"}, deadline);
//
// The in-process store defines the semantics; every other one passes the same
// suite, store_conformance.h.

#ifndef FLEET_CLUSTER_STORE_H_
#define FLEET_CLUSTER_STORE_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"

namespace fleet::cluster {

// Every call ends by its deadline with DeadlineExceeded at the latest, fails
// with the reason of Abort() once that was called, and otherwise fails only as
// said below; a store that is full refuses what would make it larger with
// FailedPrecondition. A call that needs not wait does its work even when its
// deadline has passed. Values are any bytes. Thread-safe.
class Store {
 public:
  // No job has more ranks.
  static constexpr int kMaxBarrierSize = 1 << 20;
  // All names and values, and those of calls that wait.
  static constexpr size_t kMaxByteSize = size_t{256} << 20;

  virtual ~Store() = default;

  // Gives `key` a value, whether or not it has one.
  virtual Status Set(std::string_view key, std::string_view value,
                     base::Deadline deadline) = 0;

  // The value of `key` now; NotFound when it has none.
  virtual Result<std::string> Get(std::string_view key,
                                  base::Deadline deadline) = 0;

  // Waits until all of `keys` have values, and returns these in order.
  // DeadlineExceeded names the keys that have none.
  virtual Result<std::vector<std::string>> Wait(
      const std::vector<std::string>& keys, base::Deadline deadline) = 0;

  // Adds to the number under `key`, 0 when it has no value, and returns the
  // sum. The value is the number in decimal digits. InvalidArgument when it is
  // something else or the sum does not fit; the value stays then.
  virtual Result<int64_t> Add(std::string_view key, int64_t amount,
                              base::Deadline deadline) = 0;

  // Gives `key` the value `desired` if its value is `expected`, where nullopt
  // means that it has none. Returns the value that it has afterwards: `desired`
  // if this call won, and what stood in its way if not, nullopt for none.
  virtual Result<std::optional<std::string>> CompareAndSet(
      std::string_view key, std::optional<std::string_view> expected,
      std::string_view desired, base::Deadline deadline) = 0;

  // Waits until members 0 to size-1 have all called it with this `name`. A name
  // can be used again as soon as the call returned. DeadlineExceeded names the
  // members that are missing; the caller is no longer counted then, and may
  // call again. InvalidArgument when `member` is not one of `size`, when `size`
  // is above kMaxBarrierSize, or when another member came with another size;
  // FailedPrecondition when `member` is already waiting there.
  virtual Status Barrier(std::string_view name, int member, int size,
                         base::Deadline deadline) = 0;

  // Ends all calls that wait, and all later ones, with `reason`, which is a
  // failure. Only the first call counts.
  virtual void Abort(Status reason) = 0;
};

// For the ranks of one process, and for what serves others. Nobody may be in a
// call when it is destroyed: Abort() and join the threads first.
class InProcessStore final : public Store {
 public:
  explicit InProcessStore(size_t max_byte_size = kMaxByteSize)
      : max_byte_size_(max_byte_size) {}

  Status Set(std::string_view key, std::string_view value,
             base::Deadline deadline) override;
  Result<std::string> Get(std::string_view key,
                          base::Deadline deadline) override;
  Result<std::vector<std::string>> Wait(const std::vector<std::string>& keys,
                                        base::Deadline deadline) override;
  Result<int64_t> Add(std::string_view key, int64_t amount,
                      base::Deadline deadline) override;
  Result<std::optional<std::string>> CompareAndSet(
      std::string_view key, std::optional<std::string_view> expected,
      std::string_view desired, base::Deadline deadline) override;
  Status Barrier(std::string_view name, int member, int size,
                 base::Deadline deadline) override;
  void Abort(Status reason) override;

  // The calls that may wait, for one who serves others and has no thread for
  // each: `done` runs once, here or on the thread of whoever completes the
  // call, and must not call the store. False, and `done` does not run, when a
  // call of this id still waits.

  // Names a call. Caller 0 is this object's own.
  struct CallId {
    uint64_t caller;
    uint64_t number;
    friend auto operator<=>(const CallId&, const CallId&) = default;
  };
  using WaitDone = std::function<void(Result<std::vector<std::string>>)>;
  using BarrierDone = std::function<void(Status)>;
  [[nodiscard]] bool StartWait(CallId id, const std::vector<std::string>& keys,
                               WaitDone done);
  [[nodiscard]] bool StartBarrier(CallId id, std::string_view name, int member,
                                  int size, BarrierDone done);
  // The deadline of a call has passed: it ends as Wait and Barrier then do.
  // Nothing happens when it has ended before.
  void Expire(CallId id);
  // Ends so all calls of a caller, who is gone.
  void ExpireCaller(uint64_t caller);

  // Ends all calls that wait, and all later ones that would, with `reason`,
  // which is a failure. The others go on. Only the first call counts.
  void EndWaits(Status reason);

 private:
  // Bytes that something takes of the store, until it is gone.
  class Share final {
   public:
    Share(size_t& taken, size_t byte_size)
        : taken_(&taken), byte_size_(byte_size) {
      taken += byte_size;
    }
    Share(Share&& other) noexcept
        : taken_(std::exchange(other.taken_, nullptr)),
          byte_size_(other.byte_size_) {}
    Share& operator=(Share&&) = delete;
    ~Share() {
      if (taken_ != nullptr) *taken_ -= byte_size_;
    }

   private:
    size_t* taken_;
    size_t byte_size_;
  };

  struct WaitCall {
    Share share;
    std::vector<std::string> keys;
    size_t num_missing;
    WaitDone done;
  };
  // The members of one barrier that came. It is gone when all have.
  struct Gathering {
    int size;
    std::map<int, CallId> arrived;
  };
  struct BarrierCall {
    Share share;
    std::string name;
    int member;
    BarrierDone done;
  };
  // What runs when the lock is given back.
  using Completions = std::vector<std::function<void()>>;

  uint64_t NextNumber() EXCLUDES(mutex_);
  bool WaitsLocked(CallId id) const REQUIRES(mutex_) {
    return waits_.contains(id) || barriers_.contains(id);
  }
  Status PutLocked(std::string_view key, std::string_view value,
                   Completions& completions) REQUIRES(mutex_);
  Status CheckRoomLocked(size_t byte_size) const REQUIRES(mutex_);
  Result<std::vector<std::string>> ValuesLocked(
      const std::vector<std::string>& keys) const REQUIRES(mutex_);
  void ExpireLocked(CallId id, Completions& completions) REQUIRES(mutex_);
  void EndAllLocked(const Status& reason, Completions& completions)
      REQUIRES(mutex_);

  const size_t max_byte_size_;
  base::Mutex mutex_;
  uint64_t next_number_ GUARDED_BY(mutex_) = 0;
  size_t taken_ GUARDED_BY(mutex_) = 0;  // bytes; before what has a Share
  std::map<std::string, std::string, std::less<>> values_ GUARDED_BY(mutex_);
  std::map<CallId, WaitCall> waits_ GUARDED_BY(mutex_);
  // Who waits for a key that has no value.
  std::map<std::string, std::vector<CallId>, std::less<>> wanted_
      GUARDED_BY(mutex_);
  std::map<std::string, Gathering, std::less<>> gatherings_ GUARDED_BY(mutex_);
  std::map<CallId, BarrierCall> barriers_ GUARDED_BY(mutex_);
  Status aborted_ GUARDED_BY(mutex_);
  Status waits_ended_ GUARDED_BY(mutex_);
};

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_STORE_H_
