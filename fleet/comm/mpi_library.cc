// SPDX-License-Identifier: Apache-2.0

#include "fleet/comm/mpi_library.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <string>
#include <unistd.h>
#include <utility>

#include "fleet/base/interrupt.h"
#include "fleet/base/log.h"
#include "fleet/base/no_destructor.h"

namespace fleet::comm {
namespace {

constexpr int kMeetTag = 1;
constexpr int kGroupTag = 2;  // under which Open MPI sends messages of its own
// How a greeting begins.
constexpr char kComes = '+';
constexpr char kGivesUp = '-';
// An eager message in every MPI.
constexpr size_t kMaxMeetText = 1000;

// How long a process that ends waits for the others, which may be saving.
constexpr std::chrono::minutes kExitPatience{30};
constexpr std::chrono::seconds kExitPatienceAfterFailure{5};

// The plugins of Open MPI take their symbols from the process, while a module
// keeps its libraries to itself.
void ShowMpiToItsPlugins() {
  Dl_info library;
  if (dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &library) != 0) {
    dlopen(library.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  }
}

std::vector<std::byte> ToBytes(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

// What the ranks of a new group must agree on, short enough for one message.
std::string Describe(const std::string& name, const std::vector<int>& ranks) {
  std::string text = name + " of";
  for (int rank : ranks) text += base::Concat(" ", rank);
  if (text.size() > kMaxMeetText) {
    const size_t hash = std::hash<std::string>()(text);
    text.resize(kMaxMeetText - 32);
    text += base::Concat("... (", hash, ")");
  }
  return text;
}

// The only one: MPI is a state of the process.
MpiLibrary& TheLibrary() {
  static base::NoDestructor<MpiLibrary> library;
  return *library;
}

}  // namespace

Status MpiStatus(int error, std::string_view call) {
  if (error == MPI_SUCCESS) return OkStatus();
  char text[MPI_MAX_ERROR_STRING] = "";
  int size = 0;
  MPI_Error_string(error, text, &size);
  return Internal(call, ": ",
                  std::string_view(text, static_cast<size_t>(size)));
}

Result<MpiLibrary*> MpiLibrary::Get(const CommunicatorOptions& options,
                                    Deadline deadline) {
  MpiLibrary& library = TheLibrary();
  RETURN_IF_ERROR(library.Join(options, deadline));
  return &library;
}

Status MpiLibrary::Join(const CommunicatorOptions& options, Deadline deadline) {
  base::MutexLock lock(joining_);
  if (begun_) return *begun_;
  // MPI_Init waits for all ranks and cannot be stopped, so it has a thread that
  // nobody waits for longer than `deadline`.
  if (!beginning_) {
    base::Promise<> promise;
    beginning_ = promise.future();
    std::thread([this, promise = std::move(promise)]() mutable {
      promise.Set(Begin());
    }).detach();
  }
  const Status ready = beginning_->WaitReady(deadline, options.interrupt);
  if (ready.code() == StatusCode::kDeadlineExceeded) {
    return DeadlineExceeded("MPI_Init: not all ranks came in time");
  }
  RETURN_IF_ERROR(ready);
  begun_ = beginning_->Wait(Deadline::Infinite());
  return *begun_;
}

Status MpiLibrary::Begin() {
  base::MutexLock lock(mutex);
  ShowMpiToItsPlugins();
  int initialized = 0;
  MPI_Initialized(&initialized);
  int threads = 0;
  if (initialized) {
    MPI_Query_thread(&threads);
  } else {
    RETURN_IF_ERROR(MpiStatus(
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads),
        "MPI_Init_thread"));
    ours_ = true;
  }
  if (threads < MPI_THREAD_SERIALIZED) {
    return FailedPrecondition(
        "MPI was initialised for one thread; Fleet needs MPI_THREAD_SERIALIZED "
        "or more: ask MPI_Init_thread for it");
  }
  RETURN_IF_ERROR(
      MpiStatus(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(world_, &rank_);
  MPI_Comm_size(world_, &size_);
  process_ = getpid();
  on_exit(&MpiLibrary::AtExit, nullptr);
  return OkStatus();
}

// A rank that ends badly waits for nobody: the others may wait for it. One that
// ends well may still destroy its communicators behind this.
void MpiLibrary::AtExit(int exit_status, void*) {
  if (exit_status != 0) return;
  MpiLibrary& library = TheLibrary();
  {
    base::MutexLock lock(library.mutex);
    library.ending_ = true;
    if (library.num_users_ > 0) return;
  }
  library.End();
}

void MpiLibrary::AddUser() {
  base::MutexLock lock(mutex);
  ++num_users_;
}

void MpiLibrary::RemoveUser() {
  {
    base::MutexLock lock(mutex);
    if (--num_users_ > 0 || !ending_) return;
  }
  End();
}

void MpiLibrary::End() {
  if (getpid() != process_ || !ours_) return;
  CommunicatorOptions options;
  options.name = "mpi";
  MPI_Request request = MPI_REQUEST_NULL;
  Deadline deadline = Deadline::After(kExitPatience);
  {
    base::MutexLock lock(mutex);
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0 || !usable_.ok()) return;
    if (failed_) deadline = Deadline::After(kExitPatienceAfterFailure);
    if (MPI_Ibarrier(world_, &request) != MPI_SUCCESS) return;
  }
  // MPI_Finalize waits for all ranks, so they first meet where a wait can end.
  // A rank that ends without it has failed in the eyes of mpirun, which then
  // ends the job: that is what shall happen here.
  Patience patience(options, deadline);
  const Status together = Poll(
      patience,
      [&]() -> Result<bool> {
        int done = 0;
        RETURN_IF_ERROR(MpiStatus(MPI_Test(&request, &done, MPI_STATUS_IGNORE),
                                  "MPI_Ibarrier"));
        return done != 0;
      },
      [] { return "not all ranks came to the end of the job"; });
  base::MutexLock lock(mutex);
  if (together.ok()) {
    MPI_Finalize();
  } else {
    FLEET_LOG(WARNING) << "ends without MPI_Finalize: " << together;
  }
  usable_ = Unavailable("MPI is finalised");
}

void MpiLibrary::Forbid(const Status& why) {
  if (usable_.ok()) usable_ = why.WithContext("MPI was given up");
}

void MpiLibrary::Reap() {
  std::erase_if(sendings_,
                [&](const std::shared_ptr<MpiSending>& sending)
                    REQUIRES(mutex) {
                      int done = 0;
                      if (MPI_Test(&sending->request, &done,
                                   MPI_STATUS_IGNORE) != MPI_SUCCESS) {
                        done = 1;  // the peer is gone, which others notice
                      }
                      sending->done = done != 0;
                      if (sending->done && sending->behind) --num_behind_;
                      return sending->done;
                    });
}

Status MpiLibrary::SendBehind(MPI_Comm comm, int to, int tag,
                              std::vector<std::byte> bytes) {
  ASSIGN_OR_RETURN(const std::shared_ptr<MpiSending> sending,
                   Send(comm, to, tag, std::move(bytes)));
  if (sending->done) return OkStatus();
  sending->behind = true;
  ++num_behind_;
  if (!sender_.joinable()) sender_ = std::jthread([this] { SendOn(); });
  behind_.NotifyAll();
  return OkStatus();
}

void MpiLibrary::SendOn() {
  mutex.Lock();
  while (usable_.ok()) {
    if (num_behind_ == 0) {
      behind_.WaitUntil(mutex, Deadline::Infinite());
      continue;
    }
    Reap();
    mutex.Unlock();
    std::this_thread::sleep_for(kNap);
    mutex.Lock();
  }
  mutex.Unlock();
}

Result<std::shared_ptr<MpiSending>> MpiLibrary::Send(
    MPI_Comm comm, int to, int tag, std::vector<std::byte> bytes) {
  RETURN_IF_ERROR(usable_);
  auto sending = std::make_shared<MpiSending>();
  sending->bytes = std::move(bytes);
  RETURN_IF_ERROR(MpiStatus(
      MPI_Isend(sending->bytes.data(), static_cast<int>(sending->bytes.size()),
                MPI_BYTE, to, tag, comm, &sending->request),
      "MPI_Isend"));
  sendings_.push_back(sending);
  Reap();
  return sending;
}

Status MpiLibrary::Greet(const std::vector<int>& ranks,
                         const std::string& greeting) {
  for (int rank : ranks) {
    if (rank == rank_) continue;
    RETURN_IF_ERROR(Send(world_, rank, kMeetTag, ToBytes(greeting)).status());
  }
  return OkStatus();
}

Status MpiLibrary::TakeGreetings() {
  while (true) {
    int here = 0;
    MPI_Status status;
    RETURN_IF_ERROR(
        MpiStatus(MPI_Iprobe(MPI_ANY_SOURCE, kMeetTag, world_, &here, &status),
                  "MPI_Iprobe"));
    if (here == 0) return OkStatus();
    int size = 0;
    MPI_Get_count(&status, MPI_BYTE, &size);
    std::string text(static_cast<size_t>(size), '\0');
    // It has arrived, so this does not wait.
    RETURN_IF_ERROR(
        MpiStatus(MPI_Recv(text.data(), size, MPI_BYTE, status.MPI_SOURCE,
                           kMeetTag, world_, MPI_STATUS_IGNORE),
                  "MPI_Recv"));
    std::vector<std::string>& greetings = greetings_[status.MPI_SOURCE];
    const std::string group = text.substr(1);
    std::string& given_up = given_up_[status.MPI_SOURCE];
    if (text.front() == kComes) {
      greetings.push_back(group);
      given_up.clear();
    } else if (auto taken_back = std::ranges::find(greetings, group);
               taken_back != greetings.end()) {
      greetings.erase(taken_back);
      given_up = group;
    }
  }
}

std::vector<int> MpiLibrary::Missing(const std::vector<int>& ranks,
                                     const std::string& group) {
  std::vector<int> missing;
  for (int rank : ranks) {
    const std::vector<std::string>& greetings = greetings_[rank];
    if (rank != rank_ && std::ranges::count(greetings, group) == 0) {
      missing.push_back(rank);
    }
  }
  return missing;
}

// MPI_Comm_create_group knows no deadline, so all ranks of the group meet
// before it. Who gives up takes back its greeting.
Status MpiLibrary::Meet(const std::vector<int>& ranks, const std::string& group,
                        Patience& patience) {
  {
    base::MutexLock lock(mutex);
    RETURN_IF_ERROR(Greet(ranks, base::Concat(kComes, group)));
  }
  Status met = Poll(
      patience,
      [&]() REQUIRES(mutex) -> Result<bool> {
        RETURN_IF_ERROR(TakeGreetings());
        return Missing(ranks, group).empty();
      },
      [&] {
        base::MutexLock lock(mutex);
        const std::vector<int> missing = Missing(ranks, group);
        std::string text =
            base::Concat(group, ", by MPI: no sign of ", RankList(missing));
        for (int rank : missing) {
          for (const std::string& other : greetings_[rank]) {
            text += base::Concat(" (rank ", rank, " came to ", other, ")");
          }
          if (!given_up_[rank].empty()) {
            text += base::Concat(" (rank ", rank, " came to ", given_up_[rank],
                                 " and gave up)");
          }
        }
        return text;
      });
  base::MutexLock lock(mutex);
  if (!met.ok()) {
    Greet(ranks, base::Concat(kGivesUp, group)).ok();
    return met;
  }
  for (int rank : ranks) {
    std::vector<std::string>& greetings = greetings_[rank];
    if (rank != rank_) greetings.erase(std::ranges::find(greetings, group));
  }
  return OkStatus();
}

Result<MPI_Comm> MpiLibrary::MakeComm(const std::vector<int>& ranks,
                                      const CommunicatorOptions& options,
                                      Deadline deadline) {
  Patience patience(options, deadline);
  RETURN_IF_ERROR(Meet(ranks, Describe(options.name, ranks), patience));
  base::MutexLock lock(mutex);
  RETURN_IF_ERROR(usable_);
  MPI_Group all;
  MPI_Group group;
  MPI_Comm_group(world_, &all);
  RETURN_IF_ERROR(MpiStatus(
      MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &group),
      "MPI_Group_incl"));
  MPI_Comm comm = MPI_COMM_NULL;
  const Status made =
      MpiStatus(MPI_Comm_create_group(world_, group, kGroupTag, &comm),
                "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&all);
  RETURN_IF_ERROR(made);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return comm;
}

}  // namespace fleet::comm
