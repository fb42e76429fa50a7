// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/client.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <tuple>
#include <utility>

#include "fleet/cluster/message.h"

namespace fleet::ps {
namespace {

using channel::Channel;
using channel::ConstBytes;
using channel::MutableBytes;

// Between attempts to reach a server that is gone.
constexpr auto kRetryInterval = std::chrono::milliseconds(20);

// Keys of one answer: half a megabyte.
constexpr size_t kMaxChanges = 65536;

uint64_t RandomNumber() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

uint32_t Milliseconds(Deadline deadline) {
  if (deadline.is_infinite()) return ~uint32_t{0};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline.remaining());
  return static_cast<uint32_t>(
      std::clamp<int64_t>(left.count(), 1, ~uint32_t{0}));
}

// A server waits until the deadline and then says who was missing: its reply
// must have time to come.
Deadline WithTimeToAnswer(Deadline deadline) {
  if (deadline.is_infinite()) return deadline;
  return Deadline::At(deadline.time_point() + std::chrono::seconds(5));
}

size_t NumChunks(size_t count, size_t of_chunk) {
  return (count + of_chunk - 1) / of_chunk;
}

// Connections by address: TCP first, which every server has, then shared
// memory where the server told its name and can be reached there.
OpenConnection OpenByAddress(const std::vector<channel::Address>& servers,
                             const PsClientOptions& options) {
  channel::MeetOptions meet;
  meet.self = {channel::ProcessKind::kWorker, options.worker};
  meet.secret = options.secret;
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
    RETURN_IF_ERROR(
        tcp.channel->Send(std::as_bytes(std::span(&head, 1)), deadline));
    ASSIGN_OR_RETURN(
        std::vector<std::byte> reply,
        tcp.channel->RecvMessage(kMaxInline + sizeof(ReplyHead), deadline));
    ReplyHead reply_head;
    if (reply.size() < sizeof(reply_head)) return DataLoss("a short reply");
    std::memcpy(&reply_head, reply.data(), sizeof(reply_head));
    if (reply_head.apart != 0) {
      ASSIGN_OR_RETURN(const std::vector<std::byte> body,
                       tcp.channel->RecvMessage(64 << 20, deadline));
      reply.insert(reply.end(), body.begin(), body.end());
    }
    ASSIGN_OR_RETURN(
        const ServerInfo info,
        DecodeServerInfo(
            {reinterpret_cast<const char*>(reply.data()) + sizeof(reply_head),
             reply.size() - sizeof(reply_head)}));
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

}  // namespace

// A lane for the length of a call.
class PsClient::Lease final {
 public:
  explicit Lease(PsClient& client) : client_(client) {}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    if (lane_ != nullptr) client_.GiveBack(std::move(lane_));
  }
  Status Take() {
    ASSIGN_OR_RETURN(lane_, client_.Borrow());
    return OkStatus();
  }
  Lane& operator*() const { return *lane_; }
  Lane* operator->() const { return lane_.get(); }

 private:
  PsClient& client_;
  std::unique_ptr<Lane> lane_;
};

PsClient::PsClient(uint32_t num_servers, OpenConnection open,
                   const PsClientOptions& options)
    : num_servers_(num_servers),
      open_(std::move(open)),
      options_(options),
      incarnation_(RandomNumber()) {}

PsClient::~PsClient() = default;

Result<std::unique_ptr<PsClient>> PsClient::Connect(
    const std::vector<channel::Address>& servers,
    const PsClientOptions& options, Deadline deadline) {
  return Connect(static_cast<uint32_t>(servers.size()),
                 OpenByAddress(servers, options), options, deadline);
}

Result<std::unique_ptr<PsClient>> PsClient::Connect(
    uint32_t num_servers, OpenConnection open, const PsClientOptions& options,
    Deadline deadline) {
  if (num_servers == 0) return InvalidArgument("a client without servers");
  std::unique_ptr<PsClient> client(
      new PsClient(num_servers, std::move(open), options));
  RETURN_IF_ERROR(client->Refresh(deadline));
  for (uint32_t s = 0; s < num_servers; ++s) {
    RETURN_IF_ERROR(
        client->Named(client->OpenLife(s, deadline), {"connect"}, s));
  }
  return client;
}

