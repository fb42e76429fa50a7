// SPDX-License-Identifier: Apache-2.0
#include "fleet/served/async.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

namespace fleet::served {
namespace {

double SecondsSince(Deadline::TimePoint begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

// A turn without anything to send ends after this, so that a save need not wait
// for a worker that does something else. Longer than most steps: a worker that
// trains keeps its turn.
constexpr auto kTurnRest = std::chrono::milliseconds(50);

// After a failure: for telling that the turn is over, which it may be anyway.
constexpr auto kTimeToEnd = std::chrono::seconds(5);

}  // namespace

AsyncSync::~AsyncSync() { EndThreads(); }

Status AsyncSync::Fetch(TableId table, std::span<const RowsOfIds> lookups,
                        const LookupOptions& options) {
  {
    base::MutexLock lock(mutex_);
    RETURN_IF_ERROR(failure_);
    // A step that an error ended in the middle.
    EndStepLocked();
  }
  return Mode::Fetch(table, lookups, options);
}

template <typename Queue>
bool AsyncSync::IsDueLocked(const Queue& queue) const {
  if (!queue.ready()) return false;
  return num_flushes_ > 0 || TurnIsWantedLocked() ||
         queue.num_waiting() >=
             std::min(options_.max_merge, options_.queue_size) ||
         std::chrono::steady_clock::now() >= queue.rests_until();
}

Deadline AsyncSync::NextDueLocked() const {
  const auto now = std::chrono::steady_clock::now();
  Deadline next = Deadline::Infinite();
  auto look = [&](const auto& queue) {
    // Also one in which nothing waits yet: who adds to it wakes nobody.
    if (queue.ready() || queue.rests_until() > now) {
      next = Earlier(next, Deadline::At(queue.rests_until()));
    }
  };
  for (const DenseGroup& group : groups_) look(group.queue);
  for (const auto& [id, rows] : rows_) look(rows.queue);
  return next;
}

template <typename Queue>
void AsyncSync::AddedLocked(const Queue& queue) {
  stats_.max_queued = std::max(stats_.max_queued, queue.num_waiting());
  const size_t num_queues = groups_.size() + rows_.size();
  const auto max_threads =
      static_cast<size_t>(std::max(options_.send_threads, 1));
  if (threads_.size() < std::min(num_queues, max_threads)) {
    threads_.emplace_back([this] { SendLoop(); });
  } else if (num_idle_ > 0 && IsDueLocked(queue)) {
    // A queue that rests has a thread that waits for the end of it.
    work_.NotifyOne();
  }
}

template <typename OnTimeOut>
Status AsyncSync::WaitToBeSentLocked(Deadline until,
                                     const OnTimeOut& on_time_out) {
  RETURN_IF_ERROR(failure_);
  if (options_.interrupt) RETURN_IF_ERROR(options_.interrupt());
  if (until.expired()) return on_time_out();
  sent_.WaitUntil(
      mutex_, options_.interrupt
                  ? Earlier(until, Deadline::After(base::kInterruptInterval))
                  : until);
  return OkStatus();
}

bool AsyncSync::InStepLocked() const {
  if (num_threads_ <= 1) return !in_step_.empty();
  return std::ranges::find(in_step_, std::this_thread::get_id()) !=
         in_step_.end();
}

Status AsyncSync::BeginStepLocked() {
  if (InStepLocked()) return OkStatus();
  const Deadline until = deadline();
  while (TurnIsWantedLocked()) {
    work_.NotifyAll();
    RETURN_IF_ERROR(WaitToBeSentLocked(until, [&]() REQUIRES(mutex_) {
      return DeadlineExceeded("worker ", options_.worker,
                              ": a save waits until this worker's gradients "
                              "are sent, and they are not: ",
                              WhatWaitsLocked());
    }));
  }
  in_step_.push_back(std::this_thread::get_id());
  return OkStatus();
}

void AsyncSync::EndStepLocked() {
  if (in_step_.empty()) return;
  if (num_threads_ <= 1) {
    in_step_.clear();
  } else {
    std::erase(in_step_, std::this_thread::get_id());
  }
  if (in_step_.empty() && TurnIsWantedLocked()) work_.NotifyOne();
}

void AsyncSync::BeginThreads(int count) {
  base::MutexLock lock(mutex_);
  num_threads_ = std::max(count, 1);
}

void AsyncSync::EndThread() {
  base::MutexLock lock(mutex_);
  EndStepLocked();
  num_threads_ = std::max(num_threads_ - 1, 1);
}

template <typename Queue>
Status AsyncSync::WaitForRoomLocked(const Queue& queue,
                                    const std::string& what) {
  RETURN_IF_ERROR(failure_);
  if (stopping_) return FailedPrecondition("a gradient after the end");
  RETURN_IF_ERROR(BeginStepLocked());
  if (queue.num_waiting() < options_.queue_size) return OkStatus();
  ++stats_.waits;
  const auto begin = std::chrono::steady_clock::now();
  const Deadline until = deadline();
  Status outcome;
  while (outcome.ok() && queue.num_waiting() >= options_.queue_size) {
    outcome = WaitToBeSentLocked(until, [&]() REQUIRES(mutex_) {
      return DeadlineExceeded("worker ", options_.worker, ": ", what, ": ",
                              queue.num_waiting(),
                              " gradients wait, and the servers took none in ",
                              SecondsSince(begin), " s");
    });
  }
  stats_.waited_seconds += SecondsSince(begin);
  return outcome;
}

Status AsyncSync::Offer(TableId table,
                        std::span<const GradientsOfIds> gradients,
                        const LookupOptions& options) {
  ASSIGN_OR_RETURN(const ServedTable* const served, tables_.FindSparse(table));
  RETURN_IF_ERROR(CheckLists(*served, gradients, options));
  base::MutexLock lock(mutex_);
  SparseQueue& rows = rows_[table];
  rows.table = served;
  RETURN_IF_ERROR(WaitForRoomLocked(rows.queue, served->spec.name()));
  RowBatch& batch = rows.queue.Add(options_.max_merge);
  for (const GradientsOfIds& list : gradients) {
    batch.Append(DimOf(*served), list, options);
  }
  AddedLocked(rows.queue);
  return OkStatus();
}

AsyncSync::DenseGroup& AsyncSync::GroupLocked(
    std::span<const DenseGradient> gradients) {
  for (DenseGroup& group : groups_) {
    if (std::equal(gradients.begin(), gradients.end(), group.tables.begin(),
                   group.tables.end(),
                   [](const DenseGradient& gradient, TableId table) {
                     return gradient.table == table;
                   })) {
      return group;
    }
  }
  DenseGroup& group = groups_.emplace_back();
  group.begins.push_back(0);
  for (const DenseGradient& gradient : gradients) {
    group.tables.push_back(gradient.table);
    group.begins.push_back(group.begins.back() + gradient.values.size());
  }
  return group;
}

Status AsyncSync::OfferDense(std::span<const DenseGradient> gradients) {
  if (gradients.empty()) return OkStatus();
  base::MutexLock lock(mutex_);
  DenseGroup& group = GroupLocked(gradients);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].values.size() != group.begins[i + 1] - group.begins[i]) {
      return InvalidArgument("table ", static_cast<uint32_t>(group.tables[i]),
                             ": a gradient of ", gradients[i].values.size(),
                             " values, after one of ",
                             group.begins[i + 1] - group.begins[i]);
    }
  }
  RETURN_IF_ERROR(WaitForRoomLocked(group.queue, "dense gradients"));
  std::vector<float>& sum = group.queue.Add(options_.max_merge).values;
  if (sum.empty()) {
    for (const DenseGradient& gradient : gradients) {
      sum.insert(sum.end(), gradient.values.begin(), gradient.values.end());
    }
  } else {
    for (size_t i = 0; i < gradients.size(); ++i) {
      float* to = sum.data() + group.begins[i];
      const float* from = gradients[i].values.data();
      const size_t count = gradients[i].values.size();
      for (size_t k = 0; k < count; ++k) to[k] += from[k];
    }
  }
  ++group.num_offered;
  AddedLocked(group.queue);
  return OkStatus();
}

