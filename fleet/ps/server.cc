// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/server.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>
#include <unistd.h>

#include "fleet/base/check.h"
#include "fleet/base/log.h"
#include "fleet/channel/in_process.h"
#include "fleet/cluster/message.h"

namespace fleet::ps {
namespace {

using channel::Channel;
using channel::ConstBytes;

// The parts of a body, taken from its front.
class Body final {
 public:
  explicit Body(std::span<const std::byte> bytes) : rest_(bytes) {}

  // Empty, and not whole(), when there are not so many bytes. The buffer of a
  // request is aligned, and parts come in the order of their alignment.
  template <typename T>
  std::span<const T> Take(uint64_t count) {
    if (count > rest_.size() / sizeof(T)) {
      short_ = true;
      rest_ = {};
      return {};
    }
    const auto* at = reinterpret_cast<const T*>(rest_.data());
    rest_ = rest_.subspan(count * sizeof(T));
    return {at, count};
  }
  std::string_view rest() const {
    return {reinterpret_cast<const char*>(rest_.data()), rest_.size()};
  }
  // InvalidArgument when something was missing or is left over.
  Status Finish() const {
    if (!short_ && rest_.empty()) return OkStatus();
    return InvalidArgument("a request that does not have the size it says");
  }

 private:
  std::span<const std::byte> rest_;
  bool short_ = false;
};

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
      roster_({options.num_workers, options.worker_grace,
               options.go_on_without_lost_workers}) {
  max_request_ = sizeof(RequestHead) + kChunkByteSize + kMaxChunkKeys * 20;
}

PsServer::~PsServer() {
  const Status why = Unavailable("server ", options_.rank, " is ending");
  // Who waits at a barrier is told why before the connection ends.
  roster_.Abort(why);
  WaitUntilIdle(Deadline::After(std::chrono::seconds(1)));
  Abort(why);
  for (std::thread& acceptor : acceptors_) acceptor.join();
  std::list<Connection> connections;
  {
    base::MutexLock lock(mutex_);
    connections.splice(connections.end(), connections_);
  }
  for (Connection& connection : connections) connection.thread.join();
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

Status PsServer::Create(const TableSpec& spec) {
  base::MutexLock creating(creating_);
  Table made;
  made.spec = Encode(spec);
  {
    base::MutexLock lock(mutex_);
    const auto it = tables_.find(spec.id);
    if (it != tables_.end()) {
      if (it->second.spec == made.spec) return OkStatus();
      return FailedPrecondition("table ", spec.name(), ": its id ",
                                static_cast<uint32_t>(spec.id),
                                " is that of another table, or of this one "
                                "with other options");
    }
  }
  const auto rank = static_cast<uint32_t>(options_.rank);
  Status loaded;
  if (const auto* sparse =
          std::get_if<table::SparseTableOptions>(&spec.table)) {
    table::SparseTableOptions options = *sparse;
    if (options.disk.has_value()) {
      // Servers of one host share the folder.
      options.disk->folder += base::Concat("/", options.name, ".", rank);
    }
    if (!options.disk.has_value() && options.max_byte_size == 0) {
      options.max_byte_size = options_.max_table_byte_size;
    }
    ASSIGN_OR_RETURN(made.sparse, table::SparseTable::Make(options));
    if (!options_.load_folder.empty()) {
      loaded =
          made.sparse->Load(options_.load_folder, rank, options_.num_servers)
              .status();
    }
  } else {
    const auto& dense = std::get<DenseSpec>(spec.table);
    table::DenseTableOptions options;
    options.name = dense.name;
    options.size = dense.size;
    options.part = table::PartOfServer(dense.size, rank, options_.num_servers,
                                       static_cast<uint32_t>(spec.id));
    options.update = dense.update;
    ASSIGN_OR_RETURN(made.dense, table::DenseTable::Make(options));
    if (!options_.load_folder.empty()) {
      loaded = made.dense->Load(options_.load_folder).status();
    }
  }
  // A table that the saved model did not have begins new.
  if (!loaded.ok() && loaded.code() != StatusCode::kNotFound) return loaded;
  return AddTable(spec.id, std::move(made));
}

std::vector<PsServer::Table*> PsServer::AllTables() {
  base::MutexLock lock(mutex_);
  std::vector<Table*> all;
  for (auto& [id, table] : tables_) all.push_back(&table);
  return all;
}

channel::MeetOptions PsServer::HowToMeet() const {
  channel::MeetOptions options;
  options.self = {channel::ProcessKind::kServer, options_.rank};
  options.secret = options_.secret;
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
    Result<channel::Connection> came = listener.Accept(Deadline::Infinite());
    if (came.ok()) {
      Adopt(std::move(came->channel),
            listener.address().is_local() ? "shared memory" : "tcp");
      continue;
    }
    {
      base::MutexLock lock(mutex_);
      if (aborted_) return;
    }
    // No descriptor or memory left for a peer: others may end and give some.
    FLEET_LOG(WARNING) << "server " << options_.rank << ": " << came.status();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

std::unique_ptr<Channel> PsServer::ConnectInProcess(const std::string& name) {
  auto [ours, theirs] = channel::MakeInProcessPair(
      {.first_name = name,
       .second_name = base::Concat("server ", options_.rank)});
  Adopt(std::move(theirs), "memory of the process");
  return std::move(ours);
}

void PsServer::Adopt(std::unique_ptr<Channel> channel, const char* way) {
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
    connection.thread = std::thread([this, &connection] {
      Serve(connection);
      connection.channel->Close();
      connection.ended = true;
    });
  }
  for (Connection& connection : ended) connection.thread.join();
}

void PsServer::Abort(const Status& why) {
  base::MutexLock lock(mutex_);
  aborted_ = true;
  roster_.Abort(why);
  for (auto& listener : listeners_) listener->Abort(why);
  for (Connection& connection : connections_) connection.channel->Abort(why);
}

Status PsServer::WaitUntilStopped(Deadline deadline) {
  return roster_.WaitUntilStopped(deadline).WithContext(
      base::Concat("server ", options_.rank));
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
      all.num_nonfinite += table->dense->num_nonfinite();
      continue;
    }
    const table::SparseTableStats stats = table->sparse->stats();
    all.num_rows += stats.num_rows;
    all.byte_size += stats.byte_size;
    all.num_nonfinite += stats.num_nonfinite;
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
  session.channel = connection.channel.get();
  session.way = connection.way;
  Status outcome;
  while (outcome.ok()) outcome = ServeOne(session);
  if (session.worker >= 0) roster_.Leave(session.worker);
  if (outcome.code() == StatusCode::kInvalidArgument ||
      outcome.code() == StatusCode::kDataLoss) {
    FLEET_LOG(WARNING) << "server " << options_.rank << ": " << outcome;
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
  std::memcpy(&request.head, session.request.data(), sizeof(RequestHead));
  request.body = std::span(session.request).subspan(sizeof(RequestHead));
  num_requests_.fetch_add(1, std::memory_order_relaxed);
  ++num_busy_;
  Result<std::span<const std::byte>> payload = Handle(session, request);
  Status sent = Reply(session, request.head.sequence, payload.status(),
                      payload.ok() ? *payload : std::span<const std::byte>());
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
  head.apart = payload.size() > kMaxInline ? 1 : 0;
  const std::array<ConstBytes, 2> parts = {std::as_bytes(std::span(&head, 1)),
                                           payload};
  if (head.apart == 0) {
    return session.channel->SendParts(parts, Deadline::Infinite());
  }
  RETURN_IF_ERROR(session.channel->Send(parts[0], Deadline::Infinite()));
  return session.channel->Send(payload, Deadline::Infinite());
}

Result<PsServer::Table*> PsServer::Find(TableId id) {
  base::MutexLock lock(mutex_);
  const auto it = tables_.find(id);
  if (it != tables_.end()) return &it->second;
  return NotFound("no table with id ", static_cast<uint32_t>(id));
}

Result<std::span<const std::byte>> PsServer::Handle(Session& session,
                                                    const Request& request) {
  using Nothing = std::span<const std::byte>;
  const RequestHead& head = request.head;
  if (head.op == Op::kDescribe) {
    session.text = Encode(Describe());
    return BytesOf(session.text);
  }
  if (head.op == Op::kHello) {
    RETURN_IF_ERROR(HandleHello(session, request));
    return Nothing();
  }
  if (session.worker < 0) {
    return FailedPrecondition("a request before the hello");
  }
  switch (head.op) {
    case Op::kPull:
      return HandlePull(session, request);
    case Op::kPush:
    case Op::kAccumulate:
    case Op::kAdd:
    case Op::kAssign:
      RETURN_IF_ERROR(HandleUpdate(session, request));
      return Nothing();
    case Op::kTakeChanges:
      return HandleTakeChanges(session, request);
    case Op::kEndStep: {
      ASSIGN_OR_RETURN(Table* const table, Find(head.table));
      if (table->sparse != nullptr) table->sparse->EndStep();
      if (table->dense != nullptr) table->dense->EndStep();
      return Nothing();
    }
    case Op::kFinishStep:
    case Op::kBarrier:
      RETURN_IF_ERROR(HandleBarrier(session, request));
      return Nothing();
    case Op::kSave:
      RETURN_IF_ERROR(HandleSave(request));
      return Nothing();
    case Op::kLoad:
      RETURN_IF_ERROR(HandleLoad(request));
      return Nothing();
    case Op::kShrink:
      return HandleShrink(session, request);
    case Op::kStats:
      return HandleStats(session, request);
    case Op::kCreate: {
      ASSIGN_OR_RETURN(const TableSpec spec,
                       DecodeTableSpec(Body(request.body).rest()));
      RETURN_IF_ERROR(Create(spec));
      return Nothing();
    }
    case Op::kBye:
      roster_.Stop(session.worker);
      return Nothing();
    default:
      return InvalidArgument("an unknown request, ",
                             static_cast<uint32_t>(head.op));
  }
}

Status PsServer::HandleHello(Session& session, const Request& request) {
  cluster::MessageReader in(Body(request.body).rest());
  const auto worker = static_cast<int>(in.U32());
  const uint32_t lane_number = in.U32();
  const uint64_t incarnation = in.U64();
  RETURN_IF_ERROR(in.Finish());
  if (session.worker >= 0) return FailedPrecondition("a second hello");
  RETURN_IF_ERROR(roster_.Enter(worker));
  session.worker = worker;
  session.incarnation = incarnation;
  {
    base::MutexLock lock(mutex_);
    std::shared_ptr<Lane>& lane = lanes_[{worker, lane_number}];
    if (lane == nullptr) lane = std::make_shared<Lane>();
    session.lane = lane;
  }
  // Waits for a push of the connection before, if one is still at work.
  base::MutexLock lock(session.lane->mutex);
  if (session.lane->incarnation != incarnation) {
    session.lane->incarnation = incarnation;
    session.lane->last_sequence = 0;
    session.lane->last_outcome = OkStatus();
    session.lane->gathered = {};
  }
  if (lane_number == kLifeLane && options_.on_arrival) {
    options_.on_arrival(worker, session.way);
  }
  return OkStatus();
}

Result<std::span<const std::byte>> PsServer::HandlePull(
    Session& session, const Request& request) {
  const RequestHead& head = request.head;
  ASSIGN_OR_RETURN(Table* const table, Find(head.table));
  Body body(request.body);
  if (table->dense != nullptr) {
    RETURN_IF_ERROR(body.Finish());
    if (head.count > kChunkValues) {
      return InvalidArgument("a pull of ", head.count, " values at once");
    }
    session.rows.resize(head.count);
    RETURN_IF_ERROR(table->dense->PullFrom(head.offset, session.rows));
    return std::as_bytes(std::span(session.rows));
  }
  const auto keys = body.Take<table::Key>(head.count);
  table::PullOptions options;
  options.training = (head.flags & kFlagNotTraining) == 0;
  if ((head.flags & kFlagCounts) != 0) {
    options.counts = body.Take<uint32_t>(head.count);
  }
  RETURN_IF_ERROR(body.Finish());
  session.rows.resize(keys.size() * table->sparse->dim());
  RETURN_IF_ERROR(table->sparse->Pull(keys, session.rows, options));
  num_pulled_keys_.fetch_add(keys.size(), std::memory_order_relaxed);
  return std::as_bytes(std::span(session.rows));
}

Status PsServer::HandleUpdate(Session& session, const Request& request) {
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
  if (options_.push_delay.count() > 0) {
    std::this_thread::sleep_for(options_.push_delay);
  }
  Lane& lane = *session.lane;
  base::MutexLock lock(lane.mutex);
  if (request.head.sequence <= lane.last_sequence) {
    num_repeated_.fetch_add(1, std::memory_order_relaxed);
    return request.head.sequence == lane.last_sequence ? lane.last_outcome
                                                       : OkStatus();
  }
  Status outcome = table->sparse != nullptr
                       ? UpdateSparse(session, request, *table->sparse)
                       : UpdateDense(request, lane, *table->dense);
  lane.last_sequence = request.head.sequence;
  lane.last_outcome = outcome;
  return outcome;
}

Status PsServer::UpdateSparse(Session& session, const Request& request,
                              table::SparseTable& table) {
  const RequestHead& head = request.head;
  Body body(request.body);
  const auto keys = body.Take<table::Key>(head.count);
  const auto values = body.Take<float>(head.count * table.dim());
  table::PushOptions options;
  if ((head.flags & kFlagShows) != 0) {
    options.shows = body.Take<float>(head.count);
    options.clicks = body.Take<float>(head.count);
  }
  RETURN_IF_ERROR(body.Finish());
  num_pushed_keys_.fetch_add(keys.size(), std::memory_order_relaxed);
  switch (head.op) {
    case Op::kPush:
      return table.Push(keys, values, options);
    case Op::kAccumulate:
      return table.Accumulate(keys, values);
    case Op::kAssign:
      return table.Assign(keys, values);
    default:
      if (table.options().num_geo_workers == 0) return table.Add(keys, values);
      return table.AddFrom(session.worker, keys, values);
  }
}

Status PsServer::UpdateDense(const Request& request, Lane& lane,
                             table::DenseTable& table) {
  const RequestHead& head = request.head;
  Body body(request.body);
  const auto values = body.Take<float>(head.count);
  RETURN_IF_ERROR(body.Finish());
  if (head.offset > table.part().size() ||
      values.size() > table.part().size() - head.offset) {
    return InvalidArgument("table ", table.name(), ": values [", head.offset,
                           ", ", head.offset + values.size(), ") of ",
                           table.part().size());
  }
  std::span<const float> whole = values;
  if (values.size() != table.part().size()) {
    lane.gathered.resize(table.part().size());
    std::copy(values.begin(), values.end(),
              lane.gathered.begin() + static_cast<ptrdiff_t>(head.offset));
    whole = lane.gathered;
  }
  if ((head.flags & kFlagLast) == 0) return OkStatus();
  switch (head.op) {
    case Op::kPush:
      return table.Push(whole);
    case Op::kAccumulate:
      return table.Accumulate(whole);
    case Op::kAssign:
      if ((head.flags & kFlagIfNew) != 0 && table.initialized()) {
        return OkStatus();
      }
      return table.Assign(whole);
    default:
      return table.Add(whole);
  }
}

Result<std::span<const std::byte>> PsServer::HandleTakeChanges(
    Session& session, const Request& request) {
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
  if (table->sparse == nullptr) return InvalidArgument("no sparse table");
  // A reply that was lost must not lose the keys, so it is numbered as pushes
  // are, and kept.
  Lane& lane = *session.lane;
  base::MutexLock lock(lane.mutex);
  if (request.head.sequence > lane.last_sequence) {
    ASSIGN_OR_RETURN(
        const std::vector<table::Key> keys,
        table->sparse->TakeChanges(session.worker, request.head.count));
    lane.gathered.resize(keys.size() * 2);
    if (!keys.empty()) {
      std::memcpy(lane.gathered.data(), keys.data(), keys.size() * 8);
    }
    lane.last_sequence = request.head.sequence;
    lane.last_outcome = OkStatus();
  }
  session.rows = lane.gathered;
  return std::as_bytes(std::span(session.rows));
}

Status PsServer::FinishStep(int num_workers) {
  const double scale = 1.0 / num_workers;
  Status first;
  for (Table* table : AllTables()) {
    Status applied = table->sparse != nullptr
                         ? table->sparse->ApplyAccumulated(scale)
                         : table->dense->ApplyAccumulated(scale);
    if (first.ok()) first = std::move(applied);
    if (table->sparse != nullptr) {
      table->sparse->EndStep();
    } else {
      table->dense->EndStep();
    }
  }
  return first;
}

Status PsServer::HandleBarrier(const Session& session, const Request& request) {
  const RequestHead& head = request.head;
  const std::string name(Body(request.body).rest());
  const Deadline deadline =
      Deadline::After(std::chrono::milliseconds(head.timeout_ms));
  std::function<Status(int)> complete;
  if (head.op == Op::kFinishStep) {
    complete = [this](int num_workers) { return FinishStep(num_workers); };
  }
  return roster_.Barrier(name, head.offset, session.worker, session.incarnation,
                         deadline, complete);
}

Status PsServer::HandleSave(const Request& request) {
  cluster::MessageReader in(Body(request.body).rest());
  const std::string folder = in.Text();
  table::SaveId id;
  id.number = in.U64();
  id.kind = in.U8() == 0 ? table::SaveKind::kBase : table::SaveKind::kDelta;
  const bool text = in.U8() != 0;
  RETURN_IF_ERROR(in.Finish());
  id.server = static_cast<uint32_t>(options_.rank);
  id.num_servers = options_.num_servers;
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
  RETURN_IF_ERROR(base::MakeFolders(folder));
  if (table->dense != nullptr) {
    RETURN_IF_ERROR(table->dense->Save(folder, id).status());
    NoteSaved(request.head.table, folder, id.number);
    return OkStatus();
  }
  if (text) {
    const std::string& name = table->sparse->name();
    const base::Path texts = base::Path(folder) / (name + "_txt");
    RETURN_IF_ERROR(base::MakeFolders(texts));
    RETURN_IF_ERROR(table->sparse->SaveText(
        texts / base::Concat(name, ".block", options_.rank, ".txt")));
  }
  RETURN_IF_ERROR(table->sparse->Save(folder, {id}).status());
  NoteSaved(request.head.table, folder, id.number);
  return OkStatus();
}

void PsServer::NoteSaved(TableId table, const std::string& folder,
                         uint64_t number) {
  if (!options_.on_saved) return;
  const size_t num_tables = AllTables().size();
  base::MutexLock lock(saving_);
  if (save_ != std::pair(folder, number)) {
    save_ = {folder, number};
    saved_.clear();
  }
  saved_.insert(table);
  if (saved_.size() == num_tables) options_.on_saved(folder);
}

Status PsServer::HandleLoad(const Request& request) {
  const std::string folder(Body(request.body).rest());
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
  if (table->dense != nullptr) return table->dense->Load(folder).status();
  return table->sparse
      ->Load(folder, static_cast<uint32_t>(options_.rank), options_.num_servers)
      .status();
}

Result<std::span<const std::byte>> PsServer::HandleShrink(
    Session& session, const Request& request) {
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
  if (table->sparse == nullptr) return InvalidArgument("no sparse table");
  ASSIGN_OR_RETURN(
      const uint64_t erased,
      table->sparse->Shrink(static_cast<uint32_t>(request.head.count)));
  session.text = cluster::MessageWriter().U64(erased).Take();
  return BytesOf(session.text);
}

Result<std::span<const std::byte>> PsServer::HandleStats(
    Session& session, const Request& request) {
  ASSIGN_OR_RETURN(Table* const table, Find(request.head.table));
  table::SparseTableStats stats;
  if (table->sparse != nullptr) {
    stats = table->sparse->stats();
  } else {
    stats.byte_size = table->dense->byte_size();
    stats.num_nonfinite = table->dense->num_nonfinite();
    stats.step = table->dense->step();
  }
  session.text = cluster::MessageWriter()
                     .U64(stats.num_rows)
                     .U64(stats.num_candidates)
                     .U64(stats.num_rows_in_memory)
                     .U64(stats.byte_size)
                     .U64(stats.num_nonfinite)
                     .U64(stats.step)
                     .Take();
  return BytesOf(session.text);
}

ServerInfo PsServer::Describe() const {
  ServerInfo info;
  info.server = static_cast<uint32_t>(options_.rank);
  info.num_servers = options_.num_servers;
  info.num_workers = static_cast<uint32_t>(options_.num_workers);
  info.local_name = local_name_;
  base::MutexLock lock(mutex_);
  for (const auto& [id, table] : tables_) {
    TableInfo described;
    described.id = id;
    if (table.sparse != nullptr) {
      described.name = table.sparse->name();
      described.dim = table.sparse->dim();
    } else {
      described.name = table.dense->name();
      described.dense = true;
      described.size = table.dense->size();
      described.begin = table.dense->part().begin;
      described.end = table.dense->part().end;
      described.initialized = table.dense->initialized();
    }
    info.tables.push_back(std::move(described));
  }
  return info;
}

}  // namespace fleet::ps