Status PsClient::OpenLife(uint32_t server, Deadline deadline) {
  base::MutexLock lock(mutex_);
  life_.number = kLifeLane;
  life_.connections.resize(num_servers_);
  return Open(life_, server, deadline);
}

Result<std::unique_ptr<PsClient::Lane>> PsClient::Borrow() {
  base::MutexLock lock(mutex_);
  if (!idle_.empty()) {
    std::unique_ptr<Lane> lane = std::move(idle_.back());
    idle_.pop_back();
    return lane;
  }
  auto lane = std::make_unique<Lane>();
  lane->number = num_lanes_++;
  lane->connections.resize(num_servers_);
  return lane;
}

void PsClient::GiveBack(std::unique_ptr<Lane> lane) {
  base::MutexLock lock(mutex_);
  idle_.push_back(std::move(lane));
}

std::string PsClient::CallName::ToString() const {
  std::string text = verb;
  if (!table.empty()) text += base::Concat(" ", table);
  if (unit != nullptr) text += base::Concat(" (", count, " ", unit, ")");
  return text;
}

Status PsClient::Named(const Status& status, const CallName& name,
                       uint32_t server) const {
  if (status.ok()) return status;
  return status.WithContext(base::Concat("worker ", options_.worker, ": ",
                                         name.ToString(), " at server ",
                                         server));
}

Result<std::string> PsClient::Ask(Channel& channel, const RequestHead& head,
                                  const std::string& body, Deadline deadline) {
  const std::array<ConstBytes, 2> parts = {std::as_bytes(std::span(&head, 1)),
                                           std::as_bytes(std::span(body))};
  RETURN_IF_ERROR(channel.SendParts(parts, deadline));
  ASSIGN_OR_RETURN(
      std::vector<std::byte> reply,
      channel.RecvMessage(kMaxInline + sizeof(ReplyHead), deadline));
  ReplyHead reply_head;
  if (reply.size() < sizeof(reply_head)) return DataLoss("a short reply");
  std::memcpy(&reply_head, reply.data(), sizeof(reply_head));
  std::string answer(
      reinterpret_cast<const char*>(reply.data()) + sizeof(reply_head),
      reply.size() - sizeof(reply_head));
  if (reply_head.code != 0) {
    return Status(static_cast<StatusCode>(reply_head.code), answer);
  }
  if (reply_head.apart != 0) {
    answer.resize(reply_head.count);
    RETURN_IF_ERROR(
        channel.Recv(std::as_writable_bytes(std::span(answer)), deadline));
  }
  return answer;
}

Status PsClient::Open(Lane& lane, uint32_t server, Deadline deadline) {
  Connection& connection = lane.connections[server];
  ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel, open_(server, deadline));
  RequestHead head;
  head.op = Op::kHello;
  const std::string body = cluster::MessageWriter()
                               .U32(static_cast<uint32_t>(options_.worker))
                               .U32(lane.number)
                               .U64(incarnation_)
                               .Take();
  RETURN_IF_ERROR(Ask(*channel, head, body, deadline).status());
  connection.channel = std::move(channel);
  return OkStatus();
}