AsyncSync::DenseGroup* AsyncSync::FindGroupLocked(
    std::span<const DenseValues> values) {
  for (DenseGroup& group : groups_) {
    if (std::equal(values.begin(), values.end(), group.tables.begin(),
                   group.tables.end(),
                   [](const DenseValues& each, TableId table) {
                     return each.table == table;
                   })) {
      return &group;
    }
  }
  return nullptr;
}

Status AsyncSync::EndStep(std::span<const DenseValues> values,
                          HeldValues* held) {
  std::shared_ptr<const Snapshot> newest;
  bool known = values.empty();
  {
    base::MutexLock lock(mutex_);
    RETURN_IF_ERROR(failure_);
    EndStepLocked();
    ++stats_.steps;
    DenseGroup* const group = known ? nullptr : FindGroupLocked(values);
    if (group != nullptr) {
      known = true;
      newest = group->newest;
      stats_.staleness =
          group->num_offered - (newest == nullptr ? 0 : newest->num_steps);
      stats_.max_staleness = std::max(stats_.max_staleness, stats_.staleness);
      if (held != nullptr && newest != nullptr) {
        if (newest->version <= held->version) newest = nullptr;
        if (newest != nullptr) held->version = newest->version;
      }
    }
  }
  // Parameters that this worker has no gradients for: others may have changed
  // them.
  if (!known) return PullDense(values);
  if (newest == nullptr) return OkStatus();
  const float* from = newest->values.data();
  for (const DenseValues& each : values) {
    std::memcpy(each.values.data(), from, each.values.size_bytes());
    from += each.values.size();
  }
  // Given back under the lock, so that who writes it again comes behind this.
  base::MutexLock lock(mutex_);
  newest.reset();
  return OkStatus();
}

