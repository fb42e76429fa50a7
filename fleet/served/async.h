// SPDX-License-Identifier: Apache-2.0
#ifndef FLEET_SERVED_ASYNC_H_
#define FLEET_SERVED_ASYNC_H_

#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fleet/base/mutex.h"
#include "fleet/served/mode.h"
#include "fleet/served/send_queue.h"

namespace fleet::served {

// Gradients wait in queues, and threads of its own bring them to the servers,
// who apply them on arrival; with every push of dense gradients the newest
// values come back, and the next EndStep takes them.
//
// What is sent is inside of a turn (ps::PsClient::BeginTurn). It is kept as
// long as there is something to send, and ends when nothing waits, no step is
// in the middle, and a save wants it or nothing came for a while.
class AsyncSync final : public Mode {
 public:
  using Mode::Mode;
  // Without Stop, what waits is dropped.
  ~AsyncSync() override;

  Status Fetch(TableId table, std::span<const RowsOfIds> lookups,
               const LookupOptions& options) override;
  Status Offer(TableId table, std::span<const GradientsOfIds> gradients,
               const LookupOptions& options) override;
  Status OfferDense(std::span<const DenseGradient> gradients) override;
  using Synchronizer::EndStep;
  Status EndStep(std::span<const DenseValues> values,
                 HeldValues* held) override;
  Status Flush(std::span<const DenseValues> values) override;
  Status Stop(std::span<const DenseValues> values) override;
  void BeginThreads(int count) override;
  void EndThread() override;
  SynchronizerStats stats() const override;

 private:
  struct DenseBatch {
    std::vector<float> values;  // of all tables of the group
    void Clear() { values.clear(); }
  };
  // Values as they came from the servers.
  struct Snapshot {
    std::vector<float> values;
    uint64_t version = 0;
    uint64_t num_steps = 0;  // of this worker that are in it
  };
  // Dense parameters that are offered together: those of one program.
  struct DenseGroup {
    std::vector<TableId> tables;
    std::vector<size_t> begins;  // one more than tables
    SendQueue<DenseBatch> queue;
    uint64_t num_offered = 0;
    uint64_t num_pushed = 0;
    std::shared_ptr<const Snapshot> newest;
    // Those that nobody reads any more are written again.
    std::vector<std::shared_ptr<Snapshot>> snapshots;
  };
  struct SparseQueue {
    const ServedTable* table = nullptr;
    SendQueue<RowBatch> queue;
  };
  enum class Turn { kNone, kAsking, kMine, kEnding };

  // Waits for a change, while there is neither failure, end nor ^C.
  // `on_time_out` says what to return when `until` has passed.
  template <typename OnTimeOut>
  Status WaitToBeSentLocked(Deadline until, const OnTimeOut& on_time_out)
      REQUIRES(mutex_);
  // This thread offers something: the first of a step waits while a save wants
  // the turn.
  Status BeginStepLocked() REQUIRES(mutex_);
  void EndStepLocked() REQUIRES(mutex_);
  bool InStepLocked() const REQUIRES(mutex_);
  bool TurnIsWantedLocked() const REQUIRES(mutex_);
  bool HasDueLocked() const REQUIRES(mutex_);
  // Each without the lock meanwhile.
  void AskForTurnLocked() REQUIRES(mutex_);
  void EndTurnLocked() REQUIRES(mutex_);
  bool MayEndTurnLocked() const REQUIRES(mutex_);
  // Until when a thread that has nothing to do may sleep.
  Deadline NextLookLocked() REQUIRES(mutex_);
  // Waits while `num_waiting` is at the limit.
  template <typename Queue>
  Status WaitForRoomLocked(const Queue& queue, const std::string& what)
      REQUIRES(mutex_);
  // Something was added to the queue.
  template <typename Queue>
  void AddedLocked(const Queue& queue) REQUIRES(mutex_);
  // Whether it is time to send.
  template <typename Queue>
  bool IsDueLocked(const Queue& queue) const REQUIRES(mutex_);
  // When the next queue has rested.
  Deadline NextDueLocked() const REQUIRES(mutex_);
  DenseGroup* FindGroupLocked(std::span<const DenseValues> values)
      REQUIRES(mutex_);
  DenseGroup& GroupLocked(std::span<const DenseGradient> gradients)
      REQUIRES(mutex_);
  std::shared_ptr<Snapshot> FreeSnapshotLocked(DenseGroup& group)
      REQUIRES(mutex_);
  Status Exchange(const DenseGroup& group, const DenseBatch& batch,
                  uint32_t num_steps, Snapshot& into);
  // This thread will be away; what else waits is for another one.
  void HandOverLocked() REQUIRES(mutex_);
  // Each sends one batch if there is one, without the lock meanwhile.
  bool SendDenseLocked(DenseGroup& group) REQUIRES(mutex_);
  bool SendRowsLocked(SparseQueue& rows) REQUIRES(mutex_);
  bool SendOneLocked() REQUIRES(mutex_);
  void SentLocked(const Status& outcome, uint32_t num_steps) REQUIRES(mutex_);
  void SendLoop();
  void EndThreads();
  bool IdleLocked() const REQUIRES(mutex_);
  std::string WhatWaitsLocked() const REQUIRES(mutex_);

  mutable base::Mutex mutex_;
  base::CondVar work_;  // for the threads that send
  base::CondVar sent_;  // for those that wait for room or for the end
  bool stopping_ GUARDED_BY(mutex_) = false;
  int num_idle_ GUARDED_BY(mutex_) = 0;     // threads that wait for work
  int num_flushes_ GUARDED_BY(mutex_) = 0;  // calls that wait for all
  Turn turn_ GUARDED_BY(mutex_) = Turn::kNone;
  uint64_t turn_number_ GUARDED_BY(mutex_) = 0;
  Deadline::TimePoint last_send_ GUARDED_BY(mutex_){};
  int num_sending_ GUARDED_BY(mutex_) = 0;
  // Threads in the middle of a step. Without BeginThreads there is one at most,
  // whatever threads offer its gradients.
  int num_threads_ GUARDED_BY(mutex_) = 1;
  std::vector<std::thread::id> in_step_ GUARDED_BY(mutex_);
  Status failure_ GUARDED_BY(mutex_);
  // Addresses stay.
  std::list<DenseGroup> groups_ GUARDED_BY(mutex_);
  std::map<TableId, SparseQueue> rows_ GUARDED_BY(mutex_);
  // Whose turn it is: dense or rows, and of these the tables go round.
  bool dense_is_next_ GUARDED_BY(mutex_) = false;
  TableId last_sent_ GUARDED_BY(mutex_){};
  SynchronizerStats stats_ GUARDED_BY(mutex_);
  // As many as queues, and send_threads at most.
  std::vector<std::jthread> threads_ GUARDED_BY(mutex_);
};

}  // namespace fleet::served

#endif  // FLEET_SERVED_ASYNC_H_