Status PsClient::RestoreTables(Lane& lane, uint32_t server, Deadline deadline) {
  std::map<TableId, std::string> absent;
  {
    base::MutexLock lock(mutex_);
    absent = specs_;
  }
  if (absent.empty()) return OkStatus();
  Channel& channel = *lane.connections[server].channel;
  auto describe = [&]() -> Result<ServerInfo> {
    RequestHead head;
    head.op = Op::kDescribe;
    ASSIGN_OR_RETURN(const std::string answer,
                     Ask(channel, head, "", deadline));
    return DecodeServerInfo(answer);
  };
  ASSIGN_OR_RETURN(const ServerInfo before, describe());
  for (const TableInfo& table : before.tables) absent.erase(table.id);
  if (absent.empty()) return OkStatus();
  for (const auto& [id, spec] : absent) {
    RequestHead head;
    head.op = Op::kCreate;
    head.table = id;
    RETURN_IF_ERROR(Ask(channel, head, spec, deadline).status());
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

Status PsClient::SendRequest(Lane& lane, const Call& call, uint32_t server,
                             size_t request, uint64_t sequence,
                             Deadline deadline) {
  RequestHead head;
  std::vector<ConstBytes> parts(1);
  call.ask(server, request, head, parts);
  head.sequence = sequence;
  parts[0] = std::as_bytes(std::span(&head, 1));
  return lane.connections[server].channel->SendParts(parts, deadline);
}

// `outcome` is what the server said; the return value how the connection is.
Status PsClient::TakeReply(Lane& lane, const Call& call, uint32_t server,
                           size_t request, uint64_t sequence, Deadline deadline,
                           Status* outcome) {
  Channel& channel = *lane.connections[server].channel;
  ASSIGN_OR_RETURN(const uint64_t byte_size, channel.NextSize(deadline));
  if (byte_size < sizeof(ReplyHead) ||
      byte_size > sizeof(ReplyHead) + kMaxInline) {
    return DataLoss("a reply of ", byte_size, " bytes");
  }
  lane.small.resize(byte_size);
  RETURN_IF_ERROR(channel.Recv(lane.small, deadline));
  ReplyHead head;
  std::memcpy(&head, lane.small.data(), sizeof(head));
  if (head.sequence != sequence) {
    return DataLoss("the reply to request ", head.sequence, " instead of ",
                    sequence);
  }
  const std::span<const std::byte> inlined =
      std::span(lane.small).subspan(sizeof(head));
  if (head.code != 0) {
    *outcome = Status(static_cast<StatusCode>(head.code),
                      std::string(reinterpret_cast<const char*>(inlined.data()),
                                  inlined.size()));
    return OkStatus();
  }
  if (!call.into) {
    if (head.apart == 0) {
      if (call.take) *outcome = call.take(server, request, inlined);
      return OkStatus();
    }
    std::vector<std::byte> body(head.count);
    RETURN_IF_ERROR(channel.Recv(body, deadline));
    if (call.take) *outcome = call.take(server, request, body);
    return OkStatus();
  }
  const std::span<std::byte> into = call.into(server, request);
  if (head.count != into.size()) {
    return DataLoss("an answer of ", head.count, " bytes instead of ",
                    into.size());
  }
  if (head.apart != 0) return channel.Recv(into, deadline);
  if (!into.empty()) std::memcpy(into.data(), inlined.data(), into.size());
  return OkStatus();
}

// Requests go to every server as far as max_inflight allows, then a reply is
// taken from each. Unanswered requests to a server are at most max_inflight
// parts, and pulls, whose replies are large, are small: so a server that waits
// to send finds the client reading sooner or later, whatever the channel holds.
Status PsClient::Run(Lane& lane, const Call& call, Deadline deadline) {
  struct Progress {
    size_t sent = 0;
    size_t received = 0;
    uint64_t first_sequence = 0;
  };
  std::vector<Progress> progress(num_servers_);
  for (uint32_t s = 0; s < num_servers_; ++s) {
    Connection& connection = lane.connections[s];
    progress[s].first_sequence = connection.next_sequence;
    connection.next_sequence += call.num_requests[s];
  }
  Status failure;  // of a server; what was sent is still answered
  auto lost = [&](uint32_t s, const Status& status) -> Status {
    Connection& connection = lane.connections[s];
    if (status.code() != StatusCode::kUnavailable ||
        options_.reconnect_for.count() == 0) {
      // What comes later on this connection belongs to nobody.
      for (Connection& each : lane.connections) each.channel.reset();
      return Named(status, call.name, s);
    }
    connection.channel.reset();
    const Deadline patience =
        Earlier(deadline, Deadline::After(options_.reconnect_for));
    base::Interrupt never;
    while (true) {
      if (Open(lane, s, patience).ok()) {
        const Status restored = RestoreTables(lane, s, patience);
        if (restored.ok() && OpenLife(s, patience).ok()) break;
        if (restored.code() == StatusCode::kFailedPrecondition) {
          for (Connection& each : lane.connections) each.channel.reset();
          return Named(restored, call.name, s);
        }
      }
      if (patience.expired()) {
        for (Connection& each : lane.connections) each.channel.reset();
        return Named(status.WithContext("it did not come back"), call.name, s);
      }
      if (options_.interrupt) RETURN_IF_ERROR(options_.interrupt());
      (void)never.SleepUntil(
          Earlier(patience, Deadline::After(kRetryInterval)));
    }
    // From the first that was not answered on; the server knows which of them
    // it has done.
    progress[s].sent = progress[s].received;
    return OkStatus();
  };
  while (true) {
    bool busy = false;
    for (uint32_t s = 0; s < num_servers_; ++s) {
      Progress& at = progress[s];
      while (failure.ok() && at.sent < call.num_requests[s] &&
             at.sent - at.received < options_.max_inflight) {
        Status sent;
        if (lane.connections[s].channel == nullptr) {
          sent = Open(lane, s, deadline);
          // It may have been started anew since another lane was used.
          if (sent.ok() && options_.reconnect_for.count() > 0) {
            sent = RestoreTables(lane, s, deadline);
          }
        }
        if (sent.ok()) {
          sent = SendRequest(lane, call, s, at.sent,
                             at.first_sequence + at.sent, deadline);
        }
        if (sent.ok()) {
          ++at.sent;
          continue;
        }
        RETURN_IF_ERROR(lost(s, sent));
      }
    }
    for (uint32_t s = 0; s < num_servers_; ++s) {
      Progress& at = progress[s];
      if (at.received == at.sent) continue;
      busy = true;
      Status outcome;
      const Status taken =
          TakeReply(lane, call, s, at.received, at.first_sequence + at.received,
                    deadline, &outcome);
      if (!taken.ok()) {
        RETURN_IF_ERROR(lost(s, taken));
        continue;
      }
      if (!outcome.ok() && failure.ok()) failure = Named(outcome, call.name, s);
      ++at.received;
    }
    if (!busy) return failure;
  }
}

Status PsClient::RunOnAll(
    const CallName& name, const RequestHead& given, const std::string& body,
    Deadline deadline,
    const std::function<Status(uint32_t, std::span<const std::byte>)>& take) {
  Lease lane(*this);
  RETURN_IF_ERROR(lane.Take());
  Call call;
  call.name = name;
  call.num_requests.assign(num_servers_, 1);
  call.ask = [&](uint32_t, size_t, RequestHead& head,
                 std::vector<ConstBytes>& parts) {
    head = given;
    parts.push_back(std::as_bytes(std::span(body)));
  };
  if (take) {
    call.take = [&](uint32_t server, size_t, std::span<const std::byte> bytes) {
      return take(server, bytes);
    };
  }
  return Run(*lane, call, deadline);
}

Status PsClient::Refresh(Deadline deadline) {
  std::vector<ServerInfo> servers(num_servers_);
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
        if (info.server != server || info.num_servers != num_servers_) {
          return FailedPrecondition("it is server ", info.server, " of ",
                                    info.num_servers, ", and server ", server,
                                    " of ", num_servers_, " is expected");
        }
        return OkStatus();
      }));
  for (uint32_t s = 1; s < num_servers_; ++s) {
    const auto& first = servers[0].tables;
    const auto& other = servers[s].tables;
    const bool same = std::equal(
        first.begin(), first.end(), other.begin(), other.end(),
        [](const TableInfo& a, const TableInfo& b) {
          return a.id == b.id && a.name == b.name && a.dense == b.dense &&
                 a.dim == b.dim && a.size == b.size;
        });
    if (!same) {
      return FailedPrecondition("worker ", options_.worker, ": server ", s,
                                " has other tables than server 0");
    }
  }
  base::MutexLock lock(mutex_);
  servers_ = std::move(servers);
  return OkStatus();
}

