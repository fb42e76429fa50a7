// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/worker_lanes.h"

#include <algorithm>

namespace fleet::ps {

bool WorkerLane::WasDone(uint64_t sequence, Status* outcome) const {
  if (sequence > last_sequence) return false;
  const auto& [number, status] = outcomes[sequence % kNumOutcomes];
  // A worker has fewer on their way than are kept.
  if (number == sequence) *outcome = status;
  return true;
}

void WorkerLane::NoteDone(uint64_t sequence, const Status& outcome) {
  last_sequence = sequence;
  outcomes[sequence % kNumOutcomes] = {sequence, outcome};
  if (parts_of == kNoTable) whole_sequence = sequence;
}

void WorkerLane::ReleaseRoom() {
  base::MutexLock lock(mutex);
  held = {};
}

bool WorkerLanes::IsNew(int worker, uint64_t incarnation) const {
  base::MutexLock lock(mutex_);
  const auto newest = newest_.find(worker);
  return newest == newest_.end() || newest->second < incarnation;
}

bool WorkerLanes::FenceOlder(int worker, uint64_t incarnation) {
  std::vector<std::shared_ptr<WorkerLane>> older;
  {
    base::MutexLock lock(mutex_);
    uint64_t& newest = newest_[worker];
    newest = std::max(newest, incarnation);
    auto it = lanes_.lower_bound({worker, 0});
    while (it != lanes_.end() && it->first.first == worker) {
      if (it->second->incarnation < newest) {
        older.push_back(std::move(it->second));
        it = lanes_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const std::shared_ptr<WorkerLane>& lane : older) {
    // Waits for a push that is being applied.
    base::MutexLock lock(lane->mutex);
    lane->fenced = true;
    lane->gathered = {};
  }
  return !older.empty();
}

std::shared_ptr<WorkerLane> WorkerLanes::Enter(int worker, uint32_t number,
                                               uint64_t incarnation) {
  auto fresh = std::make_shared<WorkerLane>(incarnation);
  base::MutexLock lock(mutex_);
  // A newer one may have come since FenceOlder.
  if (newest_[worker] != incarnation) {
    fresh->fenced = true;
    return fresh;
  }
  std::shared_ptr<WorkerLane>& lane = lanes_[{worker, number}];
  if (lane == nullptr) lane = std::move(fresh);
  return lane;
}

std::vector<WorkerLanes::Numbered> WorkerLanes::All() const {
  base::MutexLock lock(mutex_);
  return {lanes_.begin(), lanes_.end()};
}

void WorkerLanes::CountUpdate(int worker, bool sums, TableId table,
                              WorkerLane& lane) {
  ++lane.applied[table];
  if (!sums) return;
  const uint64_t step = num_steps_[static_cast<size_t>(worker)];
  if (lane.waiting.empty() || lane.waiting_step != step) {
    lane.waiting_step = step;
    lane.waiting.clear();
    lane.before_waiting = lane.whole_sequence;
  }
  ++lane.waiting[table];
}

LaneRecord WorkerLanes::RecordOf(int worker, uint32_t number,
                                 const WorkerLane& lane, bool for_save) const {
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

std::vector<LaneRecord> WorkerLanes::RecordsOf(int worker,
                                               uint64_t incarnation) {
  std::vector<LaneRecord> records;
  for (const auto& [key, lane] : All()) {
    if (key.first != worker || lane->incarnation != incarnation) continue;
    base::MutexLock lock(lane->mutex);
    if (lane->last_sequence == 0) continue;
    records.push_back(RecordOf(worker, key.second, *lane, false));
  }
  return records;
}

Ledger WorkerLanes::MakeLedger(bool for_save) {
  Ledger ledger;
  std::vector<Numbered> lanes;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [worker, incarnation] : newest_) {
      ledger.workers.push_back(
          {static_cast<uint32_t>(worker), incarnation, {}});
    }
    lanes.assign(lanes_.begin(), lanes_.end());
  }
  for (const auto& [key, lane] : lanes) {
    WorkerRecord& record =
        *std::ranges::find(ledger.workers, static_cast<uint32_t>(key.first),
                           &WorkerRecord::worker);
    base::MutexLock lock(lane->mutex);
    // Without updates there is nothing to save; what was shrunk or taken must
    // not be so again when a server begins from its log.
    if (for_save ? lane->applied.empty() : lane->last_sequence == 0) continue;
    record.lanes.push_back(RecordOf(key.first, key.second, *lane, for_save));
    // Parts of a gradient are in the log when it is whole.
    if (!for_save) record.lanes.back().last_sequence = lane->whole_sequence;
  }
  return ledger;
}

void WorkerLanes::Restore(const WorkerRecord& record) {
  const auto worker = static_cast<int>(record.worker);
  // Made before mutex_ is taken, which comes after a lane's.
  std::map<std::pair<int, uint32_t>, std::shared_ptr<WorkerLane>> lanes;
  for (const LaneRecord& each : record.lanes) {
    auto lane = std::make_shared<WorkerLane>(record.incarnation);
    {
      base::MutexLock lock(lane->mutex);
      lane->last_sequence = lane->whole_sequence = each.last_sequence;
      lane->applied = each.applied;
    }
    lanes[{worker, each.lane}] = std::move(lane);
  }
  base::MutexLock lock(mutex_);
  newest_[worker] = record.incarnation;
  for (auto& [key, lane] : lanes) lanes_[key] = std::move(lane);
}

std::vector<LaneAnswers> WorkerLanes::Answers() const {
  std::vector<LaneAnswers> all;
  for (const auto& [key, lane] : All()) {
    LaneAnswers answers{static_cast<uint32_t>(key.first), key.second,
                        lane->incarnation};
    base::MutexLock lock(lane->mutex);
    answers.sequence = lane->last_sequence;
    answers.taken = lane->taken;
    answers.num_erased = lane->num_erased;
    answers.last_pull = lane->last_pull;
    for (const auto& [sequence, outcome] : lane->outcomes) {
      if (!outcome.ok()) answers.failed[sequence] = outcome;
    }
    if (!answers.taken.empty() || answers.num_erased != 0 ||
        answers.last_pull != 0 || !answers.failed.empty()) {
      all.push_back(std::move(answers));
    }
  }
  return all;
}

void WorkerLanes::RestoreAnswers(const LaneAnswers& answers) {
  // One that only pulls is in no ledger.
  const std::shared_ptr<WorkerLane> lane = Enter(
      static_cast<int>(answers.worker), answers.lane, answers.incarnation);
  base::MutexLock lock(lane->mutex);
  lane->last_pull = answers.last_pull;
  if (lane->last_sequence == answers.sequence) {
    lane->taken = answers.taken;
    lane->num_erased = answers.num_erased;
  }
  for (const auto& [sequence, outcome] : answers.failed) {
    lane->outcomes[sequence % WorkerLane::kNumOutcomes] = {sequence, outcome};
  }
}

Goodbye WorkerLanes::CountsOf(int worker, uint64_t incarnation) {
  Goodbye goodbye{static_cast<uint32_t>(worker), incarnation, {}};
  for (const auto& [key, lane] : All()) {
    if (key.first != worker) continue;
    base::MutexLock lock(lane->mutex);
    for (const auto& [table, count] : lane->applied) {
      goodbye.updates[table].count += count;
    }
  }
  return goodbye;
}

std::string WorkerLanes::NoteGoodbye(Goodbye goodbye) {
  base::MutexLock lock(mutex_);
  // A worker may come again and say it again.
  std::erase_if(goodbyes_, [&](const Goodbye& before) {
    return before.worker == goodbye.worker &&
           before.incarnation == goodbye.incarnation;
  });
  goodbyes_.push_back(std::move(goodbye));
  return Encode(goodbyes_);
}

void WorkerLanes::RestoreGoodbyes(std::vector<Goodbye> goodbyes) {
  // By worker: its incarnation in the tables, and what they have of it.
  std::map<uint32_t, std::pair<uint64_t, UpdateCounts>> had;
  for (const auto& [key, lane] : All()) {
    auto& [incarnation, counts] = had[static_cast<uint32_t>(key.first)];
    incarnation = lane->incarnation;
    base::MutexLock lock(lane->mutex);
    for (const auto& [table, count] : lane->applied) counts[table] += count;
  }
  std::string lost;
  for (const Goodbye& goodbye : goodbyes) {
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
}

std::string WorkerLanes::lost_of_gone() const {
  base::MutexLock lock(mutex_);
  return lost_of_gone_;
}

}  // namespace fleet::ps
