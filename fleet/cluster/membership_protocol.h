// SPDX-License-Identifier: Apache-2.0

// What rank 0 (the host) and the other ranks (its guests) tell each other over
// their links, and the two sides of it. Only membership.cc needs to see both.

#ifndef FLEET_CLUSTER_MEMBERSHIP_PROTOCOL_H_
#define FLEET_CLUSTER_MEMBERSHIP_PROTOCOL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/channel/message.h"
#include "fleet/cluster/lifeline.h"
#include "fleet/cluster/meeting_place.h"
#include "fleet/cluster/membership.h"
#include "fleet/cluster/role.h"

namespace fleet::cluster {

using channel::MessageReader;
using channel::MessageWriter;

// The first byte of every message. The numbers are those of docs/wire.md.
enum class MessageKind : uint8_t {
  // From a guest.
  kJoin = 1,     // a JoinRequest
  kRequest = 2,  // for StoreService
  kReport = 3,   // text topic, failure
  kLeave = 4,
  // From the host.
  kProgress = 5,  // text: who is still missing
  kWelcome = 6,   // text: the job's id
  kRefused = 7,   // u8: whether this is another job; failure
  kReply = 8,     // for RemoteStore
  kNews = 9,      // u8 kind, u32 rank, text topic, failure
  kGoodbye = 10,  // answers kLeave
};

std::string MakeMessage(MessageKind kind, MessageWriter rest = {});

// What this process was told about its job; the same for all its workers.
struct JobView {
  uint32_t worker_num = 0;
  std::vector<std::string> worker_endpoints;
};

// Who comes, and with what in mind.
struct JoinRequest {
  int rank = 0;
  std::string process;  // "process 4711 on host-b"
  std::string meeting_name;
  JobView view;

  // "rank 1 (process 4711 on host-b)"
  std::string Name() const;
};

// The request of this process.
JoinRequest MakeJoinRequest(const Role& role, const MeetingPlace& place);
std::string Encode(const JoinRequest& request);
Result<JoinRequest> DecodeJoinRequest(std::string_view rest);
std::string Encode(const News& news);
Result<News> DecodeNews(std::string_view rest);

// Ok when both were told the same, else FailedPrecondition, which shows what
// differs.
Status CheckSameView(const JoinRequest& host, const JoinRequest& guest);

// "rank 3 (...) is dead: it gave no sign of life for 10 s", or that it was shut
// out for what it sent. `end` is what a Lifeline's on_end was given.
Status DescribeDeath(const std::string& name, const Status& end);

// Says every ten seconds in the log what is waited for, and passes ^C on.
// Called on the waiting thread, again and again.
class WaitReporter final {
 public:
  explicit WaitReporter(
      base::InterruptCheck interrupt,
      std::chrono::milliseconds interval = std::chrono::seconds(10));
  // Ok to go on. `what` is called when it is time to tell.
  Status Check(const std::function<std::string()>& what);
  // "20 s", since the start.
  std::string waited() const;

 private:
  const base::InterruptCheck interrupt_;
  const std::chrono::milliseconds interval_;
  const std::chrono::steady_clock::time_point since_;
  std::chrono::steady_clock::time_point next_;
  Status interrupted_;
};

Result<std::unique_ptr<Membership>> JoinAsHost(const Role& role,
                                               JoinOptions options,
                                               base::Deadline deadline);
Result<std::unique_ptr<Membership>> JoinAsGuest(const Role& role,
                                                JoinOptions options,
                                                base::Deadline deadline);

}  // namespace fleet::cluster

#endif  // FLEET_CLUSTER_MEMBERSHIP_PROTOCOL_H_
