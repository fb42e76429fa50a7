// SPDX-License-Identifier: Apache-2.0
#include "fleet/comm/in_process.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fleet/base/mutex.h"
#include "fleet/comm/left.h"
#include "fleet/comm/patience.h"
#include "fleet/comm/reduce.h"
#include "fleet/comm/send_window.h"

namespace fleet::comm {
namespace {

// What one rank brings to a call.
struct Part {
  Call call;
  ConstSpan from;
  Span to;
  bool moves = true;  // false for a barrier that stands for `call`
};

void Copy(std::byte* to, const std::byte* from, size_t byte_size) {
  if (byte_size != 0) std::memmove(to, from, byte_size);
}

// Combines what all ranks brought, from element `begin` on, in the order of the
// ranks, so that the result does not depend on who came first.
void CombineInto(const std::vector<std::byte*>& outputs,
                 const std::vector<Part>& parts, size_t begin) {
  const Call& call = parts.front().call;
  std::vector<const std::byte*> inputs;
  inputs.reserve(parts.size());
  for (const Part& part : parts) {
    inputs.push_back(part.from.data + begin * ByteSize(call.type));
  }
  if (call.count == 0) return;
  CombineAll(call.op, call.type, inputs, outputs, call.count);
}

// Does the work of all ranks.
void Perform(const std::vector<Part>& parts) {
  if (!parts.front().moves) return;
  const Call& call = parts.front().call;
  const size_t size = parts.size();
  const size_t count = call.count;
  const size_t bytes = count * ByteSize(call.type);
  const Part& root = parts[static_cast<size_t>(call.root)];
  switch (call.kind) {
    case CallKind::kAllReduce: {
      std::vector<std::byte*> outputs;
      outputs.reserve(size);
      for (const Part& part : parts) outputs.push_back(part.to.data);
      CombineInto(outputs, parts, 0);
      return;
    }
    case CallKind::kReduce:
      CombineInto({root.to.data}, parts, 0);
      return;
    case CallKind::kBroadcast:
      for (const Part& part : parts) Copy(part.to.data, root.from.data, bytes);
      return;
    case CallKind::kReduceScatter:
      for (size_t i = 0; i < size; ++i) {
        CombineInto({parts[i].to.data}, parts, i * count);
      }
      return;
    case CallKind::kScatter:
      for (size_t i = 0; i < size; ++i) {
        Copy(parts[i].to.data, root.from.data + i * bytes, bytes);
      }
      return;
    case CallKind::kGather:
      for (size_t i = 0; i < size; ++i) {
        Copy(root.to.data + i * bytes, parts[i].from.data, bytes);
      }
      return;
    case CallKind::kAllGather:
      for (const Part& to : parts) {
        for (size_t i = 0; i < size; ++i) {
          Copy(to.to.data + i * bytes, parts[i].from.data, bytes);
        }
      }
      return;
    case CallKind::kAllToAll:
      for (size_t i = 0; i < size; ++i) {
        for (size_t j = 0; j < size; ++j) {
          Copy(parts[i].to.data + j * bytes, parts[j].from.data + i * bytes,
               bytes);
        }
      }
      return;
    case CallKind::kBarrier:
    case CallKind::kAllocate:
      return;
  }
}

// Where the ranks meet. Calls come one after the other, so there is one round
// at a time; the last rank to come does the work of all.
class Room final {
 public:
  explicit Room(int size)
      : size_(size),
        gone_(size),
        round_(std::make_shared<Round>(size)),
        sends_to_(size, -1) {}

  Status Meet(int rank, const Part& part, Patience patience) EXCLUDES(mutex_) {
    std::shared_ptr<Round> round;
    {
      base::MutexLock lock(mutex_);
      RETURN_IF_ERROR(failure_);
      round = round_;
      RETURN_IF_ERROR(FailLocked(CheckAlikeLocked(*round, rank, part)));
      round->parts[rank] = part;
      round->arrived[rank] = true;
      if (round->num_arrived += 1; round->num_arrived == size_) {
        Perform(round->parts);
        round->done = true;
        round_ = std::make_shared<Round>(size_);
        changed_.NotifyAll();
        return OkStatus();
      }
    }
    return Wait(
        patience, [&]() REQUIRES(mutex_) { return round->done; },
        [&]() REQUIRES(mutex_) {
          return LeftLocked(Missing(round->arrived), part.call);
        },
        [&] {
          base::MutexLock lock(mutex_);
          return base::Concat(ToString(part.call), ": no sign of ",
                              RankList(Missing(round->arrived)));
        });
  }

