// SPDX-License-Identifier: Apache-2.0

// How two processes get a channel: one listens, the other connects, both say
// hello (hello.h), and each then holds an end. The kind of address decides the
// transport (socket.h): "ip:port" is TCP, or UCX where both sides wish it,
// "@name" is shared memory inside this host.
//
//   ASSIGN_OR_RETURN(auto listener, Listener::Bind(address, options));
//   ASSIGN_OR_RETURN(Connection worker, listener->Accept(deadline));
//
//   ASSIGN_OR_RETURN(Connection server, Connect(address, options, deadline));

#ifndef FLEET_CHANNEL_MEET_H_
#define FLEET_CHANNEL_MEET_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/channel/channel.h"
#include "fleet/channel/hello.h"
#include "fleet/channel/named_hosts.h"
#include "fleet/channel/refusals.h"
#include "fleet/channel/shared_memory.h"
#include "fleet/channel/socket.h"
#include "fleet/channel/trust.h"

namespace fleet::channel {

// What carries the bytes of "ip:port" after the hello.
enum class Carrier { kTcp, kUcx };

// "tcp" and "ucx", as FLEET_CHANNEL has them; InvalidArgument for other words.
// Unimplemented for "ucx" where UCX is absent.
Result<Carrier> ParseCarrier(std::string_view text);

struct MeetOptions {
  // Who this process says it is.
  Identity self;
  Trust trust;
  // How long a listener bears with a peer that connected and does not finish
  // its hello. Other peers do not wait for it.
  std::chrono::milliseconds hello_patience = std::chrono::seconds(5);
  // What carries the bytes. If the sides differ, the hello fails and says so.
  Carrier carrier = Carrier::kTcp;
  // Used for "@name". The listener's count.
  SharedMemoryOptions shared_memory;
  // Told about every peer that a listener refused: garbage, silence, a wrong
  // secret, another version, a host that was not named. Runs inside Accept.
  // Unset: warnings in the log, a few a minute (refusals.h).
  std::function<void(const Status&)> on_refused;
  // The secret in a form that only processes of this user can open, for those
  // who ask for it (AskForSealedSecret). The listener's. Runs inside Accept.
  // Unset: there is none.
  std::function<Result<std::string>()> sealed_secret;
  // Asked while Connect waits, so that ^C ends it.
  base::InterruptCheck interrupt;
};

// The peer, as it called itself, and this end of the channel to it.
struct Connection {
  Identity peer;
  std::unique_ptr<Channel> channel;
  // The host of this end as the peer sees it: where others on that way can
  // reach it. Empty for "@name".
  std::string own_host;
};

// One thread may be in Accept; Abort may come from any.
class Listener final {
  struct Parts;

 public:
  // The address is taken from now on, and peers may connect before Accept is
  // called. Unavailable when somebody else has it. Unimplemented for a secret
  // where Fleet was built without OpenSSL.
  static Result<std::unique_ptr<Listener>> Bind(const Address& address,
                                                MeetOptions options);

  // Listens at a bound socket that was inherited, say from a launcher that
  // gave this process its port. Takes ownership of `fd` in any case.
  // InvalidArgument when `fd` is no bound stream socket.
  static Result<std::unique_ptr<Listener>> Adopt(int fd, MeetOptions options);

  // For Bind and Adopt.
  explicit Listener(Parts parts);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  // With the real port when 0 was asked for.
  const Address& address() const { return address_; }

  // Waits for a peer whose hello is right. Those whose hello is not are
  // refused and do not end or delay the wait: of more than 256 at a time, those
  // that have been silent for longest make place. DeadlineExceeded when none
  // came, Unavailable when this process has no descriptor or memory left for a
  // peer, what Abort was given after that.
  Result<Connection> Accept(Deadline deadline);

  // Wakes Accept with `why`, which must not be ok, and fails later ones.
  void Abort(Status why);

 private:
  struct Guest;

  static Result<std::unique_ptr<Listener>> Make(base::Descriptor fd,
                                                MeetOptions options);

  Status aborted() const;
  // Sleeps until something happens, at most until `deadline` or until a guest's
  // patience ends. Marks guests that have bytes.
  void WaitForGuests(Deadline deadline);
  Status TakeNewGuests();
  // Ok when a new one may stay. Nothing was read from it yet.
  Status CheckOrigin(Guest& guest, const SocketAddress& from);
  // Goes on with a guest's hello as far as its bytes reach. True when it is
  // done.
  Result<bool> Greet(Guest& guest);
  Status AnswerHello(Guest& guest);
  // To one who asks for the sealed secret.
  Status AnswerWithSeal(Guest& guest, Hello mine);
  Status AnswerProof(Guest& guest);
  Result<Connection> Welcome(Guest& guest);
  void Refuse(const Guest& guest, const Status& why);
  void Tell(const std::optional<std::string>& line);

  const base::Descriptor fd_;
  const base::Descriptor wake_;  // an eventfd, readable once aborted
  const Address address_;
  const MeetOptions options_;
  std::vector<Guest> guests_;  // in the order in which they came
  NamedHosts named_hosts_;
  Refusals refusals_;

  mutable base::Mutex mutex_;
  Status why_ GUARDED_BY(mutex_);
};

// Connects to a listener, trying again until `deadline` while nobody listens
// there: the peer may start later. Names its last failure. A peer that refuses
// this process, or that is not Fleet, is an error at once: FailedPrecondition
// or DataLoss. Thread-safe.
Result<Connection> Connect(const Address& address, const MeetOptions& options,
                           Deadline deadline);

// One attempt at it. Unavailable or NotFound when nobody listens there.
Result<Connection> TryToConnect(const Address& address,
                                const MeetOptions& options, Deadline deadline);

// The sealed secret of who listens at `address`, which is not proven to be a
// process of this job; nullopt when it seals none. Waits and fails as Connect.
Result<std::optional<std::string>> AskForSealedSecret(
    const Address& address, const MeetOptions& options, Deadline deadline);

// One attempt at it, which fails as TryToConnect.
Result<std::optional<std::string>> TryToAskForSealedSecret(
    const Address& address, const MeetOptions& options, Deadline deadline);

}  // namespace fleet::channel

#endif  // FLEET_CHANNEL_MEET_H_