std::vector<TableInfo> PsClient::tables() const {
  base::MutexLock lock(mutex_);
  return servers_.empty() ? std::vector<TableInfo>() : servers_[0].tables;
}

uint32_t PsClient::num_workers() const {
  base::MutexLock lock(mutex_);
  return servers_.empty() ? 0 : servers_[0].num_workers;
}

Result<TableId> PsClient::FindTable(const std::string& name) const {
  for (const TableInfo& table : tables()) {
    if (table.name == name) return table.id;
  }
  return NotFound("worker ", options_.worker, ": the servers have no table ",
                  name);
}

std::string PsClient::TableName(TableId id) const {
  for (const TableInfo& table : tables()) {
    if (table.id == id) return table.name;
  }
  return base::Concat("table ", static_cast<uint32_t>(id));
}

Result<TableInfo> PsClient::SparseInfo(TableId id, size_t num_keys,
                                       size_t num_values,
                                       const char* what) const {
  base::MutexLock lock(mutex_);
  for (const TableInfo& table : servers_[0].tables) {
    if (table.id != id) continue;
    if (table.dense) {
      return InvalidArgument("worker ", options_.worker, ": ", what, " ",
                             table.name, ": it is a dense table");
    }
    if (num_values != num_keys * table.dim) {
      return InvalidArgument("worker ", options_.worker, ": ", what, " ",
                             table.name, " (", num_keys, " keys): ", num_values,
                             " values, where a row has ", table.dim);
    }
    return table;
  }
  return NotFound("worker ", options_.worker, ": ", what,
                  ": the servers have no table with id ",
                  static_cast<uint32_t>(id));
}

