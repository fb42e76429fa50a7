// SPDX-License-Identifier: Apache-2.0

// What launchers of several hosts say to each other, as texts over a channel;
// for the two ways to meet (launch_meeting.h).

#ifndef FLEET_LAUNCH_TALK_H_
#define FLEET_LAUNCH_TALK_H_

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/status.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/meet.h"
#include "fleet/channel/message.h"
#include "fleet/cluster/endpoint.h"
#include "fleet/launch/meeting.h"

namespace fleet::launch {

// One who has said hello and then says nothing.
inline constexpr std::chrono::seconds kAnswerPatience{10};

inline channel::MeetOptions MeetOptions(int rank,
                                        const MeetingOptions& options) {
  return {.self = {channel::ProcessKind::kLauncher, rank},
          .trust = options.trust};
}

inline channel::Address ToAddress(const cluster::Endpoint& endpoint) {
  return {.host = endpoint.host, .port = endpoint.port};
}

inline Status SendText(channel::Channel& to, const std::string& text,
                       base::Deadline deadline) {
  return to.Send(std::as_bytes(std::span(text)), deadline);
}

inline Result<std::string> RecvText(channel::Channel& from,
                                    base::Deadline deadline) {
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                   from.RecvMessage(channel::kMaxMessageByteSize, deadline));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// "a, b, c".
inline std::string Join(const std::vector<std::string>& items) {
  std::string joined;
  for (const std::string& item : items) {
    joined += (joined.empty() ? "" : ", ") + item;
  }
  return joined;
}

}  // namespace fleet::launch

#endif  // FLEET_LAUNCH_TALK_H_
