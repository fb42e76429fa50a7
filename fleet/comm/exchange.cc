// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace fleet::comm {
namespace {

using namespace std::chrono_literals;

// A first look at the other ranks comes soon, so that different calls are
// found at once; later ones cost little.
constexpr auto kFirstLook = 2ms;
constexpr auto kLastLook = 100ms;
// A connection that ended may mean that a rank died, of which the membership
// knows more: who, where, which process. Its news needs some milliseconds.
constexpr auto kGrace = 300ms;

Deadline Now() { return Deadline::After({}); }

}  // namespace

void Links::TellFailure(const Status& why) {
  for (auto& link : to) {
    if (link != nullptr) link->TellFailure(why);
  }
}

void Links::Fail(const Status& why) {
  aborted.Raise(why);
  for (auto& link : to) {
    if (link != nullptr) link->Fail(why);
  }
}

void Links::WaitIdle() {
  for (auto& link : to) {
    if (link != nullptr) link->WaitIdle();
  }
}

uint64_t Exchange::Send(int to, std::span<const std::byte> data) {
  return links_.to[to]->Post(Header(data.size()), data);
}

void Exchange::SendKept(int to, std::vector<std::byte> data) {
  const LinkHeader header = Header(data.size());
  links_.to[to]->Post(header, std::move(data));
}

Status Exchange::WaitSent(int to, uint64_t number) {
  Link& link = *links_.to[to];
  return Wait(
      link, [&](Deadline slice) { return link.WaitSent(number, slice); },
      [&] { return base::Concat(What(), ": rank ", to, " takes nothing"); });
}

Status Exchange::Flush() {
  for (auto& link : links_.to) {
    if (link == nullptr) continue;
    RETURN_IF_ERROR(WaitSent(link->peer(), link->posted()));
  }
  return OkStatus();
}

std::string Exchange::What() const {
  if (!letter_.has_value()) return ToString(call_);
  return base::Concat("recv(", letter_->count, " x ", ToString(letter_->type),
                      ")");
}

Status Exchange::Recv(int from, std::span<std::byte> into) {
  Link& link = *links_.to[from];
  auto late = [&] {
    std::vector<int> ranks = links_.whereabouts.Late(call_.number);
    if (ranks.empty()) ranks = {from};
    return base::Concat(What(), ": no sign of ", RankList(ranks));
  };
  while (true) {
    LinkHeader header;
    auto next = [&](Deadline slice) -> Status {
      ASSIGN_OR_RETURN(header, link.Next(slice));
      return OkStatus();
    };
    RETURN_IF_ERROR(Wait(link, next, late));
    if (header.kind == LinkHeader::Kind::kLetter) {
      RETURN_IF_ERROR(TakeLetter(link, header));
      continue;
    }
    RETURN_IF_ERROR(Judge(link, header));
    if (header.byte_size != into.size()) {
      return Internal(What(), ": ", header.byte_size, " bytes from rank ", from,
                      " where ", into.size(), " are due");
    }
    return Wait(
        link, [&](Deadline slice) { return link.Take(into, slice); }, late);
  }
}

Status Exchange::RecvLetter(int from, Span into) {
  letter_ = into;
  Link& link = *links_.to[from];
  while (link.letters().empty()) {
    LinkHeader header;
    auto next = [&](Deadline slice) -> Status {
      ASSIGN_OR_RETURN(header, link.Next(slice));
      return OkStatus();
    };
    RETURN_IF_ERROR(Wait(link, next, [&] {
      return base::Concat(What(), ": nothing from rank ", from);
    }));
    if (header.kind == LinkHeader::Kind::kFailure) {
      return TakeFailure(link, header);
    }
    if (header.kind == LinkHeader::Kind::kCall) {
      return FailedPrecondition("the ranks make different calls: rank ", rank_,
                                " ", What(), " from rank ", from, "; rank ",
                                from, " ", ToString(header.call));
    }
    RETURN_IF_ERROR(TakeLetter(link, header));
  }
  const Letter letter = std::move(link.letters().front());
  link.letters().pop_front();
  const size_t count = letter.bytes.size() / ByteSize(letter.type);
  if (letter.type != into.type || count != into.count) {
    return FailedPrecondition("rank ", rank_, " called ", What(), " from rank ",
                              from, ", which sent ", count, " x ",
                              ToString(letter.type));
  }
  if (count != 0) {
    std::memcpy(into.data, letter.bytes.data(), letter.bytes.size());
  }
  return OkStatus();
}