Status PsClient::Pull(TableId id, std::span<const Key> keys,
                      std::span<float> rows, const PullOptions& options,
                      Deadline deadline) {
  ASSIGN_OR_RETURN(const TableInfo table,
                   SparseInfo(id, keys.size(), rows.size(), "pull"));
  if (keys.empty()) return OkStatus();
  const size_t dim = table.dim;
  Lease lane(*this);
  RETURN_IF_ERROR(lane.Take());
  KeySplit& split = lane->split;
  split.Assign(keys, num_servers_);
  std::span<float> unique = rows;
  if (!split.is_identity()) {
    if (lane->rows.size() < split.size() * dim) {
      lane->rows.resize(split.size() * dim);
    }
    unique = lane->rows;
  }
  std::vector<uint32_t> counts;
  if (options.count) counts = split.Counts();

  const size_t of_chunk = KeysOfChunk(dim);
  auto part = [&](uint32_t server, size_t request) {
    const size_t begin = split.begin(server) + request * of_chunk;
    const size_t end = std::min(begin + of_chunk, split.begin(server + 1));
    return std::pair(begin, end - begin);
  };
  Call call;
  call.name = {"pull", table.name, keys.size(), "keys"};
  for (uint32_t s = 0; s < num_servers_; ++s) {
    call.num_requests.push_back(
        NumChunks(split.begin(s + 1) - split.begin(s), of_chunk));
  }
  call.ask = [&](uint32_t server, size_t request, RequestHead& head,
                 std::vector<ConstBytes>& parts) {
    const auto [begin, count] = part(server, request);
    head.op = Op::kPull;
    head.table = id;
    head.count = count;
    if (!options.training) head.flags |= kFlagNotTraining;
    parts.push_back(std::as_bytes(std::span(&split.keys()[begin], count)));
    if (options.count) {
      head.flags |= kFlagCounts;
      parts.push_back(std::as_bytes(std::span(&counts[begin], count)));
    }
  };
  call.into = [&](uint32_t server, size_t request) {
    const auto [begin, count] = part(server, request);
    return std::as_writable_bytes(unique.subspan(begin * dim, count * dim));
  };
  RETURN_IF_ERROR(Run(*lane, call, deadline));
  if (!split.is_identity()) split.Expand(unique, dim, rows);
  return OkStatus();
}

