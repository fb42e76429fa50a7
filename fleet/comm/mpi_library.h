// SPDX-License-Identifier: Apache-2.0

// MPI as one process has it: initialised once, entered by one thread at a time,
// and never waited for inside of it, because a wait in MPI knows no deadline
// and ends for no dead peer. Only the module libfleet_mpi.so includes this.

#ifndef FLEET_COMM_MPI_LIBRARY_H_
#define FLEET_COMM_MPI_LIBRARY_H_

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mpi.h>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "fleet/base/future.h"
#include "fleet/base/mutex.h"
#include "fleet/base/status.h"
#include "fleet/comm/communicator.h"
#include "fleet/comm/patience.h"

namespace fleet::comm {

// Ok, or Internal with what MPI says of `error`.
Status MpiStatus(int error, std::string_view call);

// A message on its way; the bytes are MPI's until `done`.
struct MpiSending {
  std::vector<std::byte> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  bool done = false;
  bool behind = false;  // see MpiLibrary::SendBehind
};

class MpiLibrary final {
 public:
  // Initialises MPI with the first call. Never destroyed: MPI has no second
  // life, and what it still sends needs its memory.
  static Result<MpiLibrary*> Get(const CommunicatorOptions& options,
                                 Deadline deadline);

  MpiLibrary() = default;
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  // Every call of MPI is made under it.
  base::Mutex mutex;

  // MPI is finalised when the process ends and nobody uses it.
  void AddUser() EXCLUDES(mutex);
  void RemoveUser() EXCLUDES(mutex);

  int rank() const { return rank_; }  // in MPI's world
  int size() const { return size_; }

  // Not ok once MPI may write to memory that is no longer its own, or is
  // finalised: no call may be made.
  Status usable() const REQUIRES(mutex) { return usable_; }
  void Forbid(const Status& why) REQUIRES(mutex);
  // A communicator failed: at the end of the process, the others may not come.
  void NoteFailure() REQUIRES(mutex) { failed_ = true; }

  // Begins to send a copy of `bytes`, and forgets it when it has arrived.
  Result<std::shared_ptr<MpiSending>> Send(MPI_Comm comm, int to, int tag,
                                           std::vector<std::byte> bytes)
      REQUIRES(mutex);

  // Begins to send what the sender does not wait for: it goes on though nobody
  // calls MPI, by a thread.
  Status SendBehind(MPI_Comm comm, int to, int tag,
                    std::vector<std::byte> bytes) REQUIRES(mutex);

  // A communicator of MPI over `ranks` of its world. Waits for all of them.
  Result<MPI_Comm> MakeComm(const std::vector<int>& ranks,
                            const CommunicatorOptions& options,
                            Deadline deadline) EXCLUDES(mutex);

  // Asks `done()` under the mutex until it is true or a failure, and looks up
  // meanwhile as `patience` says. A std::function, because a lambda that
  // REQUIRES(library.mutex) knows the mutex by another name than this class.
  template <typename WaitsFor>
  Status Poll(Patience& patience, const std::function<Result<bool>()>& done,
              WaitsFor waits_for) EXCLUDES(mutex) {
    Deadline slice = patience.slice();
    const Deadline eager = Deadline::After(kEager);
    while (true) {
      {
        base::MutexLock lock(mutex);
        RETURN_IF_ERROR(usable_);
        Reap();
        ASSIGN_OR_RETURN(bool ready, done());
        if (ready) return OkStatus();
      }
      if (slice.expired()) {
        RETURN_IF_ERROR(patience.Look(waits_for));
        slice = patience.slice();
      }
      if (eager.expired()) {
        std::this_thread::sleep_for(kNap);
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  // MPI makes progress only when it is asked, and has no wait that ends. So:
  // ask all the time for as long as ranks in step are apart, then every 50 us,
  // which takes a few percent of a core.
  static constexpr std::chrono::milliseconds kEager{5};
  static constexpr std::chrono::microseconds kNap{50};

  // Waits until Begin is over, which the first call starts.
  Status Join(const CommunicatorOptions& options, Deadline deadline)
      EXCLUDES(joining_, mutex);
  Status Begin() EXCLUDES(mutex);
  static void AtExit(int exit_status, void*);
  void End() EXCLUDES(mutex);
  // Returns when all `ranks` have come to make `group`.
  Status Meet(const std::vector<int>& ranks, const std::string& group,
              Patience& patience) EXCLUDES(mutex);
  Status Greet(const std::vector<int>& ranks, const std::string& greeting)
      REQUIRES(mutex);
  Status TakeGreetings() REQUIRES(mutex);
  std::vector<int> Missing(const std::vector<int>& ranks,
                           const std::string& group) REQUIRES(mutex);
  // Lets go of what was sent.
  void Reap() REQUIRES(mutex);
  // The thread of SendBehind.
  void SendOn() EXCLUDES(mutex);

  base::Mutex joining_;
  std::optional<base::Future<>> beginning_ GUARDED_BY(joining_);
  std::optional<Status> begun_ GUARDED_BY(joining_);
  int rank_ = 0;
  int size_ = 1;
  MPI_Comm world_ = MPI_COMM_NULL;  // a copy for messages of our own
  bool ours_ = false;               // initialised here, so finalised here
  int process_ = 0;                 // a forked child has no MPI
  int num_users_ GUARDED_BY(mutex) = 0;
  bool ending_ GUARDED_BY(mutex) = false;  // the process ends, and well
  bool failed_ GUARDED_BY(mutex) = false;
  Status usable_ GUARDED_BY(mutex);
  // By rank of the world, the groups that it came to make, and the one that it
  // gave up last.
  std::map<int, std::vector<std::string>> greetings_ GUARDED_BY(mutex);
  std::map<int, std::string> given_up_ GUARDED_BY(mutex);
  std::list<std::shared_ptr<MpiSending>> sendings_ GUARDED_BY(mutex);
  int num_behind_ GUARDED_BY(mutex) = 0;  // of them
  base::CondVar behind_;                  // there are some
  // Made when it is first needed, and never joined: see Get.
  std::jthread sender_ GUARDED_BY(mutex);
};

}  // namespace fleet::comm

#endif  // FLEET_COMM_MPI_LIBRARY_H_
