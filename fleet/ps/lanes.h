// SPDX-License-Identifier: Apache-2.0

// A worker's connections to all servers, and how a call runs over them. Private
// to ps/; what users see is in client.h.
//
// A lane is a connection to each server. It belongs to one call at a time, and
// outlives its connections: requests on it are numbered, so that a server knows
// those which come again after a connection was lost.

#ifndef FLEET_PS_LANES_H_
#define FLEET_PS_LANES_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/fork.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/channel/channel.h"
#include "fleet/ps/connect.h"
#include "fleet/ps/heartbeats.h"
#include "fleet/ps/key_stream.h"
#include "fleet/ps/ledger.h"
#include "fleet/ps/sum_stream.h"
#include "fleet/ps/wire.h"

namespace fleet::ps {

// A call, for its errors: "pull emb (4096 keys)". Put together only for them:
// it would take as long as a pull of one key.
struct CallName {
  const char* verb = "";
  std::string_view table;
  size_t count = 0;
  const char* unit = nullptr;  // null: no count

  std::string ToString() const;
};

// What is asked of each server: requests 0, 1, 2 and so on, answered in order.
class Call {
 public:
  explicit Call(const CallName& name) : name_(name) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;

  // Whether there is a request `request` to `server`. Asked in their order,
  // and again for those that a lost connection leaves unanswered. While it
  // works for the next request, servers are at those before.
  virtual bool HasRequest(uint32_t server, size_t request) = 0;
  // Fills the head and adds the pieces that follow it, which stay until the
  // next call of Ask.
  virtual void Ask(uint32_t server, size_t request, RequestHead& head,
                   std::vector<channel::ConstBytes>& parts) = 0;
  // Where an answer of `byte_size` bytes goes. DataLoss when what is returned
  // has another size.
  virtual std::span<std::byte> Into(uint32_t server, size_t request,
                                    size_t byte_size);
  // The answer is there.
  virtual Status Take(uint32_t server, size_t request,
                      std::span<const std::byte> answer);
  // Requests that a server does as one, parts of a gradient, begin with this
  // one: when a connection is lost they are all sent again.
  virtual size_t FirstOfGroup(uint32_t server, size_t request);
  // For a call that failed and is run again: request `answered` of a server is
  // its request 0 from here on, and so on; behind the last come those of
  // `refused`, which the server answered with an error. Only calls that are
  // run again have it.
  virtual void BeginAgain(uint32_t server, size_t answered,
                          std::span<const size_t> refused);
  // Adds the updates that a server has acknowledged by its answer.
  virtual void CountUpdates(uint32_t server, size_t request,
                            UpdateCounts& counts);

  const CallName& name() const { return name_; }

 private:
  const CallName name_;
};

// For calls in which a server waits: how long it may, as its request says it,
// and until when the caller waits. The server says who was missing when its
// time is over, and its reply must have time to come.
uint32_t MillisecondsUntil(Deadline deadline);
Deadline WithTimeToAnswer(Deadline deadline);

struct Lane {
  struct Connection {
    std::unique_ptr<channel::Channel> channel;  // null: to be opened
    uint64_t next_sequence = 1;
    // Numbers of the call that runs.
    uint64_t first_sequence = 1;
    size_t sent = 0;
    size_t received = 0;
    std::vector<size_t> refused;  // answered with an error
    // How often the server was lost before the connection was opened.
    uint64_t num_lost = 0;
    // Updates that the server has acknowledged and, as far as is known, has.
    UpdateCounts acknowledged;
  };
  uint32_t number = 0;
  std::vector<Connection> connections;

  // Memory that calls use again.
  KeyStream stream;
  SumStream sums;
  std::vector<float> rows;
  std::vector<std::byte> small;
  std::vector<channel::ConstBytes> parts;
};

// What a worker does when a server that was started again lacks updates that it
// had acknowledged.
enum class OnDataLoss {
  kFail,  // every call fails with DataLoss, which says what is lost
  kGoOn,  // a warning; they are counted
};

struct LaneOptions {
  int32_t worker = 0;
  std::chrono::milliseconds reconnect_for{0};
  size_t max_inflight = 4;
  base::InterruptCheck interrupt;
  OnDataLoss on_data_loss = OnDataLoss::kFail;
  // A server without a sign of life for so long counts as lost. Zero: never.
  std::chrono::milliseconds heartbeat_timeout{0};
};

// Thread-safe, but for Run, whose lane is one thread's.
class Lanes final {
 public:
  // Called when a server that was lost is reached again, before a call goes on
  // with it. FailedPrecondition ends the call; other errors are tried again.
  using Welcome =
      std::function<Status(channel::Channel&, uint32_t server, Deadline)>;

