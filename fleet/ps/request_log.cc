// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/request_log.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "fleet/base/bytes.h"
#include "fleet/base/crc32c.h"
#include "fleet/channel/message.h"
#include "fleet/table/save_manifest.h"

namespace fleet::ps {
namespace {

// With kLog, as often as this bytes go to the disk.
constexpr auto kSyncEvery = std::chrono::milliseconds(50);

constexpr std::string_view kCheckpointMagic = "fleet checkpoint 2";

uint64_t RecordSize(size_t num_turns, uint64_t body) {
  return sizeof(LoggedHead) + sizeof(RequestHead) +
         num_turns * sizeof(LoggedTurn) + body;
}

// Whether a request is done turn by turn, with the keys of each.
bool HasKeys(const LoggedRequest& request) {
  switch (request.request.op) {
    case Op::kPull:
    case Op::kPush:
    case Op::kAccumulate:
    case Op::kAdd:
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<LoggedRequest> DecodeLogged(std::span<const std::byte> record) {
  base::ByteReader in(record);
  LoggedRequest request;
  request.head = in.Take<LoggedHead>();
  request.request = in.Take<RequestHead>();
  if (request.head.num_turns > record.size() / sizeof(LoggedTurn)) {
    return DataLoss("a logged request with ", request.head.num_turns,
                    " turns in ", record.size(), " bytes");
  }
  request.turns = in.TakeSpan<LoggedTurn>(request.head.num_turns);
  const size_t begin = sizeof(LoggedHead) + sizeof(RequestHead) +
                       request.head.num_turns * sizeof(LoggedTurn);
  if (begin > record.size()) {
    return DataLoss("a logged request of ", record.size(), " bytes");
  }
  request.body = record.subspan(begin);
  return request;
}

std::string Encode(const LoggedRounds& rounds) {
  channel::MessageWriter out;
  out.Text(rounds.name).U64(rounds.rounds.number).U8(rounds.idle ? 1 : 0);
  out.U32(static_cast<uint32_t>(rounds.rounds.given.size()));
  for (const auto& [worker, given] : rounds.rounds.given) {
    out.U32(static_cast<uint32_t>(worker)).U64(given.first).U64(given.second);
  }
  out.U32(static_cast<uint32_t>(rounds.rounds.from.size()));
  for (const auto& [worker, from] : rounds.rounds.from) {
    out.U32(static_cast<uint32_t>(worker)).U64(from);
  }
  out.U32(static_cast<uint32_t>(rounds.rounds.took_part.size()));
  for (const int worker : rounds.rounds.took_part) {
    out.U32(static_cast<uint32_t>(worker));
  }
  return out.Texts(rounds.gathered).Take();
}

Result<LoggedRounds> DecodeLoggedRounds(std::string_view bytes) {
  channel::MessageReader in(bytes);
  LoggedRounds rounds;
  rounds.name = in.Text();
  rounds.rounds.number = in.U64();
  rounds.idle = in.U8() != 0;
  for (uint32_t left = in.U32(); left > 0 && in.whole(); --left) {
    auto& given = rounds.rounds.given[static_cast<int>(in.U32())];
    given.first = in.U64();
    given.second = in.U64();
  }
  for (uint32_t left = in.U32(); left > 0 && in.whole(); --left) {
    const auto worker = static_cast<int>(in.U32());
    rounds.rounds.from[worker] = in.U64();
  }
  for (uint32_t left = in.U32(); left > 0 && in.whole(); --left) {
    rounds.rounds.took_part.insert(static_cast<int>(in.U32()));
  }
  rounds.gathered = in.Texts();
  RETURN_IF_ERROR(in.Finish().WithContext("rounds of a barrier"));
  return rounds;
}

std::string Encode(const LoggedStep& step) {
  channel::MessageWriter out;
  out.Text(Encode(step.rounds)).U32(step.num_active);
  for (const std::vector<int>* workers : {&step.later, &step.dropped}) {
    out.U32(static_cast<uint32_t>(workers->size()));
    for (const int worker : *workers) out.U32(static_cast<uint32_t>(worker));
  }
  return out.Take();
}

Result<LoggedStep> DecodeLoggedStep(std::span<const std::byte> body) {
  channel::MessageReader in(base::TextOf(body));
  LoggedStep step;
  ASSIGN_OR_RETURN(step.rounds, DecodeLoggedRounds(in.Text()));
  step.num_active = in.U32();
  for (std::vector<int>* workers : {&step.later, &step.dropped}) {
    for (uint32_t left = in.U32(); left > 0 && in.whole(); --left) {
      workers->push_back(static_cast<int>(in.U32()));
    }
  }
  RETURN_IF_ERROR(in.Finish());
  return step;
}

void AddTurns(TableId table, uint32_t num_shards, uint32_t section,
              const table::Turns& from, std::vector<LoggedTurn>& to) {
  for (const table::Turn& turn : from) {
    to.push_back(
        {table, turn.part, section, num_shards, turn.number, turn.step});
  }
}

Status Redo(std::span<const LoggedRequest> requests, uint64_t done_epoch,
            const std::map<PartOfTable, uint64_t>& done,
            const std::function<Status(const LoggedRequest&,
                                       const LoggedTurn&)>& redo) {
  struct Event {
    const LoggedRequest* request;
    const LoggedTurn* turn;
  };
  // By epoch, then table, then part.
  std::map<uint64_t, std::map<TableId, std::map<uint32_t, std::vector<Event>>>>
      epochs;
  // Whether the tables of the checkpoint have the turn.
  const auto is_done = [&](uint64_t epoch, const LoggedTurn& turn) {
    if (epoch != done_epoch) return epoch < done_epoch;
    const auto last = done.find({turn.table, turn.part});
    return last != done.end() && turn.number <= last->second;
  };
  // By part and worker: epoch and number of the turn that used up the worker's
  // sums, the last of those that are in the tables. Sums that came later wait,
  // and are in no table.
  std::map<std::pair<PartOfTable, uint32_t>, std::pair<uint64_t, uint64_t>>
      used_up;
  std::set<uint32_t> workers;
  for (const LoggedRequest& request : requests) {
    if (request.request.op == Op::kAccumulate) {
      workers.insert(request.head.worker);
    }
  }
  for (const LoggedRequest& request : requests) {
    std::set<uint32_t> of = workers;
    if (request.request.op == Op::kDrop) {
      of = {static_cast<uint32_t>(request.request.count)};
    } else if (request.request.op == Op::kFinishStep) {
      ASSIGN_OR_RETURN(const LoggedStep step, DecodeLoggedStep(request.body));
      for (const int worker : step.later)
        of.erase(static_cast<uint32_t>(worker));
    } else {
      continue;
    }
    for (const LoggedTurn& turn : request.turns) {
      if (!is_done(request.head.epoch, turn)) continue;
      for (const uint32_t worker : of) {
        auto& last = used_up[{{turn.table, turn.part}, worker}];
        last = std::max(last, {request.head.epoch, turn.number});
      }
    }
  }
  for (const LoggedRequest& request : requests) {
    const uint64_t epoch = request.head.epoch;
    const bool sums = request.request.op == Op::kAccumulate;
    for (const LoggedTurn& turn : request.turns) {
      if (is_done(epoch, turn)) {
        const auto used =
            used_up.find({{turn.table, turn.part}, request.head.worker});
        if (!sums || (used != used_up.end() &&
                      std::pair(epoch, turn.number) < used->second)) {
          continue;
        }
      }
      epochs[epoch][turn.table][turn.part].push_back({&request, &turn});
    }
  }
  for (auto& [epoch, tables] : epochs) {
    for (auto& [table, parts] : tables) {
      for (auto& [part, events] : parts) {
        std::sort(events.begin(), events.end(),
                  [](const Event& a, const Event& b) {
                    return a.turn->number < b.turn->number;
                  });
      }
      // Each part goes on until a request that waits for the others.
      std::map<uint32_t, size_t> next;
      while (true) {
        bool moved = false;
        const LoggedRequest* waiting = nullptr;
        const LoggedTurn* first = nullptr;
        bool all_wait = true;
        for (auto& [part, events] : parts) {
          size_t& at = next[part];
          while (at < events.size()) {
            const Event& event = events[at];
            const bool of_shard =
                event.turn->num_shards > 0 && event.turn->section != kStepEnds;
            if (of_shard && !HasKeys(*event.request)) break;
            RETURN_IF_ERROR(redo(*event.request, *event.turn));
            ++at;
            moved = true;
          }
          if (at == events.size()) {
            // The count of steps waits for nobody.
            const bool counts_steps =
                !events.empty() && events[0].turn->section == kStepEnds;
            if (!counts_steps) all_wait = false;
            continue;
          }
          if (waiting == nullptr) {
            waiting = events[at].request;
            first = events[at].turn;
          } else if (events[at].request != waiting) {
            all_wait = false;
          }
        }
        if (waiting == nullptr) break;
        if (!all_wait) {
          if (moved) continue;
          return DataLoss("the log's requests for table ",
                          static_cast<uint32_t>(table),
                          " wait for each other in epoch ", epoch);
        }
        RETURN_IF_ERROR(redo(*waiting, *first));
        for (auto& [part, events] : parts) {
          size_t& at = next[part];
          if (at < events.size() && events[at].request == waiting) ++at;
        }
      }
    }
  }
  return OkStatus();
}

Result<std::vector<LaneAnswers>> AddAnswers(
    std::vector<LaneAnswers> answers, std::span<const LoggedRequest> requests) {
  std::map<std::pair<uint32_t, uint32_t>, LaneAnswers> lanes;
  for (LaneAnswers& each : answers) {
    lanes[{each.worker, each.lane}] = std::move(each);
  }
  for (const LoggedRequest& request : requests) {
    const RequestHead& head = request.request;
    const bool counts = head.op == Op::kPull && head.round != 0;
    if (head.sequence == 0 && !counts) continue;
    LaneAnswers& lane = lanes[{request.head.worker, request.head.lane}];
    if (request.head.incarnation < lane.incarnation) continue;
    if (request.head.incarnation > lane.incarnation) {
      lane = {request.head.worker, request.head.lane, request.head.incarnation};
    }
    if (counts) {
      lane.last_pull = std::max(lane.last_pull, head.round);
      continue;
    }
    if (head.sequence <= lane.sequence) continue;
    base::ByteReader body(request.body);
    lane.sequence = head.sequence;
    lane.taken.clear();
    lane.num_erased = 0;
    switch (head.op) {
      case Op::kFailed:
        if (head.count == 0 ||
            head.count > static_cast<uint64_t>(StatusCode::kInternal)) {
          return DataLoss("a logged failure with the code ", head.count);
        }
        lane.failed[head.sequence] =
            Status(static_cast<StatusCode>(head.count),
                   std::string(base::TextOf(request.body)));
        break;
      case Op::kTakeChanges: {
        const auto keys =
            body.TakeSpan<table::Key>(request.body.size() / sizeof(table::Key));
        lane.taken.assign(keys.begin(), keys.end());
        break;
      }
      case Op::kShrink:
        lane.num_erased = body.Take<uint64_t>();
        break;
      default:
        break;
    }
    if (!body.whole()) return DataLoss("a logged answer is cut off");
  }
  answers.clear();
  for (auto& [key, lane] : lanes) answers.push_back(std::move(lane));
  return answers;
}

std::string Encode(const Checkpoint& checkpoint) {
  channel::MessageWriter out;
  out.Text(kCheckpointMagic)
      .U64(checkpoint.epoch)
      .U64(checkpoint.segment)
      .Text(checkpoint.folder)
      .Text(checkpoint.ledger);
  out.U32(static_cast<uint32_t>(checkpoint.answers.size()));
  for (const LaneAnswers& lane : checkpoint.answers) {
    out.U32(lane.worker).U32(lane.lane).U64(lane.incarnation);
    out.U64(lane.sequence).U64(lane.num_erased).U64(lane.last_pull);
    out.U64(lane.taken.size());
    for (const table::Key key : lane.taken) out.U64(key);
    out.U32(static_cast<uint32_t>(lane.failed.size()));
    for (const auto& [sequence, status] : lane.failed) {
      out.U64(sequence).Failure(status);
    }
  }
  out.U32(static_cast<uint32_t>(checkpoint.rates.size()));
  for (const auto& [name, rate] : checkpoint.rates) {
    out.Text(name).U64(std::bit_cast<uint64_t>(rate));
  }
  out.U32(static_cast<uint32_t>(checkpoint.rounds.size()));
  for (const auto& [name, rounds] : checkpoint.rounds) {
    out.Text(Encode(rounds));
  }
  out.U32(static_cast<uint32_t>(checkpoint.tables.size()));
  for (const Checkpoint::Table& table : checkpoint.tables) {
    out.U32(static_cast<uint32_t>(table.id))
        .Text(table.spec)
        .U8(table.cut.initialized ? 1 : 0)
        .Text(table::Encode(table.list));
    const table::TableCut& cut = table.cut;
    out.U32(static_cast<uint32_t>(cut.turns.size()));
    for (const table::Turn& turn : cut.turns) {
      out.U32(turn.part).U64(turn.number);
    }
    out.U64(cut.candidates.size());
    for (const auto& [key, count] : cut.candidates) out.U64(key).U64(count);
    out.U32(static_cast<uint32_t>(cut.changes.size()));
    for (const std::vector<table::Key>& keys : cut.changes) {
      out.U64(keys.size());
      for (const table::Key key : keys) out.U64(key);
    }
  }
  std::string bytes = out.Take();
  base::Append(bytes, base::Crc32c(bytes));
  return bytes;
}

Result<Checkpoint> DecodeCheckpoint(std::string_view bytes) {
  if (bytes.size() < sizeof(uint32_t)) return DataLoss("no checkpoint");
  const auto checksum = base::LoadAt<uint32_t>(std::as_bytes(std::span(bytes)),
                                               bytes.size() - sizeof(uint32_t));
  bytes.remove_suffix(sizeof(checksum));
  channel::MessageReader in(bytes);
  if (in.Text() != kCheckpointMagic) return DataLoss("no checkpoint");
  if (base::Crc32c(bytes) != checksum) {
    return DataLoss("its checksum does not fit");
  }
  Checkpoint checkpoint;
  checkpoint.epoch = in.U64();
  checkpoint.segment = in.U64();
  checkpoint.folder = in.Text();
  checkpoint.ledger = in.Text();
  for (uint32_t left = in.U32(); left > 0 && in.whole(); --left) {
    LaneAnswers& lane = checkpoint.answers.emplace_back();
    lane.worker = in.U32();
    lane.lane = in.U32();
    lane.incarnation = in.U64();
    lane.sequence = in.U64();
    lane.num_erased = in.U64();
    lane.last_pull = in.U64();
    for (uint64_t keys = in.U64(); keys > 0 && in.whole(); --keys) {
      lane.taken.push_back(in.U64());
    }
    for (uint32_t failed = in.U32(); failed > 0 && in.whole(); --failed) {
      const uint64_t sequence = in.U64();
      lane.failed[sequence] = in.Failure();
    }
  }
  for (uint32_t left = in.U32(); left > 0 && in.whole(); --left) {
    const std::string name = in.Text();
    checkpoint.rates[name] = std::bit_cast<double>(in.U64());
  }
  for (uint32_t left = in.U32(); left > 0 && in.whole(); --left) {
    ASSIGN_OR_RETURN(LoggedRounds rounds, DecodeLoggedRounds(in.Text()));
    checkpoint.rounds[rounds.name] = std::move(rounds);
  }
  for (uint32_t left = in.U32(); left > 0 && in.whole(); --left) {
    Checkpoint::Table table;
    table.id = TableId{in.U32()};
    table.spec = in.Text();
    table.cut.initialized = in.U8() != 0;
    ASSIGN_OR_RETURN(table.list, table::DecodeSaveList(in.Text()));
    for (uint32_t turns = in.U32(); turns > 0 && in.whole(); --turns) {
      table::Turn turn;
      turn.part = in.U32();
      turn.number = in.U64();
      table.cut.turns.push_back(turn);
    }
    for (uint64_t keys = in.U64(); keys > 0 && in.whole(); --keys) {
      const table::Key key = in.U64();
      table.cut.candidates.emplace_back(key, in.U64());
    }
    for (uint32_t left_workers = in.U32(); left_workers > 0 && in.whole();
         --left_workers) {
      std::vector<table::Key>& changes = table.cut.changes.emplace_back();
      for (uint64_t keys = in.U64(); keys > 0 && in.whole(); --keys) {
        changes.push_back(in.U64());
      }
    }
    checkpoint.tables.push_back(std::move(table));
  }
  RETURN_IF_ERROR(in.Finish());
  return checkpoint;
}

Result<Checkpoint> ReadCheckpoint(const base::Path& folder) {
  const base::Path file = folder / kCheckpointFile;
  if (!base::Exists(file)) return Checkpoint();
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(file));
  Result<Checkpoint> checkpoint = DecodeCheckpoint(bytes);
  RETURN_IF_ERROR(checkpoint.status().WithContext(file.string()));
  return checkpoint;
}

bool LogHolds(const base::Path& folder) {
  if (base::Exists(folder / kCheckpointFile)) return true;
  const Result<std::vector<std::string>> names = base::ListFolder(folder);
  return names.ok() &&
         std::any_of(names->begin(), names->end(), [](const std::string& name) {
           return name.starts_with("log.");
         });
}

Result<std::unique_ptr<RequestLog>> RequestLog::Open(
    const base::LogOptions& options, Durability durability,
    std::function<void(const Status&)> on_failure) {
  std::unique_ptr<RequestLog> log(new RequestLog(options.folder, durability));
  ASSIGN_OR_RETURN(log->file_, base::LogFile::Open(options));
  log->watching_ =
      std::jthread([log = log.get(), on_failure = std::move(on_failure)] {
        log->Watch(on_failure);
      });
  return log;
}

RequestLog::~RequestLog() {
  base::MutexLock lock(mutex_);
  ends_ = true;
  ending_.NotifyAll();
}

void RequestLog::Watch(const std::function<void(const Status&)>& on_failure) {
  while (true) {
    const base::Deadline next = durability_ == Durability::kLog
                                    ? base::Deadline::After(kSyncEvery)
                                    : base::Deadline::Infinite();
    Status failure;
    {
      base::MutexLock lock(mutex_);
      while (!ends_ && failure_.ok() && !next.expired()) {
        ending_.WaitUntil(mutex_, next);
      }
      if (ends_) return;
      failure = failure_;
    }
    if (failure.ok() && durability_ == Durability::kLog) {
      failure = Noted(file_->Sync());
    }
    if (failure.ok()) continue;
    on_failure(failure);
    return;
  }
}

Status RequestLog::Noted(const Status& outcome) {
  if (outcome.ok()) return outcome;
  base::MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = outcome;
  has_failed_ = true;
  ending_.NotifyAll();
  return outcome;
}

Result<base::LogFile::Room> RequestLog::Reserve(size_t num_turns, uint64_t body,
                                                base::LogFile::Hold* hold) {
  Result<base::LogFile::Room> room =
      file_->Reserve(RecordSize(num_turns, body), hold);
  // A checkpoint may have seen it first. A full disk is no failure.
  if (file_->has_failed()) (void)Noted(room.status());
  return room;
}

uint64_t RequestLog::BodyOf(const base::LogFile::Room& room) {
  return room.byte_size() - RecordSize(0, 0);
}

Result<base::LogFile::Hold> RequestLog::HoldRoom(uint64_t num_requests,
                                                 size_t num_turns,
                                                 uint64_t body) {
  Result<base::LogFile::Hold> hold = file_->HoldRoom(
      num_requests * base::LogFile::SizeOfRecord(RecordSize(num_turns, body)));
  if (file_->has_failed()) (void)Noted(hold.status());
  return hold;
}

Status RequestLog::Append(base::LogFile::Room room, LoggedHead head,
                          const RequestHead& request,
                          std::span<const LoggedTurn> turns,
                          std::span<const std::span<const std::byte>> body) {
  head.num_turns = turns.size();
  std::vector<std::span<const std::byte>> parts;
  parts.reserve(body.size() + 3);
  parts.push_back(base::BytesOf(head));
  parts.push_back(base::BytesOf(request));
  parts.push_back(std::as_bytes(turns));
  parts.insert(parts.end(), body.begin(), body.end());
  return Noted(file_->Append(std::move(room), parts));
}

Status RequestLog::Commit() {
  if (durability_ != Durability::kLogSync) return OkStatus();
  return Noted(file_->Sync());
}

}  // namespace fleet::ps