Status PsClient::Update(Op op, const char* what, TableId id,
                        std::span<const Key> keys,
                        std::span<const float> values,
                        std::span<const float> shows,
                        std::span<const float> clicks, Deadline deadline) {
  ASSIGN_OR_RETURN(const TableInfo table,
                   SparseInfo(id, keys.size(), values.size(), what));
  if (keys.empty()) return OkStatus();
  const size_t dim = table.dim;
  Lease lane(*this);
  RETURN_IF_ERROR(lane.Take());
  KeySplit& split = lane->split;
  split.Assign(keys, num_servers_);
  std::span<const float> unique = values;
  if (!split.is_identity()) {
    if (op == Op::kAssign) {
      lane->rows.resize(split.size() * dim);
      for (size_t i = 0; i < keys.size(); ++i) {
        std::copy_n(&values[i * dim], dim,
                    &lane->rows[size_t{split.slots()[i]} * dim]);
      }
    } else {
      split.Sum(values, dim, lane->rows);
    }
    unique = lane->rows;
  }
  std::vector<float> shown;
  std::vector<float> clicked;
  if (!shows.empty()) {
    split.Sum(shows, 1, shown);
    split.Sum(clicks, 1, clicked);
  }

  const size_t of_chunk = KeysOfChunk(dim);
  Call call;
  call.name = {what, table.name, keys.size(), "keys"};
  for (uint32_t s = 0; s < num_servers_; ++s) {
    call.num_requests.push_back(
        NumChunks(split.begin(s + 1) - split.begin(s), of_chunk));
  }
  call.ask = [&](uint32_t server, size_t request, RequestHead& head,
                 std::vector<ConstBytes>& parts) {
    const size_t begin = split.begin(server) + request * of_chunk;
    const size_t count = std::min(of_chunk, split.begin(server + 1) - begin);
    head.op = op;
    head.table = id;
    head.count = count;
    parts.push_back(std::as_bytes(std::span(&split.keys()[begin], count)));
    parts.push_back(std::as_bytes(unique.subspan(begin * dim, count * dim)));
    if (shown.empty()) return;
    head.flags |= kFlagShows;
    parts.push_back(std::as_bytes(std::span(&shown[begin], count)));
    parts.push_back(std::as_bytes(std::span(&clicked[begin], count)));
  };
  return Run(*lane, call, deadline);
}

Status PsClient::Push(TableId table, std::span<const Key> keys,
                      std::span<const float> gradients, Deadline deadline) {
  return Update(Op::kPush, "push", table, keys, gradients, {}, {}, deadline);
}

Status PsClient::PushShown(TableId table, std::span<const Key> keys,
                           std::span<const float> gradients,
                           std::span<const float> shows,
                           std::span<const float> clicks, Deadline deadline) {
  if (shows.size() != keys.size() || clicks.size() != keys.size()) {
    return InvalidArgument("worker ", options_.worker, ": push of ",
                           keys.size(), " keys with ", shows.size(),
                           " shows and ", clicks.size(), " clicks");
  }
  return Update(Op::kPush, "push", table, keys, gradients, shows, clicks,
                deadline);
}

Status PsClient::Accumulate(TableId table, std::span<const Key> keys,
                            std::span<const float> gradients,
                            Deadline deadline) {
  return Update(Op::kAccumulate, "push", table, keys, gradients, {}, {},
                deadline);
}

Status PsClient::Add(TableId table, std::span<const Key> keys,
                     std::span<const float> deltas, Deadline deadline) {
  return Update(Op::kAdd, "add", table, keys, deltas, {}, {}, deadline);
}

Status PsClient::Assign(TableId table, std::span<const Key> keys,
                        std::span<const float> rows, Deadline deadline) {
  return Update(Op::kAssign, "assign", table, keys, rows, {}, {}, deadline);
}

Result<std::vector<Key>> PsClient::TakeChanges(TableId table,
                                               Deadline deadline) {
  std::vector<Key> keys;
  RequestHead head;
  head.op = Op::kTakeChanges;
  head.table = table;
  head.count = kMaxChanges;
  bool more = true;
  while (more) {
    more = false;
    RETURN_IF_ERROR(
        RunOnAll({"changes of", TableName(table)}, head, "", deadline,
                 [&](uint32_t, std::span<const std::byte> bytes) {
                   const size_t before = keys.size();
                   const size_t count = bytes.size() / sizeof(Key);
                   keys.resize(before + count);
                   if (count > 0) {
                     std::memcpy(&keys[before], bytes.data(), bytes.size());
                   }
                   more = more || count == kMaxChanges;
                   return OkStatus();
                 }));
  }
  return keys;
}

Result<std::vector<TableInfo>> PsClient::DenseInfo(TableId id,
                                                   size_t num_values,
                                                   const char* what) const {
  base::MutexLock lock(mutex_);
  std::vector<TableInfo> parts;
  for (const ServerInfo& server : servers_) {
    for (const TableInfo& table : server.tables) {
      if (table.id != id) continue;
      if (!table.dense || table.size != num_values) {
        return InvalidArgument("worker ", options_.worker, ": ", what, " ",
                               table.name, " (", num_values, " values): it ",
                               table.dense ? "has " : "is a sparse table",
                               table.dense ? std::to_string(table.size) : "");
      }
      parts.push_back(table);
    }
  }
  if (parts.size() == servers_.size()) return parts;
  return NotFound("worker ", options_.worker, ": ", what,
                  ": the servers have no table with id ",
                  static_cast<uint32_t>(id));
}