  Status Put(int from, int to, ConstSpan data, Patience patience)
      EXCLUDES(mutex_) {
    const std::string what = Describe("send", data);
    {
      base::MutexLock lock(mutex_);
      RETURN_IF_ERROR(failure_);
      if (gone_[to]) return Unavailable(what, " to rank ", to, ", which left");
      Mail& mail = mail_[{from, to}];
      mail.letters.push_back(
          {data.type,
           std::vector<std::byte>(data.data, data.data + data.byte_size())});
      mail.charge += SendCharge(data.byte_size());
      changed_.NotifyAll();
      if (FitsLocked(from, to)) return OkStatus();
      sends_to_[from] = to;
    }
    Status sent = Wait(
        patience, [&]() REQUIRES(mutex_) { return FitsLocked(from, to); },
        [&]() REQUIRES(mutex_) {
          if (sends_to_[to] == from && !FitsLocked(to, from)) {
            return BothSend(from, to);
          }
          if (!gone_[to]) return OkStatus();
          return Unavailable(what, " to rank ", to, ", which left");
        },
        [&] { return base::Concat(what, ": not received by rank ", to); });
    base::MutexLock lock(mutex_);
    sends_to_[from] = -1;
    return sent;
  }

  Status Take(int from, int to, Span data, Patience patience) EXCLUDES(mutex_) {
    const std::string what = Describe("recv", data);
    RETURN_IF_ERROR(Wait(
        patience,
        [&]() REQUIRES(mutex_) { return !mail_[{from, to}].letters.empty(); },
        [&]() REQUIRES(mutex_) {
          if (!gone_[from]) return OkStatus();
          return Unavailable(what, " from rank ", from, ", which left");
        },
        [&] { return base::Concat(what, ": nothing from rank ", from); }));
    base::MutexLock lock(mutex_);
    Mail& mail = mail_[{from, to}];
    const Letter letter = std::move(mail.letters.front());
    mail.letters.pop_front();
    mail.charge -= SendCharge(letter.bytes.size());
    changed_.NotifyAll();
    const size_t count = letter.bytes.size() / ByteSize(letter.type);
    if (letter.type != data.type || count != data.count) {
      return FailLocked(FailedPrecondition(
          "rank ", to, " called ", what, " from rank ", from, ", which sent ",
          count, " x ", ToString(letter.type)));
    }
    Copy(data.data, letter.bytes.data(), letter.bytes.size());
    return OkStatus();
  }

  // `rank` comes to no more calls.
  void Leave(int rank) EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    gone_[rank] = true;
    changed_.NotifyAll();
  }

  void Fail(Status why) EXCLUDES(mutex_) {
    base::MutexLock lock(mutex_);
    FailLocked(std::move(why)).ok();
  }

 private:
  struct Round {
    explicit Round(int size) : parts(size), arrived(size) {}
    std::vector<Part> parts;
    std::vector<bool> arrived;
    int num_arrived = 0;
    bool done = false;
  };
  struct Letter {
    DataType type;
    std::vector<std::byte> bytes;
  };
  // From one rank to another.
  struct Mail {
    std::deque<Letter> letters;
    uint64_t charge = 0;  // of all of them
  };

  static std::string Describe(std::string_view what, ConstSpan data) {
    return base::Concat(what, "(", data.count, " x ", ToString(data.type), ")");
  }

  bool FitsLocked(int from, int to) REQUIRES(mutex_) {
    return mail_[{from, to}].charge <= kSendAhead + SendWindow::kTellEvery;
  }

  static std::vector<int> Missing(const std::vector<bool>& arrived) {
    std::vector<int> ranks;
    for (size_t i = 0; i < arrived.size(); ++i) {
      if (!arrived[i]) ranks.push_back(static_cast<int>(i));
    }
    return ranks;
  }

  Status CheckAlikeLocked(const Round& round, int rank, const Part& part)
      REQUIRES(mutex_) {
    for (int i = 0; i < size_; ++i) {
      if (round.arrived[i] && !(round.parts[i].call == part.call)) {
        return Mismatch(rank, part.call, i, round.parts[i].call);
      }
    }
    return OkStatus();
  }

  Status LeftLocked(std::vector<int> missing, const Call& call)
      REQUIRES(mutex_) {
    std::erase_if(missing,
                  [&](int rank) REQUIRES(mutex_) { return !gone_[rank]; });
    if (missing.empty()) return OkStatus();
    return LeftBefore(ToString(call), missing);
  }

