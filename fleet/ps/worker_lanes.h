// SPDX-License-Identifier: Apache-2.0

// What a server knows of each worker's requests: which are done, how they
// ended, and how many updates they were. Private to ps/; a worker's end of its
// lanes is in lanes.h.

#ifndef FLEET_PS_WORKER_LANES_H_
#define FLEET_PS_WORKER_LANES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/base/log_file.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/ps/ledger.h"
#include "fleet/ps/request_log.h"
#include "fleet/ps/wire.h"
#include "fleet/table/key.h"

namespace fleet::ps {

// Numbered requests of one incarnation of a worker. Outlives a connection, so
// that a push that comes again is known.
struct WorkerLane {
  static constexpr TableId kNoTable{~uint32_t{0}};

  explicit WorkerLane(uint64_t of) : incarnation(of) {}

  // Whether a numbered request was done before, and then how it ended.
  bool WasDone(uint64_t sequence, Status* outcome) const REQUIRES(mutex);
  void NoteDone(uint64_t sequence, const Status& outcome) REQUIRES(mutex);
  // Gives back the room for requests that do not follow.
  void ReleaseRoom();

  const uint64_t incarnation;
  base::Mutex mutex;  // held while a push is applied
  // A newer incarnation is here: nothing more is done for this one. Set under
  // the mutex, so that what is being applied is applied whole.
  std::atomic<bool> fenced = false;
  uint64_t last_sequence GUARDED_BY(mutex) = 0;
  // How the last numbered requests ended, each at its number's remainder.
  static constexpr size_t kNumOutcomes = 16;
  std::array<std::pair<uint64_t, Status>, kNumOutcomes> outcomes
      GUARDED_BY(mutex);
  // The values so far of a dense gradient that comes in parts.
  std::vector<float> gathered GUARDED_BY(mutex);
  // Whose gradient that is, and how many values of it are here.
  TableId parts_of GUARDED_BY(mutex) = kNoTable;
  uint64_t num_gathered GUARDED_BY(mutex) = 0;
  // The last request after which no part was missing.
  uint64_t whole_sequence GUARDED_BY(mutex) = 0;
  UpdateCounts applied GUARDED_BY(mutex);
  // Those of `applied` that wait as sums for the end of the step
  // `waiting_step`, and the last request before them.
  UpdateCounts waiting GUARDED_BY(mutex);
  uint64_t waiting_step GUARDED_BY(mutex) = 0;
  uint64_t before_waiting GUARDED_BY(mutex) = 0;
  // Room in the log for the requests of an update that follow; and why there
  // was none for one of them, so that those behind it are refused, too.
  base::LogFile::Hold held GUARDED_BY(mutex);
  Status no_room GUARDED_BY(mutex);
  // What the last request answered, if it took changes.
  std::vector<table::Key> taken GUARDED_BY(mutex);
  // The last pull that was counted.
  uint64_t last_pull GUARDED_BY(mutex) = 0;
  // What the last shrink answered.
  uint64_t num_erased GUARDED_BY(mutex) = 0;
};

// Those of all workers, of the newest incarnation of each. Thread-safe; its
// mutex is taken after that of a lane.
class WorkerLanes final {
 public:
  // Worker and number, and the lane.
  using Numbered =
      std::pair<std::pair<int, uint32_t>, std::shared_ptr<WorkerLane>>;

  explicit WorkerLanes(int num_workers)
      : num_steps_(static_cast<size_t>(num_workers)) {}
  WorkerLanes(const WorkerLanes&) = delete;
  WorkerLanes& operator=(const WorkerLanes&) = delete;

  // Whether no hello of this incarnation of the worker, or of a later one, has
  // come.
  bool IsNew(int worker, uint64_t incarnation) const;
  // Refuses what lanes of older incarnations of the worker bring from here on,
  // and forgets them; what is being applied is applied on return. Whether there
  // were some, whose sums have to be dropped.
  bool FenceOlder(int worker, uint64_t incarnation);
  // The lane of a connection that begins. Fenced, and nobody's, when a newer
  // incarnation has come.
  std::shared_ptr<WorkerLane> Enter(int worker, uint32_t number,
                                    uint64_t incarnation);
  std::vector<Numbered> All() const;

  // An update was applied, which is a sum that waits if `sums`.
  void CountUpdate(int worker, bool sums, TableId table, WorkerLane& lane)
      REQUIRES(lane.mutex);
  // A step of the worker begins: what waited has been applied or dropped.
  void BeginStep(int worker) { ++num_steps_[static_cast<size_t>(worker)]; }

  // What there is of the worker's incarnation, as a connection that is new
  // hears it.
  std::vector<LaneRecord> RecordsOf(int worker, uint64_t incarnation);
  // The ledger of all workers: for a save without sums that wait, for a
  // checkpoint with them.
  Ledger MakeLedger(bool for_save);
  // What a ledger tells, for a server that begins again.
  void Restore(const WorkerRecord& record);
  // What may be asked again, of the lanes that have such a thing; and for a
  // server that begins again, after Restore.
  std::vector<LaneAnswers> Answers() const;
  void RestoreAnswers(const LaneAnswers& answers);

  // How many updates of each table are there, of all lanes of the worker.
  Goodbye CountsOf(int worker, uint64_t incarnation);
  // A worker says good-bye with these counts. Returns all that were said, as
  // RestoreGoodbyes takes them.
  std::string NoteGoodbye(Goodbye goodbye);
  // Those of an earlier life of the server, compared with what is there.
  void RestoreGoodbyes(std::vector<Goodbye> goodbyes);
  // "12 updates of emb of worker 1", by the last RestoreGoodbyes.
  std::string lost_of_gone() const;

 private:
  LaneRecord RecordOf(int worker, uint32_t number, const WorkerLane& lane,
                      bool for_save) const REQUIRES(lane.mutex);

  // By worker: steps of it that began. See WorkerLane::waiting_step.
  std::vector<std::atomic<uint64_t>> num_steps_;
  mutable base::Mutex mutex_;
  std::map<std::pair<int, uint32_t>, std::shared_ptr<WorkerLane>> lanes_
      GUARDED_BY(mutex_);
  std::map<int, uint64_t> newest_ GUARDED_BY(mutex_);  // incarnations
  std::vector<Goodbye> goodbyes_ GUARDED_BY(mutex_);
  std::string lost_of_gone_ GUARDED_BY(mutex_);
};

}  // namespace fleet::ps

#endif  // FLEET_PS_WORKER_LANES_H_