Status Exchange::TakeLetter(Link& link, const LinkHeader& header) {
  Letter letter{header.call.type, std::vector<std::byte>(header.byte_size)};
  RETURN_IF_ERROR(Wait(
      link, [&](Deadline slice) { return link.Take(letter.bytes, slice); },
      [&] {
        return base::Concat(What(), ": the rest of what rank ", link.peer(),
                            " sent does not come");
      }));
  link.letters().push_back(std::move(letter));
  return OkStatus();
}

Status Exchange::TakeFailure(Link& link, const LinkHeader& header) {
  std::string text(header.byte_size, ' ');
  const auto code = static_cast<StatusCode>(header.call.root);
  if (header.byte_size > Link::kInlineByteSize || code <= StatusCode::kOk ||
      code > StatusCode::kInternal) {
    return DataLoss(What(), ": rank ", link.peer(), " sent nonsense");
  }
  RETURN_IF_ERROR(link.Take(std::as_writable_bytes(std::span(text)), Now()));
  return Status(code, base::Concat("rank ", link.peer(), ": ", text));
}

Status Exchange::Judge(Link& link, const LinkHeader& header) {
  if (header.kind == LinkHeader::Kind::kFailure) {
    return TakeFailure(link, header);
  }
  if (header.call == call_) return OkStatus();
  return Mismatch(rank_, call_, link.peer(), header.call);
}

Status Exchange::LookAround(const Link& but) {
  for (auto& link : links_.to) {
    if (link == nullptr || link.get() == &but) continue;
    const Result<LinkHeader> next = link->Next(Now());
    if (!next.ok()) continue;  // nothing, or who left and is not needed
    if (next->kind == LinkHeader::Kind::kFailure) {
      return TakeFailure(*link, *next);
    }
    // A rank may be ahead, but what it sent for an earlier call was taken.
    if (next->kind == LinkHeader::Kind::kCall && !letter_.has_value() &&
        next->call.number <= call_.number) {
      RETURN_IF_ERROR(Judge(*link, *next));
    }
  }
  return OkStatus();
}

Status Exchange::Wait(Link& link,
                      const std::function<Status(Deadline)>& attempt,
                      const std::function<std::string()>& waits_for) {
  // Most of the time it is there, or comes soon.
  Status status = attempt(Deadline::After(kFirstLook));
  if (status.code() != StatusCode::kDeadlineExceeded) {
    return status.ok() ? status : Lost(link, status);
  }
  const Deadline say = Deadline::After(
      std::min<Deadline::Duration>(patience_.deadline().remaining(),
                                   options_.stall_report) /
      2);
  auto look = std::chrono::milliseconds(kFirstLook);
  while (true) {
    if (!letter_.has_value() && say.expired()) {
      links_.whereabouts.Say(call_.number);
    }
    RETURN_IF_ERROR(LookAround(link));
    RETURN_IF_ERROR(patience_.Look(waits_for));
    look = std::min(2 * look, std::chrono::milliseconds(kLastLook));
    Deadline slice = Earlier(patience_.slice(), Deadline::After(look));
    if (!say.expired()) slice = Earlier(slice, say);
    status = attempt(slice);
    if (status.code() == StatusCode::kDeadlineExceeded) continue;
    return status.ok() ? status : Lost(link, status);
  }
}

Status Exchange::Lost(const Link& link, const Status& why) {
  if (why.code() != StatusCode::kUnavailable) return why;
  // Abort ends the channels too; its reason is the better one.
  RETURN_IF_ERROR(links_.aborted.SleepUntil(Deadline::After(kGrace)));
  RETURN_IF_ERROR(LookAround(link));
  return Unavailable(What(), ": rank ", link.peer(), " left (", why.message(),
                     ")");
}

}  // namespace fleet::comm
