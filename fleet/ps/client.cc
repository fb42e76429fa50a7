// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/client.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "fleet/base/log.h"
#include "fleet/channel/message.h"

namespace fleet::ps {
namespace {

using channel::Channel;
using channel::ConstBytes;

// For telling that a cut is over, whatever happened in it: as long as a server
// on a busy host may take.
constexpr auto kTimeToEnd = std::chrono::seconds(30);

// For telling that a turn or a cut is given up, which may never have begun.
constexpr auto kTimeToGiveUp = std::chrono::seconds(5);

// The barrier at which steps end.

using TakeAnswer =
    std::function<Status(uint32_t server, std::span<const std::byte>)>;

// One request, the same to each of the first `num_servers` servers.
class SameRequest final : public Call {
 public:
  SameRequest(const CallName& name, uint32_t num_servers,
              const RequestHead& head, const std::string& body,
              const TakeAnswer& take)
      : Call(name),
        num_servers_(num_servers),
        head_(head),
        body_(body),
        take_(take) {}

  bool HasRequest(uint32_t server, size_t request) override {
    return server < num_servers_ && request == 0;
  }
  void Ask(uint32_t, size_t, RequestHead& head,
           std::vector<ConstBytes>& parts) override {
    head = head_;
    parts.push_back(std::as_bytes(std::span(body_)));
  }
  std::span<std::byte> Into(uint32_t, size_t, size_t byte_size) override {
    // The call then fails: it is not what was to come.
    if (byte_size > kMaxAnswerByteSize) return {};
    answer_.resize(byte_size);
    return answer_;
  }
  Status Take(uint32_t server, size_t,
              std::span<const std::byte> answer) override {
    return take_ ? take_(server, answer) : OkStatus();
  }