std::shared_ptr<AsyncSync::Snapshot> AsyncSync::FreeSnapshotLocked(
    DenseGroup& group) {
  for (std::shared_ptr<Snapshot>& snapshot : group.snapshots) {
    // Only `snapshots` has it: others take it and give it back under the lock.
    if (snapshot.use_count() == 1) return snapshot;
  }
  return group.snapshots.emplace_back(std::make_shared<Snapshot>());
}

Status AsyncSync::Exchange(const DenseGroup& group, const DenseBatch& batch,
                           uint32_t num_steps, Snapshot& into) {
  into.values.resize(group.begins.back());
  std::vector<DenseGradient> gradients;
  std::vector<DenseValues> values;
  for (size_t i = 0; i < group.tables.size(); ++i) {
    const size_t begin = group.begins[i];
    const size_t count = group.begins[i + 1] - begin;
    gradients.push_back(
        {group.tables[i], std::span(batch.values).subspan(begin, count)});
    values.push_back(
        {group.tables[i], std::span(into.values).subspan(begin, count)});
  }
  return client_.ExchangeDense(gradients, values, deadline(), num_steps);
}

void AsyncSync::HandOverLocked() {
  if (num_idle_ == 0) return;
  bool more = false;
  for (const DenseGroup& group : groups_) more = more || group.queue.ready();
  for (const auto& [id, rows] : rows_) more = more || rows.queue.ready();
  if (more) work_.NotifyOne();
}

bool AsyncSync::SendDenseLocked(DenseGroup& group) {
  if (!IsDueLocked(group.queue)) return false;
  auto taken = group.queue.Take();
  const std::shared_ptr<Snapshot> into = FreeSnapshotLocked(group);
  HandOverLocked();
  ++num_sending_;
  mutex_.Unlock();
  const Status outcome = Exchange(group, taken->batch, taken->num_steps, *into);
  mutex_.Lock();
  if (outcome.ok()) {
    group.num_pushed += taken->num_steps;
    into->num_steps = group.num_pushed;
    into->version = group.newest == nullptr ? 1 : group.newest->version + 1;
    group.newest = into;
    ++stats_.pulls;
  }
  SentLocked(outcome, taken->num_steps);
  group.queue.Sent(std::move(taken));
  group.queue.set_rests_until(std::chrono::steady_clock::now() +
                              options_.send_pause);
  return true;
}

