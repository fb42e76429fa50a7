// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/server.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <system_error>
#include <unistd.h>

#include "fleet/base/exceptions.h"
#include "fleet/base/file_name.h"
#include "fleet/base/log.h"
#include "fleet/channel/in_process.h"
#include "fleet/table/table_name.h"

namespace fleet::ps {
namespace {

using channel::Channel;
using channel::ConstBytes;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string RandomName() {
  std::random_device random;
  return base::Concat("fleet-ps-", getpid(), "-", random(), random());
}

}  // namespace

PsServer::PsServer(const PsServerOptions& options)
    : options_(options),
      epoch_(std::max<uint64_t>(options.epoch, 1)),
      roster_({options.num_workers, epoch_, options.worker_grace,
               options.go_on_without_lost_workers}),
      heartbeats_({base::Concat("server ", options.rank), "worker",
                   std::chrono::seconds(2), options.heartbeat_timeout}),
      num_steps_(static_cast<size_t>(options.num_workers)) {
  max_request_ = sizeof(RequestHead) + kChunkByteSize + kMaxChunkKeys * 20;
}

PsServer::~PsServer() {
  const Status why = Unavailable("server ", options_.rank, " is ending");
  // Who waits at a barrier is told why before the connection ends.
  roster_.Abort(why);
  WaitUntilIdle(Deadline::After(std::chrono::seconds(1)));
  Abort(why);
  // Requests that wait for them would be waited for.
  StopWriting();
  acceptors_.clear();  // which waits for them
  std::list<Connection> connections;
  {
    base::MutexLock lock(mutex_);
    connections.splice(connections.end(), connections_);
  }
  connections.clear();
  // Its thread asks for what is destroyed before it.
  log_.reset();
}

Status PsServer::AddTable(TableId id, Table table) {
  const std::string name =
      table.sparse != nullptr ? table.sparse->name() : table.dense->name();
  base::MutexLock lock(mutex_);
  if (tables_.contains(id)) {
    return InvalidArgument("table ", name, ": its id ",
                           static_cast<uint32_t>(id), " is taken");
  }
  if (table.sparse != nullptr) {
    max_request_ = std::max<uint64_t>(
        max_request_,
        sizeof(RequestHead) + table.sparse->dim() * sizeof(float) + 64);
  }
  tables_[id] = std::move(table);
  return OkStatus();
}

Status PsServer::AddSparse(TableId id,
                           std::unique_ptr<table::SparseTable> table) {
  Table added;
  added.sparse = std::move(table);
  return AddTable(id, std::move(added));
}

Status PsServer::AddDense(TableId id,
                          std::unique_ptr<table::DenseTable> table) {
  Table added;
  added.dense = std::move(table);
  return AddTable(id, std::move(added));
}

Result<bool> PsServer::IsThere(const TableSpec& spec) {
  base::MutexLock lock(mutex_);
  const auto it = tables_.find(spec.id);
  if (it == tables_.end()) return false;
  if (it->second.spec == Encode(spec)) return true;
  return FailedPrecondition("its id ", static_cast<uint32_t>(spec.id),
                            " is that of another table, or of this one with "
                            "other options");
}

Status PsServer::Create(std::span<const TableSpec> specs) {
  base::MutexLock creating(creating_);
  NewTables made;    // the log tells of them
  NewTables loaded;  // a checkpoint has them
  for (const TableSpec& spec : specs) {
    RETURN_IF_ERROR(table::CheckTableName(spec.name()));
    const std::string name = base::Concat("table ", spec.name());
    const Result<bool> is_there = IsThere(spec);
    RETURN_IF_ERROR(is_there.status().WithContext(name));
    if (*is_there) continue;
    if (made.contains(spec.id) || loaded.contains(spec.id)) {
      return InvalidArgument(name, ": its id ", static_cast<uint32_t>(spec.id),
                             " comes twice");
    }
    bool has_values = false;
    ASSIGN_OR_RETURN(Table table, MakeAndLoad(spec, &has_values));
    (has_values ? loaded : made).emplace(spec.id, std::move(table));
  }
  if (log_ != nullptr && !loaded.empty()) {
    // What was loaded may be gone when the log is read, so the log does not
    // tell of the tables before a checkpoint has them: one for all, since it
    // has all rows of the server.
    RETURN_IF_ERROR(WriteCheckpoint(true, &loaded).status());
  }
  if (log_ != nullptr) {
    // First the log: what comes for a table finds it there.
    for (const auto& [id, table] : made) {
      const std::span<const std::byte> body = BytesOf(table.spec);
      ASSIGN_OR_RETURN(base::LogFile::Room room, log_->Reserve(0, body.size()));
      RequestHead head;
      head.op = Op::kCreate;
      LoggedHead of;
      of.epoch = epoch_;
      RETURN_IF_ERROR(log_->Append(std::move(room), of, head, {}, {&body, 1}));
    }
    // On the disk before what comes for them: without the tables that is of no
    // use.
    if (!made.empty()) RETURN_IF_ERROR(log_->file().Sync());
  }
  made.merge(loaded);
  for (auto& [id, table] : made) {
    RETURN_IF_ERROR(AddTable(id, std::move(table)));
  }
  return OkStatus();
}

Result<PsServer::Table> PsServer::MakeAndLoad(const TableSpec& spec,
                                              bool* has_values) {
  const auto rank = static_cast<uint32_t>(options_.rank);
  const std::vector<std::string>& only = options_.load_only;
  const bool load =
      !options_.load_folder.empty() &&
      (only.empty() || std::ranges::find(only, spec.name()) != only.end());
  const table::SavedModel* model = nullptr;
  if (load) {
    ASSIGN_OR_RETURN(model, ModelToBeginWith());
  }
  Status loaded;
  if (load && model == nullptr) loaded = NotFound("nothing was saved");
  ASSIGN_OR_RETURN(Table made, Make(spec));
  if (model != nullptr && made.sparse != nullptr) {
    loaded = made.sparse->Load(*model, rank, options_.num_servers).status();
  } else if (model != nullptr) {
    loaded = made.dense->Load(*model).status();
  }
  // A table that the saved model did not have begins new.
  if (!loaded.ok() && loaded.code() != StatusCode::kNotFound) return loaded;
  if (!loaded.ok() && options_.load_otherwise) {
    RETURN_IF_ERROR(
        options_.load_otherwise(made.sparse.get(), made.dense.get()));
  }
  if (loaded.ok() && model != nullptr) {
    made.saved = LastSave{model->folder.string(), model->number, options_.job};
  }
  *has_values =
      loaded.ok() ? model != nullptr : options_.load_otherwise != nullptr;
  return made;
}

Result<PsServer::Table> PsServer::Make(const TableSpec& spec) const {
  const auto rank = static_cast<uint32_t>(options_.rank);
  Table made;
  made.spec = Encode(spec);
  if (const auto* sparse =
          std::get_if<table::SparseTableOptions>(&spec.table)) {
    table::SparseTableOptions options = *sparse;
    if (options.disk.has_value()) {
      // Servers of one host share the folder.
      options.disk->folder += base::Concat("/", base::FileNameOf(options.name),
                                           ".", rank, options_.disk_suffix);
    }
    if (!options.disk.has_value() && options.max_byte_size == 0) {
      options.max_byte_size = options_.max_table_byte_size;
    }
    ASSIGN_OR_RETURN(made.sparse, table::SparseTable::Make(options));
    return made;
  }
  const auto& dense = std::get<DenseSpec>(spec.table);
  table::DenseTableOptions options;
  options.name = dense.name;
  options.size = dense.size;
  options.part = table::PartOfServer(dense.size, rank, options_.num_servers,
                                     static_cast<uint32_t>(spec.id));
  options.update = dense.update;
  ASSIGN_OR_RETURN(made.dense, table::DenseTable::Make(options));
  return made;
}

Result<const table::SavedModel*> PsServer::ModelToBeginWith() {
  if (load_model_ == nullptr) load_model_ = options_.load_model;
  if (load_model_ == nullptr) {
    Result<table::SavedModel> found =
        table::FindModel(options_.load_folder, table::CheckFiles::kByChecksum);
    if (found.status().code() == StatusCode::kNotFound) return nullptr;
    RETURN_IF_ERROR(found.status());
    load_model_ =
        std::make_shared<const table::SavedModel>(std::move(found).value());
  }
  return load_model_.get();
}

std::vector<std::pair<TableId, PsServer::Table*>> PsServer::TablesById() {
  base::MutexLock lock(mutex_);
  std::vector<std::pair<TableId, Table*>> all;
  all.reserve(tables_.size());
  for (auto& [id, table] : tables_) all.emplace_back(id, &table);
  return all;
}

std::vector<PsServer::Table*> PsServer::AllTables() {
  base::MutexLock lock(mutex_);
  std::vector<Table*> all;
  all.reserve(tables_.size());
  for (auto& [id, table] : tables_) all.push_back(&table);
  return all;
}

Result<uint64_t> PsServer::ExpireRows(Deadline::TimePoint now) {
  base::MutexLock lock(expiring_);
  std::vector<std::pair<TableId, const Table*>> due;
  for (const auto& [id, table] : TablesById()) {
    if (table->sparse == nullptr) continue;
    const auto time_to_live = table->sparse->options().time_to_live;
    if (time_to_live.count() == 0) continue;
    const auto [looked_at, is_new] = looked_at_.try_emplace(table, now);
    if (is_new) continue;
    if (now - looked_at->second >= table::ExpiryPeriod(time_to_live)) {
      due.emplace_back(id, table);
    }
  }
  // What is saved stands still, of all tables, and no row is erased that is not
  // written yet: it would be kept until then.
  if (due.empty() || !roster_.TryBeginOwnTurn()) return 0;
  if (IsWriting()) {
    roster_.EndOwnTurn();
    return 0;
  }
  uint64_t num_erased = 0;
  Status first;
  for (const auto& [id, table] : due) {
    looked_at_[table] = now;
    base::MutexLock whole(whole_tables_);
    const Result<uint64_t> erased = Expire(id, *table->sparse);
    if (erased.ok()) num_erased += *erased;
    if (first.ok()) first = erased.status();
  }
  roster_.EndOwnTurn();
  RETURN_IF_ERROR(first);
  return num_erased;
}

channel::MeetOptions PsServer::HowToMeet() const {
  channel::MeetOptions options;
  options.self = {channel::ProcessKind::kServer, options_.rank};
  options.trust = options_.trust;
  options.carrier = options_.carrier;
  options.shared_memory.processes_on_host = options_.processes_on_host;
  return options;
}

Status PsServer::Listen(const channel::Address& address) {
  const channel::MeetOptions options = HowToMeet();
  RETURN_IF_ERROR(ListenLocally(options));
  return AcceptFrom(channel::Listener::Bind(address, options));
}

Status PsServer::ListenOn(int fd) {
  const channel::MeetOptions options = HowToMeet();
  RETURN_IF_ERROR(ListenLocally(options));
  return AcceptFrom(channel::Listener::Adopt(fd, options));
}

Status PsServer::ListenLocally(const channel::MeetOptions& options) {
  if (!options_.shared_memory) return OkStatus();
  local_name_ = RandomName();
  channel::Address local;
  local.local_name = local_name_;
  return AcceptFrom(channel::Listener::Bind(local, options));
}

Status PsServer::AcceptFrom(
    Result<std::unique_ptr<channel::Listener>> listener) {
  RETURN_IF_ERROR(listener.status());
  channel::Listener& bound = **listener;
  address_ = bound.address();
  listeners_.push_back(std::move(listener).value());
  acceptors_.emplace_back([this, &bound] { AcceptLoop(bound); });
  return OkStatus();
}

void PsServer::AcceptLoop(channel::Listener& listener) {
  while (true) {
    const Status accepted =
        base::CatchExceptions([&] { return AcceptOne(listener); });
    if (accepted.ok()) continue;
    base::MutexLock lock(mutex_);
    if (aborted_) return;
    // No descriptor or memory left for a peer: others may end and give some.
    FLEET_LOG(WARNING) << "server " << options_.rank << ": " << accepted;
    (void)aborting_.WaitUntil(mutex_,
                              Deadline::After(std::chrono::milliseconds(100)));
  }
}

Status PsServer::AcceptOne(channel::Listener& listener) {
  ASSIGN_OR_RETURN(channel::Connection came,
                   listener.Accept(Deadline::Infinite()));
  const char* network =
      options_.carrier == channel::Carrier::kUcx ? "ucx" : "tcp";
  Adopt(std::move(came.channel),
        listener.address().is_local() ? "shared memory" : network, came.peer);
  return OkStatus();
}

std::unique_ptr<Channel> PsServer::ConnectInProcess(const std::string& name) {
  auto [ours, theirs] = channel::MakeInProcessPair(
      {.first_name = name,
       .second_name = base::Concat("server ", options_.rank)});
  Adopt(std::move(theirs), "memory of the process", std::nullopt);
  return std::move(ours);
}

void PsServer::Adopt(std::unique_ptr<Channel> channel, const char* way,
                     const std::optional<channel::Identity>& peer) {
  std::list<Connection> ended;
  {
    base::MutexLock lock(mutex_);
    if (aborted_) return;
    for (auto it = connections_.begin(); it != connections_.end();) {
      auto next = std::next(it);
      if (it->ended) ended.splice(ended.end(), connections_, it);
      it = next;
    }
    Connection& connection = connections_.emplace_back();
    connection.channel = std::move(channel);
    connection.way = way;
    connection.peer = peer;
    try {
      connection.thread = std::jthread([this, &connection] {
        Serve(connection);
        connection.channel->Close();
        connection.ended = true;
      });
    } catch (const std::system_error& error) {
      // Others are served as before; this peer sees that its connection ended.
      FLEET_LOG(WARNING) << "server " << options_.rank << ": no thread for "
                         << connection.channel->peer() << ": " << error.what();
      connections_.pop_back();
    }
  }
  // The threads of `ended` are joined without the lock.
}

void PsServer::Abort(const Status& why) {
  // Without the lock: who ends a step holds the roster's and asks for this one.
  roster_.Abort(why);
  base::MutexLock lock(mutex_);
  aborted_ = true;
  aborting_.NotifyAll();
  for (auto& listener : listeners_) listener->Abort(why);
  for (Connection& connection : connections_) connection.channel->Abort(why);
}

Status PsServer::WaitUntilStopped(Deadline deadline) {
  return roster_.WaitUntilStopped(deadline).WithContext(
      base::Concat("server ", options_.rank));
}

std::vector<
    std::pair<std::pair<int, uint32_t>, std::shared_ptr<PsServer::Lane>>>
PsServer::AllLanes() const {
  base::MutexLock lock(mutex_);
  return {lanes_.begin(), lanes_.end()};
}

LaneRecord PsServer::RecordOf(int worker, uint32_t number, const Lane& lane,
                              bool for_save) {
  LaneRecord record{number, lane.last_sequence, lane.applied};
  if (!for_save) return record;
  record.last_sequence = lane.whole_sequence;
  const uint64_t step = num_steps_[static_cast<size_t>(worker)];
  if (lane.waiting.empty() || lane.waiting_step != step) return record;
  record.last_sequence = std::min(record.last_sequence, lane.before_waiting);
  for (const auto& [table, count] : lane.waiting) {
    record.applied[table] -= count;
  }
  return record;
}

std::string PsServer::EncodeLedger(bool for_save) {
  Ledger ledger;
  for (const auto& [key, lane] : AllLanes()) {
    const auto worker = static_cast<uint32_t>(key.first);
    if (ledger.workers.empty() || ledger.workers.back().worker != worker) {
      ledger.workers.push_back({worker, lane->incarnation, {}});
    }
    base::MutexLock lock(lane->mutex);
    // Without updates there is nothing to save; what was shrunk or taken must
    // not be so again when a server begins from its log.
    if (for_save ? lane->applied.empty() : lane->last_sequence == 0) continue;
    ledger.workers.back().lanes.push_back(
        RecordOf(key.first, key.second, *lane, for_save));
    if (!for_save) {
      // Parts of a gradient are in the log when it is whole.
      ledger.workers.back().lanes.back().last_sequence = lane->whole_sequence;
    }
  }
  return Encode(ledger);
}

Status PsServer::RestoreLedger(std::string_view bytes) {
  ASSIGN_OR_RETURN(const Ledger ledger, DecodeLedger(bytes));
  for (const WorkerRecord& worker : ledger.workers) {
    const auto index = static_cast<int>(worker.worker);
    roster_.Know(index, worker.incarnation);
    // Made before mutex_ is taken, which comes after a lane's.
    std::map<std::pair<int, uint32_t>, std::shared_ptr<Lane>> lanes;
    for (const LaneRecord& record : worker.lanes) {
      auto lane = std::make_shared<Lane>(worker.incarnation);
      {
        base::MutexLock lock(lane->mutex);
        lane->last_sequence = lane->whole_sequence = record.last_sequence;
        lane->applied = record.applied;
      }
      lanes[{index, record.lane}] = std::move(lane);
    }
    base::MutexLock lock(mutex_);
    newest_[index] = worker.incarnation;
    for (auto& [key, lane] : lanes) lanes_[key] = std::move(lane);
  }
  return OkStatus();
}

Status PsServer::RestoreGoodbyes(std::string_view bytes) {
  ASSIGN_OR_RETURN(std::vector<Goodbye> goodbyes, DecodeGoodbyes(bytes));
  // By worker: its incarnation in the tables, and what they have of it.
  std::map<uint32_t, std::pair<uint64_t, UpdateCounts>> had;
  for (const auto& [key, lane] : AllLanes()) {
    auto& [incarnation, counts] = had[static_cast<uint32_t>(key.first)];
    incarnation = lane->incarnation;
    base::MutexLock lock(lane->mutex);
    for (const auto& [table, count] : lane->applied) counts[table] += count;
  }
  std::string lost;
  for (const Goodbye& goodbye : goodbyes) {
    roster_.KnowStopped(static_cast<int>(goodbye.worker), goodbye.incarnation);
    const auto& [incarnation, counts] = had[goodbye.worker];
    // A later one has updates in the tables, so all of this one are.
    if (incarnation > goodbye.incarnation) continue;
    const bool same = incarnation == goodbye.incarnation;
    for (const auto& [id, updates] : goodbye.updates) {
      const auto found = counts.find(id);
      const uint64_t has =
          same && found != counts.end() ? found->second : uint64_t{0};
      if (updates.count <= has) continue;
      const uint64_t count = updates.count - has;
      lost += base::Concat(lost.empty() ? "" : ", ", count,
                           count == 1 ? " update of " : " updates of ",
                           updates.table, " of worker ", goodbye.worker);
    }
  }
  base::MutexLock lock(mutex_);
  goodbyes_ = std::move(goodbyes);
  lost_of_gone_ = std::move(lost);
  return OkStatus();
}

std::string PsServer::lost_of_gone() const {
  base::MutexLock lock(mutex_);
  return lost_of_gone_;
}

PsServerCounters PsServer::counters() const {
  return {num_requests_, num_pulled_keys_, num_pushed_keys_, num_repeated_};
}

PsServerHoldings PsServer::holdings() {
  PsServerHoldings all;
  for (const Table* table : AllTables()) {
    ++all.num_tables;
    if (table->dense != nullptr) {
      all.byte_size += table->dense->byte_size();
      all.save_byte_size += table->dense->save_byte_size();
      all.num_nonfinite += table->dense->num_nonfinite();
      continue;
    }
    const table::SparseTableStats stats = table->sparse->stats();
    all.num_rows += stats.num_rows;
    all.byte_size += stats.byte_size;
    all.save_byte_size += stats.save_byte_size;
    all.num_nonfinite += stats.num_nonfinite;
    all.num_expired += stats.num_expired;
  }
  return all;
}

table::SparseTable* PsServer::sparse(TableId id) {
  const Result<Table*> table = Find(id);
  return table.ok() ? (*table)->sparse.get() : nullptr;
}

table::DenseTable* PsServer::dense(TableId id) {
  const Result<Table*> table = Find(id);
  return table.ok() ? (*table)->dense.get() : nullptr;
}

void PsServer::Serve(Connection& connection) {
  Session session;
  session.connection = &connection;
  session.channel = connection.channel.get();
  Status outcome;
  while (outcome.ok()) {
    outcome = base::CatchExceptions([&] { return ServeOne(session); });
  }
  EndConnectionsOf(connection);
  if (session.lane != nullptr) ReleaseRoom(*session.lane);
  if (session.worker >= 0) roster_.Leave(session.worker, session.incarnation);
  if (outcome.code() == StatusCode::kInvalidArgument ||
      outcome.code() == StatusCode::kDataLoss ||
      outcome.code() == StatusCode::kInternal) {
    FLEET_LOG(WARNING) << "server " << options_.rank << ": " << outcome;
  }
}

void PsServer::EndConnectionsOf(const Connection& life) {
  base::MutexLock lock(mutex_);
  if (!life.is_life) return;
  const auto is_same = [&](const Connection& other) {
    return &other != &life && !other.ended && other.worker == life.worker &&
           other.incarnation == life.incarnation;
  };
  for (const Connection& other : connections_) {
    if (is_same(other) && other.is_life) return;
  }
  heartbeats_.Forget(life.worker);
  for (Connection& other : connections_) {
    if (!is_same(other)) continue;
    other.channel->Abort(Unavailable("worker ", life.worker, " is gone"));
  }
}

void PsServer::WatchWorkers(Deadline::TimePoint now) {
  for (const Heartbeats::News& news : heartbeats_.Look(now)) {
    Log(news);
    if (news.kind != Heartbeats::News::Kind::kDead) continue;
    base::MutexLock lock(mutex_);
    for (Connection& connection : connections_) {
      if (connection.worker != news.peer) continue;
      connection.channel->Abort(Unavailable(news.text));
    }
  }
}

Status PsServer::ServeOne(Session& session) {
  ASSIGN_OR_RETURN(const uint64_t byte_size,
                   session.channel->NextSize(Deadline::Infinite()));
  if (byte_size < sizeof(RequestHead) || byte_size > max_request_) {
    return DataLoss(session.channel->peer(), ": a request of ", byte_size,
                    " bytes");
  }
  session.request.resize(byte_size);
  RETURN_IF_ERROR(session.channel->Recv(session.request, Deadline::Infinite()));
  Request request;
  request.head = base::LoadAt<RequestHead>(session.request, 0);
  request.body = std::span(session.request).subspan(sizeof(RequestHead));
  if (request.head.op != Op::kBeat) {
    num_requests_.fetch_add(1, std::memory_order_relaxed);
  }
  ++num_busy_;
  const Status sent = base::CatchExceptions([&] {
    const Result<std::span<const std::byte>> payload =
        base::CatchExceptions([&] { return Handle(session, request); });
    if (log_ != nullptr && log_->has_failed()) {
      // What was done may not be there again: nobody hears of it.
      return Unavailable("the log fails");
    }
    return Reply(session, request.head.sequence, payload.status(),
                 payload.ok() ? *payload : std::span<const std::byte>());
  });
  if (--num_busy_ == 0 && ending_) {
    base::MutexLock lock(mutex_);
    idle_.NotifyAll();
  }
  return sent;
}

void PsServer::WaitUntilIdle(Deadline deadline) {
  ending_ = true;
  base::MutexLock lock(mutex_);
  while (num_busy_ > 0 && idle_.WaitUntil(mutex_, deadline)) {
  }
}

Status PsServer::Reply(Session& session, uint64_t sequence,
                       const Status& outcome,
                       std::span<const std::byte> payload) {
  ReplyHead head;
  head.sequence = sequence;
  head.code = static_cast<uint32_t>(outcome.code());
  if (!outcome.ok()) payload = BytesOf(outcome.message());
  // Errors are short; a very long one is cut.
  if (!outcome.ok())
    payload = payload.first(std::min(payload.size(), kMaxInline));
  head.count = payload.size();
  const bool apart = payload.size() > kMaxInline;
  if (apart) head.flags |= kReplyApart;
  if (roster_.cut_wanted()) head.flags |= kReplyCutWanted;
  const std::array<ConstBytes, 2> parts = {std::as_bytes(std::span(&head, 1)),
                                           payload};
  if (!apart) {
    return session.channel->SendParts(parts, Deadline::Infinite());
  }
  RETURN_IF_ERROR(session.channel->Send(parts[0], Deadline::Infinite()));
  return session.channel->Send(payload, Deadline::Infinite());
}

}  // namespace fleet::ps
