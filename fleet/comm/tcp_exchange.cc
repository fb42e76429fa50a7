// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/tcp_exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "fleet/base/shared_memory.h"

namespace fleet::comm {
namespace {

using namespace std::chrono_literals;

// A first look at the other ranks comes soon, so that different calls are
// found at once; later ones cost little.
constexpr auto kFirstLook = 2ms;
constexpr auto kLastLook = 100ms;

Deadline Now() { return Deadline::After({}); }

}  // namespace

Exchange::Exchange(Links& links, int rank, std::span<const int> members,
                   const CommunicatorOptions& options, const Call& call,
                   Deadline deadline)
    : links_(links),
      rank_(rank),
      members_(members),
      call_(call),
      patience_(options, deadline),
      say_(Deadline::After(std::min<Deadline::Duration>(deadline.remaining(),
                                                        options.stall_report) /
                           2)) {
  const auto mine = std::find(members.begin(), members.end(), rank);
  if (mine != members.end()) place_ = static_cast<int>(mine - members.begin());
}

uint64_t Exchange::Send(int to, std::span<const std::byte> data) {
  return LinkTo(to).Post(Header(data.size()), data);
}

void Exchange::SendKept(int to, std::vector<std::byte> data) {
  const LinkHeader header = Header(data.size());
  LinkTo(to).Post(header, std::move(data));
}

Status Exchange::WaitSent(int to, uint64_t number) {
  Link& link = LinkTo(to);
  return Wait(
      link, [&](Deadline slice) { return link.WaitSent(number, slice); },
      [&] {
        return base::Concat(What(), ": rank ", link.peer(), " takes nothing");
      });
}

Status Exchange::Flush() {
  for (int i = 0; i < size(); ++i) {
    if (i != place_) RETURN_IF_ERROR(WaitSent(i, LinkTo(i).posted()));
  }
  return OkStatus();
}

std::string Exchange::Late(int suspect) {
  std::vector<int> ranks = links_.whereabouts().Late(call_.number);
  if (ranks.empty()) ranks = {suspect};
  return base::Concat(What(), ": no sign of ", RankList(ranks));
}

std::string Exchange::What() const {
  if (!apart_.has_value()) return ToString(call_);
  return base::Concat(apart_->verb, "(", apart_->count, " x ",
                      ToString(apart_->type), ")");
}

Status Exchange::Recv(int from, std::span<std::byte> into) {
  Link& link = LinkTo(from);
  auto late = [&] { return Late(link.peer()); };
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

Status Exchange::SendLetter(int to, ConstSpan data) {
  apart_ = {"send", data.count, data.type};
  Link& link = LinkTo(to);
  const Status posted = link.PostLetter(data);
  if (!posted.ok()) return Lost(link, posted);
  while (!link.window().fits()) {
    if (link.window().peer_waits()) return BothSend(rank_, link.peer());
    RETURN_IF_ERROR(Wait(
        link, [&](Deadline slice) { return link.WaitForNews(slice); },
        [&] {
          return base::Concat(What(), ": not received by rank ", link.peer());
        }));
    RETURN_IF_ERROR(TakeApart(link));
  }
  return OkStatus();
}

Status Exchange::TakeApart(Link& link) {
  const Result<LinkHeader> next = link.Next(Now());
  if (next.status().code() == StatusCode::kDeadlineExceeded) return OkStatus();
  if (!next.ok()) return Lost(link, next.status());
  switch (next->kind) {
    case LinkHeader::Kind::kLetter:
      return TakeLetter(link, *next);
    case LinkHeader::Kind::kFailure:
      return TakeFailure(link, *next);
    default:
      return FailedPrecondition("the ranks make different calls: rank ", rank_,
                                " ", What(), ", for which it needs rank ",
                                link.peer(), "; rank ", link.peer(), " ",
                                ToString(next->call));
  }
}

Status Exchange::RecvLetter(int from, Span into) {
  apart_ = {"recv", into.count, into.type};
  Link& link = LinkTo(from);
  while (link.letters().empty()) {
    RETURN_IF_ERROR(Wait(
        link, [&](Deadline slice) { return link.WaitForNews(slice); },
        [&] {
          return base::Concat(What(), ": nothing from rank ", link.peer());
        }));
    RETURN_IF_ERROR(TakeApart(link));
  }
  const Letter letter = std::move(link.letters().front());
  link.letters().pop_front();
  link.NoteReceived(letter.bytes.size());
  const size_t count = letter.bytes.size() / ByteSize(letter.type);
  if (letter.type != into.type || count != into.count) {
    return FailedPrecondition("rank ", rank_, " called ", What(), " from rank ",
                              link.peer(), ", which sent ", count, " x ",
                              ToString(letter.type));
  }
  if (count != 0) {
    std::memcpy(into.data, letter.bytes.data(), letter.bytes.size());
  }
  return OkStatus();
}

Status Exchange::TakeLetter(Link& link, const LinkHeader& header) {
  // A rank that keeps the rule of SendWindow never sends so far ahead.
  if (link.window().kept() > kSendAhead + SendWindow::kTellEvery) {
    return DataLoss(What(), ": rank ", link.peer(), " sent more than ",
                    kSendAhead >> 20, " MB ahead of their receive");
  }
  RETURN_IF_ERROR(base::CheckAvailable(header.byte_size)
                      .WithContext(base::Concat(What(), ": a message of rank ",
                                                link.peer())));
  link.NoteTaken(header.byte_size);
  Letter letter{header.call.type, {}};
  try {
    letter.bytes.resize(header.byte_size);
  } catch (const std::exception&) {  // the size came from another process
    return Unavailable("no memory for the ", header.byte_size,
                       " bytes that rank ", link.peer(), " sent");
  }
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
  const auto code = static_cast<StatusCode>(header.call.root);
  if (header.byte_size > Link::kInlineByteSize || code <= StatusCode::kOk ||
      code > StatusCode::kInternal) {
    return DataLoss(What(), ": rank ", link.peer(), " sent nonsense");
  }
  std::string text(header.byte_size, ' ');
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

Status Exchange::LookAround(const Link* but) {
  for (const auto& link : links_.all()) {
    if (link == nullptr || link.get() == but) continue;
    const Result<LinkHeader> next = link->Next(Now());
    if (!next.ok()) continue;  // nothing, or who left and is not needed
    // A rank may be ahead, and fail there: it has done its part of this call.
    if (next->kind == LinkHeader::Kind::kFailure &&
        (apart_.has_value() || next->call.number <= call_.number)) {
      return TakeFailure(*link, *next);
    }
    // What a rank that is ahead sent for an earlier call was taken.
    if (next->kind == LinkHeader::Kind::kCall && !apart_.has_value() &&
        next->call.number <= call_.number) {
      RETURN_IF_ERROR(Judge(*link, *next));
    }
  }
  return OkStatus();
}

void Exchange::SayWhere() {
  if (!apart_.has_value() && say_.expired()) {
    links_.whereabouts().Say(call_.number);
  }
}

Status Exchange::Look() {
  SayWhere();
  RETURN_IF_ERROR(LookAround(nullptr));
  return patience_.Look([&] { return Late(rank_); });
}

std::vector<int> Exchange::Gone(std::span<const int> ranks) {
  std::vector<int> gone;
  for (int rank : ranks) {
    if (rank == rank_) continue;
    const Status next = links_.to(rank).Next(Now()).status();
    if (next.code() == StatusCode::kUnavailable) gone.push_back(rank);
  }
  return gone;
}

Status Exchange::Wait(Link& link,
                      const std::function<Status(Deadline)>& attempt,
                      const std::function<std::string()>& waits_for) {
  // Most of the time it is there, or comes soon.
  Status status = attempt(Deadline::After(kFirstLook));
  auto look = std::chrono::milliseconds(kFirstLook);
  while (status.code() == StatusCode::kDeadlineExceeded) {
    SayWhere();
    RETURN_IF_ERROR(LookAround(&link));
    RETURN_IF_ERROR(patience_.Look(waits_for));
    look = std::min(2 * look, std::chrono::milliseconds(kLastLook));
    Deadline slice = Earlier(patience_.slice(), Deadline::After(look));
    if (!say_.expired()) slice = Earlier(slice, say_);
    status = attempt(slice);
  }
  return status.ok() ? status : Lost(link, status);
}

Status Exchange::Lost(const Link& link, const Status& why) {
  if (why.code() != StatusCode::kUnavailable) return why;
  RETURN_IF_ERROR(LookAround(&link));
  return Unavailable(What(), ": rank ", link.peer(), " left (", why.message(),
                     ")");
}

}  // namespace fleet::comm