Status PsClient::PullDense(TableId id, std::span<float> values,
                           Deadline deadline) {
  ASSIGN_OR_RETURN(const std::vector<TableInfo> parts,
                   DenseInfo(id, values.size(), "pull"));
  Lease lane(*this);
  RETURN_IF_ERROR(lane.Take());
  Call call;
  call.name = {"pull", parts[0].name, values.size(), "values"};
  for (const TableInfo& part : parts) {
    call.num_requests.push_back(NumChunks(part.end - part.begin, kChunkValues));
  }
  auto chunk = [&](uint32_t server, size_t request) {
    const TableInfo& part = parts[server];
    const size_t offset = request * kChunkValues;
    return std::pair(
        offset, std::min<size_t>(kChunkValues, part.end - part.begin - offset));
  };
  call.ask = [&](uint32_t server, size_t request, RequestHead& head,
                 std::vector<ConstBytes>&) {
    head.op = Op::kPull;
    head.table = id;
    std::tie(head.offset, head.count) = chunk(server, request);
  };
  call.into = [&](uint32_t server, size_t request) {
    const auto [offset, count] = chunk(server, request);
    return std::as_writable_bytes(
        values.subspan(parts[server].begin + offset, count));
  };
  return Run(*lane, call, deadline);
}

Status PsClient::UpdateDense(Op op, const char* what, TableId id,
                             std::span<const float> values, Deadline deadline,
                             uint32_t flags) {
  ASSIGN_OR_RETURN(const std::vector<TableInfo> parts,
                   DenseInfo(id, values.size(), what));
  Lease lane(*this);
  RETURN_IF_ERROR(lane.Take());
  Call call;
  call.name = {what, parts[0].name, values.size(), "values"};
  for (const TableInfo& part : parts) {
    call.num_requests.push_back(NumChunks(part.end - part.begin, kChunkValues));
  }
  call.ask = [&](uint32_t server, size_t request, RequestHead& head,
                 std::vector<ConstBytes>& pieces) {
    const TableInfo& part = parts[server];
    const uint64_t size = part.end - part.begin;
    head.op = op;
    head.table = id;
    head.flags = flags;
    head.offset = request * kChunkValues;
    head.count = std::min<uint64_t>(kChunkValues, size - head.offset);
    if (head.offset + head.count == size) head.flags |= kFlagLast;
    pieces.push_back(
        std::as_bytes(values.subspan(part.begin + head.offset, head.count)));
  };
  return Run(*lane, call, deadline);
}

Status PsClient::PushDense(TableId table, std::span<const float> gradient,
                           Deadline deadline) {
  return UpdateDense(Op::kPush, "push", table, gradient, deadline);
}

Status PsClient::AccumulateDense(TableId table, std::span<const float> gradient,
                                 Deadline deadline) {
  return UpdateDense(Op::kAccumulate, "push", table, gradient, deadline);
}

Status PsClient::AddDense(TableId table, std::span<const float> delta,
                          Deadline deadline) {
  return UpdateDense(Op::kAdd, "add", table, delta, deadline);
}

Status PsClient::AssignDense(TableId table, std::span<const float> values,
                             Deadline deadline) {
  return UpdateDense(Op::kAssign, "assign", table, values, deadline);
}

Status PsClient::InitializeDense(TableId table, std::span<const float> values,
                                 Deadline deadline) {
  return UpdateDense(Op::kAssign, "initialize", table, values, deadline,
                     kFlagIfNew);
}

Status PsClient::CreateTables(const std::vector<TableSpec>& specs,
                              Deadline deadline) {
  for (const TableSpec& spec : specs) {
    RequestHead head;
    head.op = Op::kCreate;
    head.table = spec.id;
    RETURN_IF_ERROR(
        RunOnAll({"create", spec.name()}, head, Encode(spec), deadline));
    base::MutexLock lock(mutex_);
    specs_[spec.id] = Encode(spec);
  }
  return Refresh(deadline);
}

Status PsClient::EndStep(TableId table, Deadline deadline) {
  RequestHead head;
  head.op = Op::kEndStep;
  head.table = table;
  return RunOnAll({"end of a step of", TableName(table)}, head, "", deadline);
}

