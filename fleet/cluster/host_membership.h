// SPDX-License-Identifier: Apache-2.0

// Rank 0's side of a membership: it listens, serves the store, and knows who is
// alive. Only host_membership.cc includes it.

#ifndef FLEET_CLUSTER_HOST_MEMBERSHIP_H_
#define FLEET_CLUSTER_HOST_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "fleet/base/deadline.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/channel/meet.h"
#include "fleet/cluster/meeting_place.h"
#include "fleet/cluster/membership.h"
#include "fleet/cluster/membership_protocol.h"
#include "fleet/cluster/news_board.h"
#include "fleet/cluster/remote_store.h"

namespace fleet::cluster {

class HostMembership final : public Membership {
 public:
  // `trust` is what the ranks go on with. Those that come with another secret
  // than that of `options` are refused; the others are given this one.
  HostMembership(const Role& role, const MeetingPlace& place,
                 JoinOptions options, channel::Trust trust);
  ~HostMembership() override;

  // Listens on `listener`, or at `place` if that is not valid.
  Status Open(const MeetingPlace& place, base::Descriptor listener,
              base::Deadline deadline);
  // Until all ranks have joined.
  Status WaitForAll(base::Deadline deadline);

  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(self_.view.worker_num); }
  const std::string& job_id() const override { return job_id_; }
  const std::string& host() const override { return host_; }
  const channel::Trust& trust() const override { return trust_; }
  Store& store() override { return store_; }
  int Subscribe(std::function<void(const News&)> listener) override {
    return board_.Subscribe(std::move(listener));
  }
  void Unsubscribe(int subscription) override {
    board_.Unsubscribe(subscription);
  }
  void Report(std::string topic, Status why) override;
  void Leave(base::Deadline deadline) override;

 private:
  enum class Phase { kJoining, kRunning, kFailed };

  // Somebody who connected, until the object dies or it is reaped.
  struct Guest {
    std::unique_ptr<Lifeline> link;
    int said_rank = 0;
    std::optional<JoinRequest> joined;
    bool left = false;
    bool ended = false;
  };

  channel::MeetOptions MeetingOptions() const;
  void AcceptGuests();
  void StopListening();
  void WaitUntilOthersLeft(base::Deadline deadline);
  void TakeIn(channel::Connection connection);
  void OnMessage(uint64_t id, std::string_view message);
  // What OnMessage does; the link of who sent nonsense is closed.
  Status Handle(uint64_t id, std::string_view message);
  Status CheckJoined(uint64_t id);
  void OnEnd(uint64_t id, const Status& why);
  Status OnJoin(uint64_t id, std::string_view rest);
  Status CheckGuestLocked(const Guest& guest, const JoinRequest& request)
      REQUIRES(mutex_);
  Status OnReport(uint64_t id, std::string_view rest);
  void OnLeave(uint64_t id);
  void SendTo(uint64_t id, std::string message);
  void AskSelf(std::string_view message);

  Guest* FindLocked(uint64_t id) REQUIRES(mutex_);
  // By rank, those who joined and are still connected.
  std::map<int, Guest*> MembersLocked() REQUIRES(mutex_);
  std::string MissingLocked() REQUIRES(mutex_);
  void SendToAllLocked(const std::string& message, int but_rank)
      REQUIRES(mutex_);
  // Tells those who came and, if asked to, waits a moment for the others.
  void RefuseAll(const Status& why, bool wait_for_others);

  const JoinOptions options_;
  const channel::Trust trust_;
  const JoinRequest self_;
  const std::string job_id_;
  std::string host_ = "127.0.0.1";  // set before Join returns

  InProcessStore values_;
  StoreService service_;
  NewsBoard board_;

  base::Mutex mutex_;
  base::CondVar changed_;
  Phase phase_ GUARDED_BY(mutex_) = Phase::kJoining;
  Status failure_ GUARDED_BY(mutex_);
  uint64_t next_guest_ GUARDED_BY(mutex_) = kSelf + 1;
  std::map<uint64_t, std::unique_ptr<Guest>> guests_ GUARDED_BY(mutex_);
  std::set<int> gone_ GUARDED_BY(mutex_);  // died or left, once running
  std::set<int> left_ GUARDED_BY(mutex_);  // of those, who said good-bye
  std::set<int> told_ GUARDED_BY(mutex_);  // that they are refused, and why
  std::string reached_at_ GUARDED_BY(mutex_);
  std::string last_refusal_ GUARDED_BY(mutex_);

  static constexpr uint64_t kSelf = 1;  // this process as a caller of the store
  RemoteStore store_;
  base::Descriptor socket_;  // that the launcher gave; `listener_` has a copy
  std::unique_ptr<channel::Listener> listener_;
  std::jthread acceptor_;
};

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_HOST_MEMBERSHIP_H_
