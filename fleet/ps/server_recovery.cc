// SPDX-License-Identifier: Apache-2.0

// How a server that is started again has its tables from its log.

#include <algorithm>
#include <bit>
#include <utility>

#include "fleet/base/file_name.h"
#include "fleet/base/log.h"
#include "fleet/channel/message.h"
#include "fleet/ps/server_impl.h"

namespace fleet::ps {
namespace {

// Values of some keys of a request.
template <typename T>
std::vector<T> Chosen(std::span<const T> all, std::span<const uint32_t> places,
                      size_t width) {
  std::vector<T> chosen;
  chosen.reserve(places.size() * width);
  for (const uint32_t place : places) {
    const auto from = all.begin() + static_cast<ptrdiff_t>(place * width);
    chosen.insert(chosen.end(), from, from + static_cast<ptrdiff_t>(width));
  }
  return chosen;
}

}  // namespace

Result<uint64_t> PsServer::Impl::Recover(const base::Path& folder) {
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(Checkpoint checkpoint, ReadCheckpoint(folder));
  Ledger ledger;
  if (!checkpoint.ledger.empty()) {
    ASSIGN_OR_RETURN(ledger, DecodeLedger(checkpoint.ledger));
  }
  ASSIGN_OR_RETURN(const base::LogRecords records,
                   base::LogRecords::Read(folder, checkpoint.segment));
  if (!checkpoint.folder.empty() &&
      records.next_segment() <= checkpoint.segment) {
    return DataLoss(folder.string(), ": log.", checkpoint.segment,
                    ", which its checkpoint goes on with, is not there");
  }
  if (checkpoint.folder.empty() && records.all().empty()) {
    return records.next_segment();
  }

  // The tables as the checkpoint has them.
  table::SavedModel model;
  model.folder = folder / base::FileNameOf(checkpoint.folder);
  model.number = 1;
  model.saves.emplace_back();
  std::map<PartOfTable, uint64_t> done;
  for (const Checkpoint::Table& table : checkpoint.tables) {
    model.saves[0].lists.push_back(table.list);
    for (const table::Turn& turn : table.cut.turns) {
      done[{table.id, turn.part}] = turn.number;
    }
  }
  for (const Checkpoint::Table& table : checkpoint.tables) {
    ASSIGN_OR_RETURN(const TableSpec spec, DecodeTableSpec(table.spec));
    ASSIGN_OR_RETURN(ServerTable made, Make(spec));
    if (made.sparse != nullptr) {
      RETURN_IF_ERROR(made.sparse
                          ->Load(model, static_cast<uint32_t>(options_.rank),
                                 options_.num_servers)
                          .status());
      RETURN_IF_ERROR(made.sparse->TakeCut(table.cut));
    } else {
      RETURN_IF_ERROR(made.dense->Load(model).status());
      made.dense->TakeCut(table.cut);
    }
    RETURN_IF_ERROR(tables_.Add(spec.id, std::move(made)));
  }
  for (const auto& [name, rate] : checkpoint.rates) {
    RETURN_IF_ERROR(TellRate(name, rate, nullptr));
  }

  // What came after it, or while it was written.
  std::vector<LoggedRequest> requests;
  requests.reserve(records.all().size());
  for (const std::span<const std::byte> record : records.all()) {
    ASSIGN_OR_RETURN(const LoggedRequest request, DecodeLogged(record));
    if (request.head.epoch >= epoch_) {
      return FailedPrecondition(
          folder.string(), ": a log of epoch ", request.head.epoch,
          ", and server ", options_.rank, " is started with epoch ", epoch_,
          ": does the server that wrote it still run?");
    }
    requests.push_back(request);
    if (request.request.op != Op::kCreate) continue;
    ASSIGN_OR_RETURN(const TableSpec spec,
                     DecodeTableSpec(base::TextOf(request.body)));
    if (tables_.Find(spec.id).ok()) continue;
    ASSIGN_OR_RETURN(ServerTable made, Make(spec));
    RETURN_IF_ERROR(tables_.Add(spec.id, std::move(made)));
  }
  std::map<TableId, uint64_t> steps;
  for (const auto& [id, table] : tables_.ById()) {
    if (table->sparse != nullptr) steps[id] = table->sparse->stats().step;
  }
  RETURN_IF_ERROR(
      Redo(requests, checkpoint.epoch, done,
           [&](const LoggedRequest& request, const LoggedTurn& turn) {
             return RedoTurn(request, turn, steps);
           })
          .WithContext(folder.string()));
  for (const auto& [id, step] : steps) {
    ASSIGN_OR_RETURN(ServerTable* const table, tables_.Find(id));
    table->sparse->SetStep(step);
  }
  for (const LoggedRequest& request : requests) AddToLedger(request, ledger);
  RETURN_IF_ERROR(RestoreLedger(Encode(ledger)));
  for (const LoggedRequest& request : requests) {
    if (request.request.op == Op::kAccumulate) {
      // Some may wait for the end of their step.
      NoteSums(checkpoint.segment);
    }
    if (request.request.op != Op::kSetRate) continue;
    channel::MessageReader in(base::TextOf(request.body));
    const std::string name = in.Text();
    const auto rate = std::bit_cast<double>(in.U64());
    RETURN_IF_ERROR(in.Finish());
    tables_.NoteRate(name, rate);
  }
  ASSIGN_OR_RETURN(const std::vector<LaneAnswers> answers,
                   AddAnswers(std::move(checkpoint.answers), requests));
  for (const LaneAnswers& each : answers) lanes_.RestoreAnswers(each);
  RETURN_IF_ERROR(RestoreRounds(checkpoint.rounds, requests));
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  FLEET_LOG(INFO) << "server " << options_.rank
                  << " has its tables again: " << checkpoint.tables.size()
                  << " from its checkpoint, and " << requests.size()
                  << " requests of its log, in "
                  << static_cast<int64_t>(seconds.count() * 1e3) << " ms";
  return records.next_segment();
}

Status PsServer::Impl::RestoreRounds(
    const std::map<std::string, LoggedRounds>& before,
    std::span<const LoggedRequest> requests) {
  std::map<std::string, LoggedRounds> rounds = before;
  for (const LoggedRequest& request : requests) {
    LoggedRounds later;
    if (request.request.op == Op::kFinishStep) {
      ASSIGN_OR_RETURN(LoggedStep step, DecodeLoggedStep(request.body));
      later = std::move(step.rounds);
    } else if (request.request.op == Op::kRounds) {
      ASSIGN_OR_RETURN(later, DecodeLoggedRounds(base::TextOf(request.body)));
    } else {
      continue;
    }
    LoggedRounds& last = rounds[later.name];
    if (later.rounds.number >= last.rounds.number) last = std::move(later);
  }
  for (const auto& [name, each] : rounds) {
    roster_.SetRounds(name, each.rounds);
    if (name == kStepBarrier) {
      base::MutexLock lock(idle_mutex_);
      all_idle_ = each.idle;
    }
    const std::string gather = Gathering::BarrierOf("");
    if (name.starts_with(gather)) {
      gathering_.Restore(name.substr(gather.size()), each.gathered);
    }
  }
  base::MutexLock lock(rounds_mutex_);
  rounds_ = std::move(rounds);
  return OkStatus();
}

void PsServer::Impl::AddToLedger(const LoggedRequest& request, Ledger& ledger) {
  const RequestHead& head = request.request;
  if (head.sequence == 0 && head.op != Op::kEnter) return;
  auto worker = std::ranges::find(ledger.workers, request.head.worker,
                                  &WorkerRecord::worker);
  if (worker == ledger.workers.end()) {
    worker = ledger.workers.insert(worker, {request.head.worker, 0, {}});
  }
  if (request.head.incarnation < worker->incarnation) return;
  if (request.head.incarnation > worker->incarnation) {
    *worker = {request.head.worker, request.head.incarnation, {}};
  }
  if (head.op == Op::kEnter) return;
  auto lane =
      std::ranges::find(worker->lanes, request.head.lane, &LaneRecord::lane);
  if (lane == worker->lanes.end()) {
    lane = worker->lanes.insert(lane, {request.head.lane, 0, {}});
  }
  if (head.sequence <= lane->last_sequence) return;
  lane->last_sequence = head.sequence;
  if (head.op == Op::kShrink || head.op == Op::kTakeChanges ||
      head.op == Op::kFailed) {
    return;
  }
  if ((head.flags & kFlagDense) == 0) {
    ++lane->applied[head.table];
    return;
  }
  for (const DenseSection& section :
       base::ByteReader(request.body).TakeSpan<DenseSection>(head.count)) {
    ++lane->applied[section.table];
  }
}

Status PsServer::Impl::RedoTurn(const LoggedRequest& request,
                                const LoggedTurn& turn,
                                std::map<TableId, uint64_t>& steps) {
  const RequestHead& head = request.request;
  ASSIGN_OR_RETURN(ServerTable* const found, tables_.Find(turn.table));
  const uint64_t end_steps =
      head.op == Op::kFinishStep ? 1 : uint64_t{head.end_steps};
  if (turn.num_shards == 0) {
    if (found->dense == nullptr) return DataLoss("a turn of no dense table");
    if (turn.section == kStepEnds) {
      found->dense->EndStep(end_steps);
      return OkStatus();
    }
    return RedoDense(request, turn, *found->dense);
  }
  if (found->sparse == nullptr) return DataLoss("a turn of no sparse table");
  table::SparseTable& table = *found->sparse;
  if (turn.section == kStepEnds) {
    steps[turn.table] += end_steps;
    return OkStatus();
  }
  table.SetStep(turn.step);
  base::ByteReader body(request.body);
  switch (head.op) {
    case Op::kFinishStep: {
      ASSIGN_OR_RETURN(const LoggedStep step, DecodeLoggedStep(request.body));
      for (const int worker : step.dropped) table.DropAccumulated(worker);
      return table.ApplyAccumulated(1.0 / step.num_active,
                                    {step.later.begin(), step.later.end()});
    }
    case Op::kDrop:
      table.DropAccumulated(static_cast<int>(head.count));
      return OkStatus();
    case Op::kTakeChanges:
      return table
          .TakeChanges(static_cast<int>(request.head.worker), head.count)
          .status();
    case Op::kShrink:
      return table.Shrink(static_cast<uint32_t>(head.count)).status();
    case Op::kExpire:
      return table.ExpireAgain().status();
    case Op::kSetRate: {
      channel::MessageReader in(base::TextOf(request.body));
      const std::string name = in.Text();
      table.SetRate(name, std::bit_cast<double>(in.U64()));
      return in.Finish();
    }
    default:
      break;
  }
  const auto all = body.TakeSpan<table::Key>(head.count);
  const std::vector<uint32_t> places =
      table::KeysOfTurn({.part = turn.part}, all, turn.num_shards);
  const std::vector<table::Key> keys = Chosen(all, places, 1);
  if (head.op == Op::kPull) {
    table::PullOptions options;
    std::vector<uint32_t> counts;
    if ((head.flags & kFlagCounts) != 0) {
      counts = Chosen(body.TakeSpan<uint32_t>(head.count), places, 1);
      options.counts = counts;
    }
    if (!body.whole()) return DataLoss("a logged pull is cut off");
    std::vector<float> rows(keys.size() * table.dim());
    return table.Pull(keys, rows, options);
  }
  const std::vector<float> values = Chosen(
      body.TakeSpan<float>(head.count * table.dim()), places, table.dim());
  table::PushOptions options;
  std::vector<float> shows;
  std::vector<float> clicks;
  if ((head.flags & kFlagShows) != 0) {
    shows = Chosen(body.TakeSpan<float>(head.count), places, 1);
    clicks = Chosen(body.TakeSpan<float>(head.count), places, 1);
    options.shows = shows;
    options.clicks = clicks;
  }
  if (!body.finished()) return DataLoss("a logged update is cut off");
  switch (head.op) {
    case Op::kPush:
      return table.Push(keys, values, options);
    case Op::kAccumulate:
      return table.Accumulate(static_cast<int>(request.head.worker), keys,
                              values, options);
    case Op::kAdd:
      return table.options().num_geo_workers == 0
                 ? table.Add(keys, values)
                 : table.AddFrom(static_cast<int>(request.head.worker), keys,
                                 values);
    default:
      return DataLoss("a logged request of kind ",
                      static_cast<uint32_t>(head.op));
  }
}

Status PsServer::Impl::RedoDense(const LoggedRequest& request,
                                 const LoggedTurn& turn,
                                 table::DenseTable& table) {
  const RequestHead& head = request.request;
  if (head.op == Op::kFinishStep) {
    ASSIGN_OR_RETURN(const LoggedStep step, DecodeLoggedStep(request.body));
    for (const int worker : step.dropped) table.DropAccumulated(worker);
    return table.ApplyAccumulated(1.0 / step.num_active,
                                  {step.later.begin(), step.later.end()});
  }
  if (head.op == Op::kDrop) {
    table.DropAccumulated(static_cast<int>(head.count));
    return OkStatus();
  }
  if (head.op == Op::kSetRate) {
    channel::MessageReader in(base::TextOf(request.body));
    const std::string name = in.Text();
    table.SetRate(name, std::bit_cast<double>(in.U64()));
    return in.Finish();
  }
  base::ByteReader body(request.body);
  const auto sections = body.TakeSpan<DenseSection>(head.count);
  for (size_t i = 0; i < sections.size(); ++i) {
    const auto values = body.TakeSpan<float>(sections[i].count);
    if (i != turn.section) continue;
    if (!body.whole()) break;
    switch (head.op) {
      case Op::kPush:
        return table.Push(values);
      case Op::kAccumulate:
        return table.Accumulate(static_cast<int>(request.head.worker), values);
      case Op::kAssign:
        return table.Assign(values);
      case Op::kAdd:
        return table.Add(values);
      default:
        break;
    }
  }
  return DataLoss("a logged update of table ", table.name(), " is cut off");
}

}  // namespace fleet::ps