bool AsyncSync::SendRowsLocked(SparseQueue& rows) {
  if (!IsDueLocked(rows.queue)) return false;
  auto taken = rows.queue.Take();
  const TableId table = rows.table->spec.id;
  const RowBatch& batch = taken->batch;
  HandOverLocked();
  ++num_sending_;
  mutex_.Unlock();
  const Status outcome =
      batch.shows.empty()
          ? client_.Push(table, batch.keys, batch.rows, deadline(),
                         taken->num_steps)
          : client_.PushShown(table, batch.keys, batch.rows, batch.shows,
                              batch.clicks, deadline(), taken->num_steps);
  mutex_.Lock();
  SentLocked(outcome, taken->num_steps);
  rows.queue.Sent(std::move(taken));
  rows.queue.set_rests_until(std::chrono::steady_clock::now() +
                             options_.send_pause);
  return true;
}

void AsyncSync::SentLocked(const Status& outcome, uint32_t num_steps) {
  --num_sending_;
  last_send_ = std::chrono::steady_clock::now();
  ++stats_.pushes;
  stats_.pushed += num_steps;
  if (!outcome.ok() && failure_.ok()) {
    failure_ = outcome.WithContext("in the background");
    work_.NotifyAll();
  }
  sent_.NotifyAll();
}

bool AsyncSync::SendOneLocked() {
  if (!failure_.ok()) return false;
  dense_is_next_ = !dense_is_next_;
  if (dense_is_next_) {
    for (DenseGroup& group : groups_) {
      if (SendDenseLocked(group)) return true;
    }
  }
  // From behind the table that was sent last, round to it.
  auto it = rows_.upper_bound(last_sent_);
  for (size_t i = 0; i < rows_.size(); ++i, ++it) {
    if (it == rows_.end()) it = rows_.begin();
    if (!IsDueLocked(it->second.queue)) continue;
    last_sent_ = it->first;
    return SendRowsLocked(it->second);
  }
  if (!dense_is_next_) {
    for (DenseGroup& group : groups_) {
      if (SendDenseLocked(group)) return true;
    }
  }
  return false;
}

bool AsyncSync::TurnIsWantedLocked() const {
  return turn_ == Turn::kMine && client_.cut_wanted();
}

bool AsyncSync::HasDueLocked() const {
  for (const DenseGroup& group : groups_) {
    if (IsDueLocked(group.queue)) return true;
  }
  for (const auto& [id, rows] : rows_) {
    if (IsDueLocked(rows.queue)) return true;
  }
  return false;
}

void AsyncSync::AskForTurnLocked() {
  turn_ = Turn::kAsking;
  mutex_.Unlock();
  const Result<uint64_t> turn = client_.BeginTurn(deadline());
  mutex_.Lock();
  turn_ = turn.ok() ? Turn::kMine : Turn::kNone;
  if (turn.ok()) {
    turn_number_ = *turn;
  } else if (failure_.ok()) {
    failure_ = turn.status().WithContext("in the background");
    sent_.NotifyAll();
  }
  last_send_ = std::chrono::steady_clock::now();
  work_.NotifyAll();
}

bool AsyncSync::MayEndTurnLocked() const {
  if (turn_ != Turn::kMine || num_sending_ > 0) return false;
  if (stopping_ || !failure_.ok()) return true;
  if (!IdleLocked() || !in_step_.empty()) return false;
  return num_flushes_ > 0 || TurnIsWantedLocked() ||
         std::chrono::steady_clock::now() >= last_send_ + kTurnRest;
}

void AsyncSync::EndTurnLocked() {
  turn_ = Turn::kEnding;
  const bool in_order = failure_.ok();
  const uint64_t number = turn_number_;
  mutex_.Unlock();
  const Status ended = client_.EndTurn(
      number, in_order ? deadline() : Deadline::After(kTimeToEnd));
  mutex_.Lock();
  turn_ = Turn::kNone;
  if (!ended.ok() && failure_.ok()) {
    failure_ = ended.WithContext("in the background");
  }
  work_.NotifyAll();
  sent_.NotifyAll();
}