  Lanes(uint32_t num_servers, OpenConnection open, const LaneOptions& options);
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;
  ~Lanes();

  uint32_t num_servers() const { return num_servers_; }
  int32_t worker() const { return options_.worker; }
  void set_welcome(Welcome welcome) { welcome_ = std::move(welcome); }
  // How tables are called in messages.
  using NameOfTable = std::function<std::string(TableId)>;
  void set_name_of_table(NameOfTable name) { name_of_table_ = std::move(name); }

  // A lane for the length of a call.
  class Lease final {
   public:
    explicit Lease(Lanes& lanes) : lanes_(lanes), lane_(lanes.Borrow()) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { lanes_.GiveBack(std::move(lane_)); }
    Lane& operator*() const { return *lane_; }
    Lane* operator->() const { return lane_.get(); }

   private:
    Lanes& lanes_;
    std::unique_ptr<Lane> lane_;
  };

  // Ok when every request was answered well. Otherwise the first failure, which
  // names worker, call and server; requests that were sent are still answered.
  Status Run(Lane& lane, Call& call, Deadline deadline);
  // Goes on with a call that failed, on its lane, which ran nothing since: what
  // was answered well is not asked again. A request without an answer keeps its
  // number, by which a server that has done it does not do it again; one that
  // was refused gets a new one.
  Status RunAgain(Lane& lane, Call& call, Deadline deadline);

  // Opens the connection by which the server and this worker see that the other
  // lives; it carries nothing more. That to server 0 comes first of all: it
  // gives this worker its incarnation.
  Status OpenLife(uint32_t server, Deadline deadline);
  // The first time. A server that ends in the middle of it is waited for as in
  // any call: its log may have the hello already.
  Status Meet(uint32_t server, Deadline deadline);
  // From here on a thread, one for all servers, sends signs of life, and names
  // servers that give none in the log. To servers that were lost it says hello
  // again as soon as they are there, where the options wait for them: one that
  // was started again learns who lives.
  void StartBeating();
  // Before the worker says good-bye, after which no hello may follow.
  void StopReturning();
  // What a hello tells of the worker's turn; 0: it has none.
  void set_turn(uint64_t turn) { turn_ = turn; }
  // Ascends before a hello to server 0 looks at the turn.
  uint64_t num_hellos() const { return num_hellos_; }
  uint64_t incarnation() const { return incarnation_; }
  // Server 0 knows an earlier incarnation of this worker.
  bool is_back() const { return is_back_; }

  // A server said so since the flag was last cleared.
  bool cut_wanted() const { return cut_wanted_; }
  void clear_cut_wanted() { cut_wanted_ = false; }

  // Acknowledged updates that servers lost, by table.
  UpdateCounts lost() const;
  // How often a server has answered that was started again.
  uint64_t num_server_restarts() const;
  // "300 updates of emb, 12 of fc.w"
  std::string Describe(const UpdateCounts& updates) const;

  // Adds worker, call and server to a failure.
  Status Named(const Status& status, const CallName& name,
               uint32_t server) const;