  // The first failure is that of all ranks.
  Status FailLocked(Status why) REQUIRES(mutex_) {
    if (why.ok()) return why;
    if (failure_.ok()) {
      failure_ = std::move(why);
      changed_.NotifyAll();
    }
    return failure_;
  }

  // Until ready() or the first failure; a rank that is no longer needed may
  // fail. `lost()` is the failure that keeps it from ever being ready.
  template <typename Ready, typename Lost, typename WaitsFor>
  Status Wait(Patience& patience, Ready ready, Lost lost, WaitsFor waits_for)
      EXCLUDES(mutex_) {
    while (true) {
      {
        base::MutexLock lock(mutex_);
        bool in_time = true;
        while (in_time) {
          if (ready()) return OkStatus();
          RETURN_IF_ERROR(failure_);
          RETURN_IF_ERROR(FailLocked(lost()));
          in_time = changed_.WaitUntil(mutex_, patience.slice());
        }
        if (ready()) return OkStatus();
      }
      const Status status = patience.Look(waits_for);
      if (status.ok()) continue;
      base::MutexLock lock(mutex_);
      if (ready()) return OkStatus();
      return FailLocked(status);
    }
  }

  const int size_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<bool> gone_ GUARDED_BY(mutex_);
  std::shared_ptr<Round> round_ GUARDED_BY(mutex_);
  std::map<std::pair<int, int>, Mail> mail_ GUARDED_BY(mutex_);
  // By rank: to whom it waits to send, or -1.
  std::vector<int> sends_to_ GUARDED_BY(mutex_);
  Status failure_ GUARDED_BY(mutex_);
};

class InProcess final : public Communicator {
 public:
  InProcess(std::shared_ptr<Room> room, int rank, int size,
            CommunicatorOptions options)
      : Communicator(rank, size, std::move(options)), room_(std::move(room)) {}
  ~InProcess() override {
    Finish();
    room_->Leave(rank());
  }

  std::string_view backend() const override { return "in-process"; }

 protected:
  Status DoAllReduce(const Call& call, Span data, Deadline deadline) override {
    return Meet({call, data, data}, deadline);
  }
  Status DoReduce(const Call& call, Span data, Deadline deadline) override {
    return Meet({call, data, data}, deadline);
  }
  Status DoBroadcast(const Call& call, Span data, Deadline deadline) override {
    return Meet({call, data, data}, deadline);
  }
  Status DoAllGather(const Call& call, ConstSpan mine, Span all,
                     Deadline deadline) override {
    return Meet({call, mine, all}, deadline);
  }
  Status DoReduceScatter(const Call& call, ConstSpan all, Span mine,
                         Deadline deadline) override {
    return Meet({call, all, mine}, deadline);
  }
  Status DoScatter(const Call& call, ConstSpan all, Span mine,
                   Deadline deadline) override {
    return Meet({call, all, mine}, deadline);
  }
  Status DoGather(const Call& call, ConstSpan mine, Span all,
                  Deadline deadline) override {
    return Meet({call, mine, all}, deadline);
  }
  Status DoAllToAll(const Call& call, ConstSpan from, Span to,
                    Deadline deadline) override {
    return Meet({call, from, to}, deadline);
  }
  Status DoBarrier(const Call& call, Deadline deadline) override {
    return Meet({call, {}, {}, false}, deadline);
  }
  Status DoSend(ConstSpan data, int to, Deadline deadline) override {
    return room_->Put(rank(), to, data, Patience(options(), deadline));
  }
  Status DoRecv(Span data, int from, Deadline deadline) override {
    return room_->Take(from, rank(), data, Patience(options(), deadline));
  }
  void DoAbort() override {
    const Status why = status();
    room_->Fail(Status(why.code(), base::Concat("rank ", rank(),
                                                " gave up: ", why.message())));
  }

 private:
  Status Meet(const Part& part, Deadline deadline) {
    return room_->Meet(rank(), part, Patience(options(), deadline));
  }

  const std::shared_ptr<Room> room_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeInProcess(
    int size, const CommunicatorOptions& options) {
  return MakeInProcess(size, [&](int) { return options; });
}

std::vector<std::unique_ptr<Communicator>> MakeInProcess(
    int size, const std::function<CommunicatorOptions(int rank)>& options) {
  auto room = std::make_shared<Room>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  ranks.reserve(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) {
    ranks.push_back(std::make_unique<InProcess>(room, i, size, options(i)));
  }
  return ranks;
}

}  // namespace fleet::comm
