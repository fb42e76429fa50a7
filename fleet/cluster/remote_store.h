// SPDX-License-Identifier: Apache-2.0

// A store that lives in another process. RemoteStore turns calls into requests,
// StoreService answers them out of an InProcessStore; who carries the messages
// between the two is not their business. Calls of several threads are under
// way at once, each with a number, and one that waits holds up no other.
//
// The clock of a call is the caller's: when its deadline passes, it says so,
// and the service then answers who or what is missing.

#ifndef FLEET_CLUSTER_REMOTE_STORE_H_
#define FLEET_CLUSTER_REMOTE_STORE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "fleet/base/deadline.h"
#include "fleet/base/fork.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/channel/message.h"
#include "fleet/cluster/store.h"

namespace fleet::cluster {

using channel::MessageReader;
using channel::MessageWriter;

// Thread-safe.
class StoreService final {
 public:
  // `store` must outlive the service and every call that it began.
  explicit StoreService(InProcessStore& store) : store_(store) {}

  // Handles what RemoteStore `caller` (not 0) sent. `reply` is given what is
  // for its OnReply: once for each request, now or later, on any thread, and
  // must neither wait nor call this object. DataLoss when `message` makes no
  // sense, also when it has the number of a call that still waits.
  Status Handle(uint64_t caller, std::string_view message,
                std::function<void(std::string_view)> reply);

 private:
  InProcessStore& store_;
};

class RemoteStore final : public Store {
 public:
  struct Options {
    // Takes a message for StoreService::Handle. Must not wait.
    std::function<void(std::string_view)> send;
    // Asked while calls wait, so that ^C ends them.
    base::InterruptCheck interrupt;
    // How long after its deadline a call waits for the answer that says what
    // is missing. Reached only when the service is dead and nobody told.
    std::chrono::milliseconds grace = std::chrono::seconds(10);
  };
  explicit RemoteStore(Options options) : options_(std::move(options)) {}

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

  // What the service replied. DataLoss when it makes no sense.
  Status OnReply(std::string_view message);

 private:
  struct Call;

  // Sends a request with `arguments` behind its number, and waits. Returns what
  // came behind the status of the reply.
  Result<std::string> Ask(uint8_t operation, MessageWriter arguments,
                          base::Deadline deadline);

  const Options options_;
  const base::Origin origin_;
  base::Mutex mutex_;
  uint64_t next_number_ GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::shared_ptr<Call>> calls_ GUARDED_BY(mutex_);
  Status aborted_ GUARDED_BY(mutex_);
};

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_REMOTE_STORE_H_
