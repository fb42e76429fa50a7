// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/connect.h"

#include <array>
#include <utility>

namespace fleet::ps {

using channel::Channel;
using channel::ConstBytes;

Result<std::string> Ask(Channel& channel, const RequestHead& head,
                        const std::string& body, Deadline deadline,
                        const base::InterruptCheck& interrupt) {
  const std::array<ConstBytes, 2> parts = {std::as_bytes(std::span(&head, 1)),
                                           std::as_bytes(std::span(body))};
  RETURN_IF_ERROR(base::WaitInterruptibly(
      deadline, interrupt,
      [&](Deadline slice) { return channel.SendParts(parts, slice); }));
  ASSIGN_OR_RETURN(
      const std::vector<std::byte> reply,
      base::WaitInterruptibly(deadline, interrupt, [&](Deadline slice) {
        return channel.RecvMessage(kMaxInline + sizeof(ReplyHead), slice);
      }));
  base::ByteReader in(reply);
  const auto reply_head = in.Take<ReplyHead>();
  if (!in.whole()) return DataLoss("a short reply");
  std::string answer(base::TextOf(in.rest()));
  if (reply_head.code != 0) {
    return Status(static_cast<StatusCode>(reply_head.code), answer);
  }
  if ((reply_head.flags & kReplyApart) != 0) {
    if (reply_head.count > kMaxAnswerByteSize) {
      return DataLoss("an answer of ", reply_head.count, " bytes");
    }
    answer.resize(reply_head.count);
    RETURN_IF_ERROR(
        base::WaitInterruptibly(deadline, interrupt, [&](Deadline slice) {
          return channel.Recv(std::as_writable_bytes(std::span(answer)), slice);
        }));
  }
  return answer;
}

OpenConnection ConnectByAddress(const std::vector<channel::Address>& servers,
                                const ConnectByAddressOptions& options) {
  channel::MeetOptions meet;
  meet.self = {channel::ProcessKind::kWorker, options.worker};
  meet.trust = options.trust;
  meet.carrier = options.carrier;
  meet.interrupt = options.interrupt;
  return [servers, meet, shared = options.shared_memory](
             uint32_t server,
             Deadline deadline) -> Result<std::unique_ptr<Channel>> {
    ASSIGN_OR_RETURN(channel::Connection tcp,
                     channel::Connect(servers[server], meet, deadline));
    if (tcp.peer.kind != channel::ProcessKind::kServer ||
        tcp.peer.rank != static_cast<int32_t>(server)) {
      return FailedPrecondition("server ", server, " is expected at ",
                                servers[server].ToString(), ", and there is ",
                                tcp.peer.Name());
    }
    if (!shared) return std::move(tcp.channel);
    RequestHead head;
    head.op = Op::kDescribe;
    ASSIGN_OR_RETURN(const std::string answer,
                     Ask(*tcp.channel, head, "", deadline, meet.interrupt));
    ASSIGN_OR_RETURN(const ServerInfo info, DecodeServerInfo(answer));
    if (info.local_name.empty()) return std::move(tcp.channel);
    channel::Address local;
    local.local_name = info.local_name;
    Result<channel::Connection> near =
        channel::TryToConnect(local, meet, deadline);
    // Not on this host, or without memory to share.
    if (!near.ok()) return std::move(tcp.channel);
    return std::move(near->channel);
  };
}

}  // namespace fleet::ps