 private:
  const uint32_t num_servers_;
  const RequestHead& head_;
  const std::string& body_;
  const TakeAnswer take_;  // callers may pass a temporary
  std::vector<std::byte> answer_;
};

std::string RateMessage(const std::string& name, double rate) {
  return channel::MessageWriter()
      .Text(name)
      .U64(std::bit_cast<uint64_t>(rate))
      .Take();
}

}  // namespace

PsClient::PsClient(uint32_t num_servers, OpenConnection open,
                   const PsClientOptions& options)
    : options_(options),
      lanes_(num_servers, std::move(open),
             {options.worker, options.reconnect_for, options.max_inflight,
              options.interrupt, options.on_data_loss,
              options.heartbeat_timeout}) {
  lanes_.set_name_of_table([this](TableId id) { return TableName(id); });
  lanes_.set_welcome(
      [this](Channel& channel, uint32_t, Deadline deadline) -> Status {
        RETURN_IF_ERROR(RestoreTables(channel, deadline));
        return RestoreRates(channel, deadline);
      });
}

// A hello asks for names of tables.
PsClient::~PsClient() { lanes_.StopReturning(); }

Result<std::unique_ptr<PsClient>> PsClient::Connect(
    const std::vector<channel::Address>& servers,
    const PsClientOptions& options, Deadline deadline) {
  return Connect(
      static_cast<uint32_t>(servers.size()),
      ConnectByAddress(servers, {options.worker, options.trust, options.carrier,
                                 options.shared_memory, options.interrupt}),
      options, deadline);
}

Result<std::unique_ptr<PsClient>> PsClient::Connect(
    uint32_t num_servers, OpenConnection open, const PsClientOptions& options,
    Deadline deadline) {
  if (num_servers == 0) return InvalidArgument("a client without servers");
  std::unique_ptr<PsClient> client(
      new PsClient(num_servers, std::move(open), options));
  Lanes& lanes = client->lanes_;
  for (uint32_t s = 0; s < num_servers; ++s) {
    RETURN_IF_ERROR(lanes.Named(lanes.Meet(s, deadline), {"connect"}, s));
  }
  lanes.StartBeating();
  RETURN_IF_ERROR(client->Refresh(deadline));
  if (lanes.is_back()) RETURN_IF_ERROR(client->JoinSteps(deadline));
  return client;
}

Status PsClient::RestoreTables(Channel& channel, Deadline deadline) {
  std::map<TableId, std::string> absent;
  {
    base::MutexLock lock(mutex_);
    absent = specs_;
  }
  if (absent.empty()) return OkStatus();
  auto describe = [&]() -> Result<ServerInfo> {
    RequestHead head;
    head.op = Op::kDescribe;
    ASSIGN_OR_RETURN(const std::string answer,
                     Ask(channel, head, "", deadline, options_.interrupt));
    return DecodeServerInfo(answer);
  };
  ASSIGN_OR_RETURN(const ServerInfo before, describe());
  for (const TableInfo& table : before.tables) absent.erase(table.id);
  if (absent.empty()) return OkStatus();
  std::vector<std::string> specs;
  specs.reserve(absent.size());
  for (const auto& [id, spec] : absent) specs.push_back(spec);
  for (const std::string& body : RequestsToCreate(specs)) {
    RequestHead head;
    head.op = Op::kCreate;
    RETURN_IF_ERROR(
        Ask(channel, head, body, deadline, options_.interrupt).status());
  }
  ASSIGN_OR_RETURN(const ServerInfo after, describe());
  for (const TableInfo& table : after.tables) {
    if (table.dense && !table.initialized && table.begin != table.end) {
      return FailedPrecondition(
          "it was started anew and has no values of ", table.name,
          ": there was no save from which it could begin (FLEET_PS_LAST_SAVE, "
          "FLEET_PS_LOAD)");
    }
  }
  return OkStatus();
}

Status PsClient::RestoreRates(Channel& channel, Deadline deadline) {
  std::map<std::string, double> rates;
  {
    base::MutexLock lock(mutex_);
    rates = rates_;
  }
  for (const auto& [name, rate] : rates) {
    RequestHead head;
    head.op = Op::kSetRate;
    RETURN_IF_ERROR(Ask(channel, head, RateMessage(name, rate), deadline,
                        options_.interrupt)
                        .status());
  }
  return OkStatus();
}

Status PsClient::SetRate(const std::string& name, double rate,
                         Deadline deadline) {
  if (!std::isfinite(rate)) {
    return InvalidArgument("a learning rate of ", rate, " for ", name);
  }
  {
    base::MutexLock lock(mutex_);
    rates_[name] = rate;
  }
  RequestHead head;
  head.op = Op::kSetRate;
  return RunOnAll({"set rate", name}, head, RateMessage(name, rate), deadline);
}

Status PsClient::RunOnAll(const CallName& name, const RequestHead& head,
                          const std::string& body, Deadline deadline,
                          const TakeAnswer& take) {
  SameRequest call(name, num_servers(), head, body, take);
  Lanes::Lease lane(lanes_);
  return lanes_.Run(*lane, call, deadline);
}

Status PsClient::RunOnFirst(const CallName& name, const RequestHead& head,
                            const std::string& body, Deadline deadline,
                            const TakeAnswer& take) {
  SameRequest call(name, 1, head, body, take);
  Lanes::Lease lane(lanes_);
  return lanes_.Run(*lane, call, deadline);
}

Status PsClient::Refresh(Deadline deadline) {
  Servers servers(num_servers());
  RequestHead head;
  head.op = Op::kDescribe;
  RETURN_IF_ERROR(RunOnAll(
      {"connect"}, head, "", deadline,
      [&](uint32_t server, std::span<const std::byte> bytes) -> Status {
        ASSIGN_OR_RETURN(
            servers[server],
            DecodeServerInfo(
                {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
        const ServerInfo& info = servers[server];
        if (info.server != server || info.num_servers != num_servers()) {
          return FailedPrecondition("it is server ", info.server, " of ",
                                    info.num_servers, ", and server ", server,
                                    " of ", num_servers(), " is expected");
        }
        return OkStatus();
      }));
  // One that a server lacks may be on its way: another worker is describing it.
  for (uint32_t s = 1; s < num_servers(); ++s) {
    for (const TableInfo& mine : servers[s].tables) {
      for (const TableInfo& first : servers[0].tables) {
        const bool same = mine.name == first.name &&
                          mine.dense == first.dense && mine.dim == first.dim &&
                          mine.size == first.size;
        if (mine.id != first.id || same) continue;
        return FailedPrecondition("worker ", options_.worker, ": server ", s,
                                  " has other tables than server 0");
      }
    }
  }
  auto known = std::make_shared<const Servers>(std::move(servers));
  base::MutexLock lock(mutex_);
  servers_ = std::move(known);
  return OkStatus();
}

std::shared_ptr<const PsClient::Servers> PsClient::servers() const {
  base::MutexLock lock(mutex_);
  return servers_;
}

std::vector<TableInfo> PsClient::tables() const {
  const std::shared_ptr<const Servers> known = servers();
  return known == nullptr ? std::vector<TableInfo>() : (*known)[0].tables;
}

uint32_t PsClient::num_workers() const {
  const std::shared_ptr<const Servers> known = servers();
  return known == nullptr ? 0 : (*known)[0].num_workers;
}

std::string PsClient::TableName(TableId id) const {
  const std::shared_ptr<const Servers> known = servers();
  if (known != nullptr) {
    for (const TableInfo& table : (*known)[0].tables) {
      if (table.id == id) return table.name;
    }
  }
  return base::Concat("table ", static_cast<uint32_t>(id));
}

Status PsClient::CreateTables(const std::vector<TableSpec>& specs,
                              Deadline deadline) {
  std::vector<std::string> encoded;
  encoded.reserve(specs.size());
  for (const TableSpec& spec : specs) encoded.push_back(Encode(spec));
  const std::string one = specs.size() == 1 ? specs[0].name() : "";
  const CallName name{"create", one, specs.size(),
                      one.empty() ? "tables" : nullptr};
  for (const std::string& body : RequestsToCreate(encoded)) {
    RequestHead head;
    head.op = Op::kCreate;
    RETURN_IF_ERROR(RunOnAll(name, head, body, deadline));
  }
  {
    base::MutexLock lock(mutex_);
    for (size_t i = 0; i < specs.size(); ++i) specs_[specs[i].id] = encoded[i];
  }
  return Refresh(deadline);
}

uint64_t PsClient::NextRound(const std::string& barrier) const {
  base::MutexLock lock(mutex_);
  const auto known = rounds_.find(barrier);
  return known == rounds_.end() ? Roster::kNextRound : known->second;
}

void PsClient::NoteEnded(const std::string& barrier, uint64_t round) {
  base::MutexLock lock(mutex_);
  rounds_[barrier] = round + 1;
}

Status PsClient::JoinSteps(Deadline deadline) {
  RequestHead head;
  head.op = Op::kJoin;
  head.round = Roster::kNextRound;
  const std::string step = kStepBarrier;
  uint64_t from = 0;
  const TakeAnswer take = [&](uint32_t,
                              std::span<const std::byte> answer) -> Status {
    channel::MessageReader in(base::TextOf(answer));
    from = in.U64();
    return in.Finish();
  };
  // Server 0 first: no step after the present one ends there without this
  // worker from here on, so the others are no further on any server.
  SameRequest first({"join"}, 1, head, step, take);
  {
    Lanes::Lease lane(lanes_);
    RETURN_IF_ERROR(lanes_.Run(*lane, first, deadline));
  }
  head.round = from;
  RETURN_IF_ERROR(RunOnAll({"join"}, head, step, deadline, take));
  base::MutexLock lock(mutex_);
  rounds_[kStepBarrier] = from;
  return OkStatus();
}

Result<bool> PsClient::IdleStep(Deadline deadline) {
  RequestHead head;
  head.op = Op::kFinishStep;
  head.flags = kFlagIdle;
  head.round = NextRound(kStepBarrier);
  head.timeout_ms = MillisecondsUntil(deadline);
  bool all_idle = true;
  uint64_t ended = 0;
  const TakeAnswer take = [&](uint32_t,
                              std::span<const std::byte> answer) -> Status {
    channel::MessageReader in(base::TextOf(answer));
    ended = std::max(ended, in.U64());
    all_idle &= in.U8() != 0;
    return in.Finish();
  };
  const std::string step = kStepBarrier;
  SameRequest call({"idle step"}, num_servers(), head, step, take);
  Lanes::Lease lane(lanes_);
  RETURN_IF_ERROR(lanes_.Run(*lane, call, WithTimeToAnswer(deadline)));
  NoteEnded(kStepBarrier, ended);
  return all_idle;
}

Status PsClient::RunBarrier(const std::string& name, uint64_t round,
                            uint64_t* ended, Deadline deadline) {
  RequestHead head;
  head.op = Op::kBarrier;
  head.round = round;
  head.timeout_ms = MillisecondsUntil(deadline);
  const TakeAnswer take = [&](uint32_t,
                              std::span<const std::byte> answer) -> Status {
    channel::MessageReader in(base::TextOf(answer));
    *ended = in.U64();
    return in.Finish();
  };
  SameRequest call({"barrier", name}, 1, head, name, take);
  Lanes::Lease lane(lanes_);
  return lanes_.Run(*lane, call, WithTimeToAnswer(deadline));
}

Status PsClient::Barrier(const std::string& name, Deadline deadline) {
  const std::string full = "barrier " + name;
  uint64_t ended = 0;
  RETURN_IF_ERROR(RunBarrier(name, NextRound(full), &ended, deadline));
  NoteEnded(full, ended);
  return OkStatus();
}

Status PsClient::StartBarrier(const std::string& name, Deadline deadline) {
  const std::string full = "start " + name;
  uint64_t round = NextRound(full);
  if (round == Roster::kNextRound) round = 0;
  uint64_t ended = 0;
  RETURN_IF_ERROR(RunBarrier(full, round, &ended, deadline));
  NoteEnded(full, round);
  return OkStatus();
}

Result<std::vector<std::string>> PsClient::GatherPart(const std::string& name,
                                                      std::string_view part,
                                                      Deadline deadline) {
  const std::string full = "gather " + name;
  RequestHead head;
  head.op = Op::kGather;
  head.round = NextRound(full);
  head.timeout_ms = MillisecondsUntil(deadline);
  const std::string body =
      channel::MessageWriter().Text(name).Text(part).Take();
  std::vector<std::string> all;
  uint64_t ended = 0;
  const TakeAnswer take = [&](uint32_t,
                              std::span<const std::byte> answer) -> Status {
    channel::MessageReader in(base::TextOf(answer));
    ended = in.U64();
    all = in.Texts();
    return in.Finish();
  };
  SameRequest call({"gather", name}, 1, head, body, take);
  Lanes::Lease lane(lanes_);
  RETURN_IF_ERROR(lanes_.Run(*lane, call, WithTimeToAnswer(deadline)));
  NoteEnded(full, ended);
  return all;
}

Result<std::vector<std::string>> PsClient::AllGather(const std::string& name,
                                                     std::string_view bytes,
                                                     Deadline deadline) {
  // The first part tells how much there is, so that all know how many follow.
  constexpr size_t kPart = kChunkByteSize / 2;
  std::vector<std::string> all;
  size_t sent = 0;
  bool more = true;
  while (more) {
    const std::string_view part = bytes.substr(sent, kPart);
    sent += part.size();
    const std::string message =
        channel::MessageWriter().U64(bytes.size()).Raw(part).Take();
    ASSIGN_OR_RETURN(const std::vector<std::string> parts,
                     GatherPart(name, message, deadline));
    all.resize(parts.size());
    more = false;
    for (size_t i = 0; i < parts.size(); ++i) {
      channel::MessageReader in(parts[i]);
      const uint64_t size = in.U64();
      all[i] += in.rest();
      more |= all[i].size() < size;
    }
  }
  return all;
}

Status PsClient::AskFirst(const char* what, Op op, uint64_t number,
                          Deadline deadline) {
  RequestHead head;
  head.op = op;
  head.round = number;
  head.timeout_ms = MillisecondsUntil(deadline);
  const std::string nothing;
  SameRequest call({what}, 1, head, nothing, {});
  Lanes::Lease lane(lanes_);
  return lanes_.Run(*lane, call, WithTimeToAnswer(deadline));
}

Result<uint64_t> PsClient::BeginTurn(Deadline deadline) {
  const uint64_t turn = ++num_turns_;
  // A server that is started again hears of the turn by the first hello. One
  // that was said meanwhile did not tell of it: it is asked for again, which
  // does no harm where it has begun.
  for (uint64_t hellos = ~uint64_t{0}; hellos != lanes_.num_hellos();) {
    lanes_.set_turn(0);
    hellos = lanes_.num_hellos();
    const Status begun =
        AskFirst("begin to send", Op::kBeginTurn, turn, deadline);
    if (!begun.ok()) {
      // The request may still wait there.
      (void)EndTurn(turn, Deadline::After(kTimeToGiveUp));
      return begun;
    }
    lanes_.set_turn(turn);
  }
  // An earlier wish is forgotten: a cut that still waits is told again.
  lanes_.clear_cut_wanted();
  return turn;
}

Status PsClient::EndTurn(uint64_t turn, Deadline deadline) {
  Status ended;
  uint64_t hellos = 0;
  do {
    hellos = lanes_.num_hellos();
    ended = AskFirst("end of sending", Op::kEndTurn, turn, deadline);
    lanes_.set_turn(0);
    // A hello may have told of it when it had ended.
  } while (ended.ok() && hellos != lanes_.num_hellos());
  return ended;
}

Result<uint64_t> PsClient::BeginCut(Deadline deadline) {
  const uint64_t cut = ++num_cuts_;
  const Status begun = AskFirst("begin to save", Op::kBeginCut, cut, deadline);
  if (!begun.ok()) {
    (void)AskFirst("end of saving", Op::kEndCut, cut,
                   Deadline::After(kTimeToGiveUp));
    return begun;
  }
  return cut;
}

Status PsClient::EndCut(uint64_t cut) {
  // Also after a deadline: others wait for it.
  return AskFirst("end of saving", Op::kEndCut, cut,
                  Deadline::After(kTimeToEnd));
}

Result<uint64_t> PsClient::Shrink(TableId table, uint32_t max_unseen_days,
                                  Deadline deadline) {
  RequestHead head;
  head.op = Op::kShrink;
  head.table = table;
  head.count = max_unseen_days;
  head.timeout_ms = MillisecondsUntil(deadline);
  uint64_t erased = 0;
  RETURN_IF_ERROR(RunOnAll(
      {"shrink", TableName(table)}, head, "", WithTimeToAnswer(deadline),
      [&](uint32_t, std::span<const std::byte> bytes) {
        channel::MessageReader in(
            {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        erased += in.U64();
        return in.Finish();
      }));
  return erased;
}

Result<table::SparseTableStats> PsClient::Stats(TableId table,
                                                Deadline deadline) {
  RequestHead head;
  head.op = Op::kStats;
  head.table = table;
  table::SparseTableStats stats;
  RETURN_IF_ERROR(RunOnAll(
      {"stats of", TableName(table)}, head, "", deadline,
      [&](uint32_t server, std::span<const std::byte> bytes) {
        channel::MessageReader in(
            {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        stats.num_rows += in.U64();
        stats.num_candidates += in.U64();
        stats.num_rows_in_memory += in.U64();
        stats.byte_size += in.U64();
        stats.num_nonfinite += in.U64();
        const uint64_t step = in.U64();
        if (server == 0) stats.step = step;
        stats.num_expired += in.U64();
        return in.Finish();
      }));
  return stats;
}

uint64_t PsClient::num_lost_updates() const {
  uint64_t sum = 0;
  for (const auto& [table, count] : lost_updates()) sum += count;
  return sum;
}

Status PsClient::Stop(Deadline deadline) {
  lanes_.StopReturning();
  RequestHead head;
  head.op = Op::kBye;
  const Status stopped = RunOnAll({"good-bye"}, head, "", deadline);
  const UpdateCounts lost = lost_updates();
  if (!lost.empty()) {
    FLEET_LOG(WARNING) << "worker " << options_.worker
                       << " ends; servers that were started again lost "
                       << lanes_.Describe(lost)
                       << " that they had acknowledged";
  }
  return stopped;
}

}  // namespace fleet::ps
