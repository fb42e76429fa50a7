// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/shared_memory_meeting.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <sys/random.h>
#include <sys/socket.h>
#include <utility>

#include "fleet/base/log.h"
#include "fleet/channel/handover.h"
#include "fleet/channel/local_peer.h"
#include "fleet/comm/types.h"

namespace fleet::comm {
namespace {

using base::Deadline;

// Guests between connect and the end of their introduction. More wait in the
// kernel.
constexpr size_t kMaxGuests = 256;
// A member introduces itself at once; a stranger may say nothing.
constexpr auto kGuestPatience = std::chrono::seconds(5);

using Token = std::array<char, 32>;

// What a rank sends when it is connected. Both ends are of one release on one
// machine, so plain memory does.
struct Introduction {
  Token token;
  int32_t rank;
};

// What goes with a descriptor, or instead of it.
struct Handover {
  int32_t code = 0;  // of the Status; 0 when there is memory
  char reason[252] = "";
};

// Letters and digits, so that it may stand in a name and in the store.
Result<Token> RandomToken() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::array<unsigned char, std::tuple_size_v<Token> / 2> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) !=
      static_cast<ssize_t>(bytes.size())) {
    return ErrnoStatus(errno, "getrandom");
  }
  Token token;
  for (size_t i = 0; i < bytes.size(); ++i) {
    token[2 * i] = kDigits[bytes[i] >> 4];
    token[2 * i + 1] = kDigits[bytes[i] & 15];
  }
  return token;
}

// Takes the same time wherever the first difference is.
bool Same(const Token& a, const Token& b) {
  int differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs |= a[i] ^ b[i];
  return differs == 0;
}

Result<base::Descriptor> OpenSocket(const channel::SocketAddress& address) {
  auto fd = base::Descriptor::OfThisProcess(
      socket(address.storage.ss_family,
             SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  return fd;
}

Result<channel::SocketAddress> LocalAddress(std::string name) {
  channel::Address address;
  address.local_name = std::move(name);
  ASSIGN_OR_RETURN(const std::vector<channel::SocketAddress> resolved,
                   channel::Resolve(address));
  return resolved.front();
}

// A connection whose introduction has not come whole.
struct Guest {
  base::Descriptor fd;
  Introduction introduction;
  size_t got = 0;
  Deadline patience = Deadline::After(kGuestPatience);

  // True when it is whole; Unavailable when the guest left.
  Result<bool> Read() {
    auto* bytes = reinterpret_cast<char*>(&introduction);
    const ssize_t count =
        recv(fd.get(), bytes + got, sizeof(introduction) - got, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count < 0) return ErrnoStatus(errno, "lost");
    if (count == 0) return Unavailable("left");
    got += static_cast<size_t>(count);
    return got == sizeof(introduction);
  }
};

// Rank 0's side of the start: takes connections until all ranks are there.
class Reception final {
 public:
  Reception(base::Descriptor listener, const Token& token, int size)
      : listener_(std::move(listener)), token_(token), ranks_(size) {}

  bool complete() const { return missing().empty(); }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (size_t i = 1; i < ranks_.size(); ++i) {
      if (!ranks_[i].valid()) ranks.push_back(static_cast<int>(i));
    }
    return ranks;
  }

  base::Descriptor TakeRank(int rank) { return std::move(ranks_[rank]); }

  // Waits until somebody moves, at most until `deadline`, and goes on with it.
  Status Step(Deadline deadline) {
    std::vector<pollfd> entries;
    for (const Guest& guest : guests_) {
      entries.push_back({guest.fd.get(), POLLIN, 0});
      deadline = Earlier(deadline, guest.patience);
    }
    if (guests_.size() < kMaxGuests) {
      entries.push_back({listener_.get(), POLLIN, 0});
    }
    (void)poll(entries.data(), entries.size(), channel::PollTimeout(deadline));
    std::erase_if(guests_, [&](Guest& guest) { return Finished(guest); });
    while (guests_.size() < kMaxGuests) {
      auto fd = base::Descriptor::OfThisProcess(accept4(
          listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid()) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) break;
        return ErrnoStatus(errno, "accept");
      }
      const Status user = channel::CheckPeerUser(fd.get());
      if (!user.ok()) {
        FLEET_LOG(WARNING) << "shared memory: refused: " << user.message();
        continue;
      }
      guests_.push_back({std::move(fd), {}});
    }
    return OkStatus();
  }

 private:
  bool Finished(Guest& guest) {
    const Result<bool> whole = guest.Read();
    if (!whole.ok()) return true;
    if (!*whole) return guest.patience.expired();
    const int rank = guest.introduction.rank;
    if (!Same(guest.introduction.token, token_) || rank < 1 ||
        rank >= static_cast<int>(ranks_.size()) || ranks_[rank].valid()) {
      FLEET_LOG(WARNING) << "shared memory: refused a process that does not "
                            "belong to the group";
      return true;
    }
    ranks_[rank] = std::move(guest.fd);
    return true;
  }

  const base::Descriptor listener_;
  const Token token_;
  std::vector<base::Descriptor> ranks_;
  std::vector<Guest> guests_;
};