uint64_t PsClient::NextRound(const std::string& barrier) {
  base::MutexLock lock(mutex_);
  return rounds_[barrier]++;
}

void PsClient::RepeatRound(const std::string& barrier) {
  base::MutexLock lock(mutex_);
  --rounds_[barrier];
}

Status PsClient::FinishStep(Deadline deadline) {
  const std::string name = "step";
  RequestHead head;
  head.op = Op::kFinishStep;
  head.offset = NextRound(name);
  head.timeout_ms = Milliseconds(deadline);
  const Status outcome =
      RunOnAll({"finish a step"}, head, name, WithTimeToAnswer(deadline));
  if (!outcome.ok()) RepeatRound(name);
  return outcome;
}

Status PsClient::Barrier(const std::string& name, Deadline deadline) {
  const std::string full = "barrier " + name;
  RequestHead given;
  given.op = Op::kBarrier;
  given.offset = NextRound(full);
  given.timeout_ms = Milliseconds(deadline);
  Lease lane(*this);
  RETURN_IF_ERROR(lane.Take());
  Call call;
  call.name = {"barrier", name};
  call.num_requests.assign(num_servers_, 0);
  call.num_requests[0] = 1;
  call.ask = [&](uint32_t, size_t, RequestHead& head,
                 std::vector<ConstBytes>& parts) {
    head = given;
    parts.push_back(std::as_bytes(std::span(name)));
  };
  const Status outcome = Run(*lane, call, WithTimeToAnswer(deadline));
  if (!outcome.ok()) RepeatRound(full);
  return outcome;
}

Status PsClient::Save(const std::string& folder, const SaveOptions& options,
                      Deadline deadline) {
  const std::string body =
      cluster::MessageWriter()
          .Text(folder)
          .U64(options.number)
          .U8(options.kind == table::SaveKind::kBase ? 0 : 1)
          .U8(options.text)
          .Take();
  const std::vector<TableInfo> all = tables();
  for (const TableInfo& table : all) {
    RequestHead head;
    head.op = Op::kSave;
    head.table = table.id;
    RETURN_IF_ERROR(RunOnAll({"save", base::Concat(table.name, " to ", folder)},
                             head, body, deadline));
  }
  if (!options.remove_older || options.kind != table::SaveKind::kBase) {
    return OkStatus();
  }
  // Only now: until here the save before this one was the good one.
  for (const TableInfo& table : all) {
    if (!base::Exists(folder)) break;  // the servers' disk is another one
    RETURN_IF_ERROR(
        table::RemoveOlderSaves(folder, table.name, options.number));
  }
  return OkStatus();
}

Status PsClient::Load(const std::string& folder, Deadline deadline) {
  for (const TableInfo& table : tables()) {
    RequestHead head;
    head.op = Op::kLoad;
    head.table = table.id;
    RETURN_IF_ERROR(
        RunOnAll({"load", base::Concat(table.name, " from ", folder)}, head,
                 folder, deadline));
  }
  return OkStatus();
}

Result<uint64_t> PsClient::Shrink(TableId table, uint32_t max_unseen_days,
                                  Deadline deadline) {
  RequestHead head;
  head.op = Op::kShrink;
  head.table = table;
  head.count = max_unseen_days;
  uint64_t erased = 0;
  RETURN_IF_ERROR(RunOnAll({"shrink", TableName(table)}, head, "", deadline,
                           [&](uint32_t, std::span<const std::byte> bytes) {
                             cluster::MessageReader in(
                                 {reinterpret_cast<const char*>(bytes.data()),
                                  bytes.size()});
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
        cluster::MessageReader in(
            {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        stats.num_rows += in.U64();
        stats.num_candidates += in.U64();
        stats.num_rows_in_memory += in.U64();
        stats.byte_size += in.U64();
        stats.num_nonfinite += in.U64();
        const uint64_t step = in.U64();
        if (server == 0) stats.step = step;
        return in.Finish();
      }));
  return stats;
}

Status PsClient::Stop(Deadline deadline) {
  RequestHead head;
  head.op = Op::kBye;
  return RunOnAll({"good-bye"}, head, "", deadline);
}

}  // namespace fleet::ps