 private:
  std::unique_ptr<Lane> Borrow();
  void GiveBack(std::unique_ptr<Lane> lane);
  Status Open(Lane& lane, uint32_t server, Deadline deadline);
  // A connection whose hello was answered. `lane` may be null: the connection
  // that carries nothing.
  Result<std::unique_ptr<channel::Channel>> Greet(Lane* lane, uint32_t server,
                                                  Deadline deadline);
  // What a server had acknowledged on lanes that are idle.
  using IdleCounts = std::map<const Lane*, UpdateCounts>;
  IdleCounts CountIdle(uint32_t server) const;
  // Compares what the server has of this worker with what it acknowledged, on
  // this lane and on those that have been idle since before the hello, as
  // `before` shows; the others ask when they are opened again. DataLoss when
  // something is lost, unless the options go on. Unavailable when the server is
  // an old process of one that was started again.
  Status CheckLost(Lane* lane, uint32_t server, const IdleCounts& before,
                   const HelloAnswer& answer);
  // Asks until all requests are answered.
  Status AskAll(Lane& lane, Call& call, Deadline deadline);
  // Gets a lost connection back, if `status` and the options let it, so that
  // the call goes on; else what ends the call.
  Status Recover(Lane& lane, Call& call, uint32_t server, const Status& status,
                 Deadline deadline);
  Status SendRequest(Lane& lane, Call& call, uint32_t server,
                     Deadline deadline);
  // Repeats `wait`, a call on a channel to `server`, in slices, and asks
  // between them whether to go on, and whether the server still lives: what was
  // sent to a host that vanished is repeated by the kernel for a quarter of an
  // hour, while the connection that carries nothing is known to be lost.
  // `slice` is the end of the first one, and then of the last.
  template <typename Wait>
  auto InSlices(uint32_t server, const Lane::Connection& connection,
                Deadline deadline, Deadline& slice, const Wait& wait)
      -> decltype(wait(deadline));
  Deadline NextSlice() const;
  // The connection of OpenLife, and the sign of life that is under way on it.
  struct Life {
    std::unique_ptr<channel::Channel> channel;  // null where none is open
    std::string beat;    // as it is being sent; empty: none is
    bool asked = false;  // a beat was sent, and its answer has not come
    // How often such a connection was lost, and why the last one was. What was
    // opened before is lost with it, although there may be a new one.
    uint64_t num_lost = 0;
    Status lost;
  };
  // Unavailable when the connection of OpenLife is lost, or was since others
  // had been so `num_lost` times.
  Status CheckLife(uint32_t server, uint64_t num_lost);
  uint64_t NumLost(uint32_t server) const;
  void Beat();
  // Says hello to the next of the servers that were lost, if there is one.
  void ReturnToOne();
  // Takes the answer to a beat, if it has come. Unavailable when the connection
  // is lost.
  Status TakeBeat(uint32_t server, Life& life) REQUIRES(life_mutex_);
  // One step of a connection's beats, without waiting. Unavailable when the
  // connection is lost.
  Status BeatOnce(uint32_t server, Life& life) REQUIRES(life_mutex_);
  std::string MakeBeat() const;
  Status TakeReply(Lane& lane, Call& call, uint32_t server, Deadline deadline,
                   Status* outcome);

  const uint32_t num_servers_;
  const OpenConnection open_;
  const LaneOptions options_;
  std::atomic<uint64_t> incarnation_ = 0;  // 0: server 0 has given none yet
  std::atomic<bool> is_back_ = false;
  Welcome welcome_;
  NameOfTable name_of_table_;
  std::atomic<bool> cut_wanted_ = false;

  mutable base::Mutex mutex_;
  // The epoch of each server; 0: not heard yet.
  std::vector<uint64_t> epochs_ GUARDED_BY(mutex_);
  uint64_t num_server_restarts_ GUARDED_BY(mutex_) = 0;
  UpdateCounts lost_ GUARDED_BY(mutex_);
  // What ends all calls, once it is so.
  Status failed_ GUARDED_BY(mutex_);
  std::atomic<bool> has_failed_ = false;
  std::vector<std::unique_ptr<Lane>> idle_ GUARDED_BY(mutex_);
  uint32_t num_lanes_ GUARDED_BY(mutex_) = 0;

  // A lock of its own: beats must not hold up calls. Taken before mutex_.
  mutable base::Mutex life_mutex_;
  std::vector<Life> life_ GUARDED_BY(life_mutex_);  // by server
  // Held by who says hello again; taken before life_mutex_.
  base::Mutex returning_mutex_;
  bool returns_ GUARDED_BY(returning_mutex_) = true;
  uint32_t last_returned_ GUARDED_BY(returning_mutex_) = 0;
  std::atomic<uint64_t> turn_ = 0;
  std::atomic<uint64_t> num_hellos_ = 0;
  const base::Origin origin_;
  Heartbeats heartbeats_;
  base::Interrupt ending_;
  std::jthread beating_;  // last: it uses all of the above
};

}  // namespace fleet::ps

#endif  // FLEET_PS_LANES_H_