Result<std::vector<base::Descriptor>> AcceptAll(
    const Meeting& meeting, const base::InterruptCheck& interrupt,
    Deadline deadline) {
  ASSIGN_OR_RETURN(const Token name, RandomToken());
  ASSIGN_OR_RETURN(const Token token, RandomToken());
  const std::string name_text(name.data(), name.size());
  ASSIGN_OR_RETURN(const channel::SocketAddress address,
                   LocalAddress(name_text));
  ASSIGN_OR_RETURN(base::Descriptor listener, OpenSocket(address));
  if (bind(listener.get(), address.get(), address.byte_size) != 0 ||
      listen(listener.get(), meeting.size) != 0) {
    return ErrnoStatus(errno, "listen");
  }
  RETURN_IF_ERROR(meeting.store->Set(
      meeting.prefix + "shared_memory",
      name_text + std::string(token.data(), token.size()), deadline));
  Reception reception(std::move(listener), token, meeting.size);
  while (!reception.complete()) {
    if (interrupt) RETURN_IF_ERROR(interrupt());
    if (deadline.expired()) {
      return DeadlineExceeded("no sign of ", RankList(reception.missing()));
    }
    RETURN_IF_ERROR(reception.Step(
        Earlier(deadline, Deadline::After(base::kInterruptInterval))));
  }
  std::vector<base::Descriptor> ranks(meeting.size);
  for (int i = 1; i < meeting.size; ++i) ranks[i] = reception.TakeRank(i);
  return ranks;
}

Result<base::Descriptor> Introduce(const Meeting& meeting,
                                   const base::InterruptCheck& interrupt,
                                   Deadline deadline) {
  Result<std::vector<std::string>> found =
      meeting.store->Wait({meeting.prefix + "shared_memory"}, deadline);
  if (!found.ok()) return found.status().WithContext("no sign of rank 0");
  const std::string& text = found->front();
  Introduction introduction{};
  constexpr size_t kSize = std::tuple_size_v<Token>;
  if (text.size() != 2 * kSize) {
    return DataLoss("the store holds no address of rank 0's memory");
  }
  std::copy_n(text.begin() + kSize, kSize, introduction.token.begin());
  introduction.rank = meeting.rank;
  ASSIGN_OR_RETURN(const channel::SocketAddress address,
                   LocalAddress(text.substr(0, kSize)));
  ASSIGN_OR_RETURN(base::Descriptor fd, OpenSocket(address));
  while (connect(fd.get(), address.get(), address.byte_size) != 0) {
    if (errno != EAGAIN && errno != EINTR) {
      return ErrnoStatus(errno, "connect to rank 0");
    }
    // Rank 0's queue is full for a moment.
    if (interrupt) RETURN_IF_ERROR(interrupt());
    if (deadline.expired()) return DeadlineExceeded("rank 0 takes no call");
    (void)poll(nullptr, 0, 1);
  }
  RETURN_IF_ERROR(channel::CheckPeerUser(fd.get()));
  RETURN_IF_ERROR(channel::WriteAll(
      fd.get(), std::as_bytes(std::span(&introduction, 1)), deadline));
  return fd;
}

}  // namespace

Result<std::unique_ptr<MemoryExchange>> MemoryExchange::Connect(
    const Meeting& meeting, const base::InterruptCheck& interrupt,
    Deadline deadline) {
  auto exchange = std::make_unique<MemoryExchange>();
  if (meeting.size == 1) return exchange;
  if (meeting.rank == 0) {
    ASSIGN_OR_RETURN(std::vector<base::Descriptor> ranks,
                     AcceptAll(meeting, interrupt, deadline));
    for (int i = 1; i < meeting.size; ++i) {
      exchange->peers_.push_back({i, std::move(ranks[i])});
    }
  } else {
    ASSIGN_OR_RETURN(base::Descriptor fd,
                     Introduce(meeting, interrupt, deadline));
    exchange->peers_.push_back({0, std::move(fd)});
  }
  return exchange;
}

Status MemoryExchange::Give(const Result<base::Descriptor>& memory) {
  Handover handover;
  if (!memory.ok()) {
    handover.code = static_cast<int32_t>(memory.status().code());
    memory.status().message().copy(handover.reason,
                                   sizeof(handover.reason) - 1);
  }
  Status outcome = memory.status();
  for (const Peer& peer : peers_) {
    const Status sent = channel::SendDescriptor(
        peer.fd.get(), std::as_bytes(std::span(&handover, 1)),
        memory.ok() ? memory->get() : -1);
    // The lack of memory is the news, not that a peer left as well.
    if (outcome.ok() && !sent.ok()) {
      outcome = Unavailable("rank ", peer.rank, ": ", sent.message());
    }
  }
  return outcome;
}

Result<base::Descriptor> MemoryExchange::Take(
    const base::InterruptCheck& interrupt, Deadline deadline) {
  const int socket = peers_.front().fd.get();
  RETURN_IF_ERROR(
      base::WaitInterruptibly(deadline, interrupt, [&](Deadline slice) {
        if (channel::WaitFor(socket, POLLIN, slice)) return OkStatus();
        return DeadlineExceeded("rank 0 handed over no memory");
      }));
  Handover handover;
  Result<base::Descriptor> memory = channel::ReceiveDescriptor(
      socket, std::as_writable_bytes(std::span(&handover, 1)));
  if (!memory.ok()) return Unavailable("rank 0 is gone");
  if (handover.code != 0) {
    handover.reason[sizeof(handover.reason) - 1] = '\0';
    return Status(static_cast<StatusCode>(handover.code), handover.reason);
  }
  if (!memory->valid()) return Unavailable("no descriptor left for memory");
  return memory;
}

std::vector<int> MemoryExchange::Gone() const {
  std::vector<int> ranks;
  for (const Peer& peer : peers_) {
    // Memory may be waiting, but the end of the connection shows as well.
    pollfd entry{peer.fd.get(), POLLRDHUP, 0};
    if (poll(&entry, 1, 0) > 0) ranks.push_back(peer.rank);
  }
  return ranks;
}

}  // namespace fleet::comm