Deadline AsyncSync::NextLookLocked() {
  // Who asks for a turn or ends one wakes the others; after a failure nothing
  // is sent.
  if (turn_ == Turn::kAsking || turn_ == Turn::kEnding || !failure_.ok()) {
    return Deadline::Infinite();
  }
  const Deadline due = NextDueLocked();
  if (turn_ == Turn::kNone || num_sending_ > 0) return due;
  if (!in_step_.empty()) last_send_ = std::chrono::steady_clock::now();
  return Earlier(due, Deadline::At(last_send_ + kTurnRest));
}

void AsyncSync::SendLoop() {
  base::MutexLock lock(mutex_);
  while (true) {
    if (turn_ == Turn::kNone && failure_.ok() && HasDueLocked()) {
      AskForTurnLocked();
      continue;
    }
    if (turn_ == Turn::kMine && SendOneLocked()) continue;
    if (MayEndTurnLocked()) {
      EndTurnLocked();
      continue;
    }
    if (stopping_) return;
    ++num_idle_;
    work_.WaitUntil(mutex_, NextLookLocked());
    --num_idle_;
  }
}

bool AsyncSync::IdleLocked() const {
  for (const DenseGroup& group : groups_) {
    if (!group.queue.idle()) return false;
  }
  for (const auto& [id, rows] : rows_) {
    if (!rows.queue.idle()) return false;
  }
  return true;
}

std::string AsyncSync::WhatWaitsLocked() const {
  std::string what;
  auto add = [&](const std::string& name, uint64_t count) {
    if (!what.empty()) what += ", ";
    what += base::Concat(count, " of ", name);
  };
  for (const DenseGroup& group : groups_) {
    if (!group.queue.idle()) {
      add("dense parameters", group.queue.num_waiting());
    }
  }
  for (const auto& [id, rows] : rows_) {
    if (!rows.queue.idle()) {
      add(rows.table->spec.name(), rows.queue.num_waiting());
    }
  }
  return what;
}

Status AsyncSync::Flush(std::span<const DenseValues>) {
  const Deadline until = deadline();
  base::MutexLock lock(mutex_);
  EndStepLocked();
  ++num_flushes_;
  work_.NotifyAll();
  Status outcome = failure_;
  while (outcome.ok() && !IdleLocked()) {
    outcome = WaitToBeSentLocked(until, [&]() REQUIRES(mutex_) {
      return DeadlineExceeded(
          "worker ", options_.worker,
          ": gradients still wait for the servers: ", WhatWaitsLocked());
    });
    if (outcome.ok()) outcome = failure_;
  }
  --num_flushes_;
  return outcome;
}

Status AsyncSync::Stop(std::span<const DenseValues> values) {
  const Status flushed = Flush(values);
  EndThreads();
  RETURN_IF_ERROR(flushed);
  {
    base::MutexLock lock(mutex_);
    RETURN_IF_ERROR(failure_);  // the last turn may have failed to end
  }
  return PullDense(values);
}

void AsyncSync::EndThreads() {
  std::vector<std::jthread> threads;
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    if (failure_.ok() && !IdleLocked()) {
      failure_ = FailedPrecondition(
          "worker ", options_.worker,
          " ended before its gradients were sent: ", WhatWaitsLocked());
    }
    work_.NotifyAll();
    sent_.NotifyAll();
    threads.swap(threads_);
  }
  // Their end is waited for here, without the lock.
}

SynchronizerStats AsyncSync::stats() const {
  base::MutexLock lock(mutex_);
  SynchronizerStats stats = stats_;
  stats.lost_updates = client_.num_lost_updates();
  stats.server_restarts = client_.num_server_restarts();
  for (const DenseGroup& group : groups_) {
    stats.queued = std::max(stats.queued, group.queue.num_waiting());
  }
  for (const auto& [id, rows] : rows_) {
    stats.queued = std::max(stats.queued, rows.queue.num_waiting());
  }
  return stats;
}

}  // namespace fleet::served
