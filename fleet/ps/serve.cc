// SPDX-License-Identifier: Apache-2.0

#include "fleet/ps/serve.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <optional>
#include <random>
#include <sstream>
#include <sys/socket.h>
#include <thread>
#include <utility>

#include "fleet/base/exceptions.h"
#include "fleet/base/file_system.h"
#include "fleet/base/log.h"
#include "fleet/base/mutex.h"
#include "fleet/channel/socket.h"
#include "fleet/cluster/bind_address.h"
#include "fleet/cluster/join_settings.h"
#include "fleet/cluster/launcher_words.h"
#include "fleet/ps/request_log.h"

namespace fleet::ps {
namespace {

using std::chrono::milliseconds;
using TimePoint = Deadline::TimePoint;

// Whether `fd` is a socket at the port of `address`. A launcher gives every
// process one, also to scripts whose roles the user defines otherwise.
bool IsBoundTo(int fd, const channel::Address& address) {
  channel::SocketAddress bound;
  bound.byte_size = sizeof(bound.storage);
  if (fd < 0 || getsockname(fd, bound.get(), &bound.byte_size) != 0) {
    return false;
  }
  const channel::Address own = channel::ToAddress(bound);
  return !own.is_local() && address.port != 0 && own.port == address.port;
}

// What a server notes, so that it can begin from there when it is started
// again.
struct Note {
  LastSave saved;
  // Its job has loaded or saved it; else the job began with it.
  bool of_job = false;
};

Result<std::optional<Note>> ReadNote(const std::string& file) {
  if (file.empty() || !base::Exists(file)) return std::optional<Note>();
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(file));
  std::istringstream in(text);
  Note note;
  std::string first;
  std::string word;
  std::getline(in, first);
  in >> word >> note.of_job >> word >> note.saved.number >> word;
  in.get();
  std::getline(in, note.saved.job);
  in >> word;
  in.get();
  std::getline(in, note.saved.folder);
  if (first != "fleet note 1" || !in || note.saved.folder.empty()) {
    return DataLoss(file, ": it does not say where this server saved last");
  }
  return std::optional<Note>(std::move(note));
}

// The file that counts the starts of a server: with its log, or beside its
// note. Empty: there is none.
Result<std::string> EpochFile(const ServeOptions& options) {
  if (options.server.durability != Durability::kNone) {
    RETURN_IF_ERROR(base::MakeFolders(options.server.log_folder));
    return options.server.log_folder + "/epoch";
  }
  const std::string& note = options.last_save_file;
  return note.empty() ? note : note + ".epoch";
}

// The file that says what workers had been acknowledged when they said
// good-bye: beside the note, or with the log. Empty: there is none.
std::string GoodbyeFile(const ServeOptions& options) {
  const std::string& note = options.last_save_file;
  if (!note.empty()) return note + ".goodbyes";
  if (options.server.durability == Durability::kNone) return {};
  return options.server.log_folder + "/goodbyes";
}

// Compares what the server has with what workers that are gone had been
// acknowledged. A first start of the server has nothing to do with what a job
// before left there.
Status RestoreGoodbyes(const ServeOptions& options, PsServer& server) {
  const std::string file = GoodbyeFile(options);
  if (file.empty() || !base::Exists(file)) return OkStatus();
  if (options.server.epoch <= 1) {
    std::error_code error;
    std::filesystem::remove(file, error);
    return error ? Unavailable(file, ": ", error.message()) : OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(file));
  return server.RestoreGoodbyes(bytes).WithContext(file);
}

// Higher with every start of the server: how often it was started, this time
// included, or, where nothing counts, the second in which it begins. Workers
// that have heard a higher epoch refuse a server whose clock was set back.
Result<uint64_t> EpochOfStart(const std::string& file) {
  if (file.empty()) {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(
            std::chrono::system_clock::now().time_since_epoch())
            .count());
  }
  uint64_t before = 0;
  if (base::Exists(file)) {
    ASSIGN_OR_RETURN(const std::string text, base::ReadFile(file));
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), before);
    if (error != std::errc() || end != text.data() + text.size()) {
      return DataLoss(file, ": \"", text, "\" is no number");
    }
  }
  RETURN_IF_ERROR(base::AtomicWriteFile(file, std::to_string(before + 1)));
  return before + 1;
}

Status WriteNote(const std::string& file, const Note& note) {
  std::error_code error;
  const std::string& folder = note.saved.folder;
  const base::Path absolute = std::filesystem::absolute(folder, error);
  return base::AtomicWriteFile(
      file,
      base::Concat("fleet note 1\nof_job ", note.of_job ? 1 : 0, "\nnumber ",
                   note.saved.number, "\njob ", note.saved.job, "\nfolder ",
                   error ? folder : absolute.string(), "\n"));
}

// Names a job in its saves.
std::string RandomJob() {
  std::random_device random;
  std::ostringstream out;
  out << std::hex << random() << random();
  return out.str();
}

// The save with which the tables begin; null where there is none.
Result<std::shared_ptr<const table::SavedModel>> FindBeginning(
    const std::string& folder, const std::optional<Note>& note) {
  table::WhichSave which;
  if (note.has_value()) {
    which.at_most = note->saved.number;
    // A save may count of which this server was not told any more.
    if (note->of_job) which.or_of_job = note->saved.job;
  }
  Result<table::SavedModel> found =
      table::FindModel(folder, table::CheckFiles::kByChecksum, which);
  const bool saved = note.has_value() && note->of_job;
  if (found.status().code() == StatusCode::kNotFound && !saved) return nullptr;
  RETURN_IF_ERROR(found.status());
  return std::make_shared<const table::SavedModel>(std::move(found).value());
}

// What this server knew of its workers when its job saved.
Status RestoreLedger(const table::SavedModel& model, const std::string& job,
                     PsServer& server) {
  if (model.number == 0 || model.saves.back().job != job) return OkStatus();
  const std::vector<std::string>& ledgers = model.saves.back().ledgers;
  if (ledgers.size() != server.num_servers()) return OkStatus();
  const std::string& own = ledgers[static_cast<size_t>(server.rank())];
  return own.empty() ? OkStatus() : server.RestoreLedger(own);
}

// How often tables are asked whether they have rows whose time is over; each
// looks as often as it needs to.
constexpr milliseconds kExpireEvery = std::chrono::seconds(1);

// How often the size of the log is looked at: in a second it may grow by more
// than a small disk has.
constexpr milliseconds kCheckpointEvery = std::chrono::milliseconds(100);

// Calls `work` each time that `interval` has passed since its last call, on a
// thread of its own. The destructor waits for a call that runs.
class Repeated final {
 public:
  Repeated(milliseconds interval, std::function<void()> work)
      : interval_(interval), work_(std::move(work)) {
    thread_ = std::jthread([this] { Run(); });
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  ~Repeated() {
    base::MutexLock lock(mutex_);
    ends_ = true;
    ending_.NotifyAll();
  }

 private:
  void Run() {
    while (true) {
      {
        const Deadline next = Deadline::After(interval_);
        base::MutexLock lock(mutex_);
        while (!ends_ && ending_.WaitUntil(mutex_, next)) {
        }
        if (ends_) return;
      }
      const Status done = base::CatchExceptions([&] {
        work_();
        return OkStatus();
      });
      if (!done.ok()) {
        FLEET_LOG(WARNING) << done;
      }
    }
  }

  const milliseconds interval_;
  const std::function<void()> work_;
  base::Mutex mutex_;
  base::CondVar ending_;
  bool ends_ GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // last: it uses all of the above
};

std::string Megabytes(uint64_t byte_size) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1)
      << static_cast<double>(byte_size) / 1e6 << " MB";
  return out.str();
}

std::string Rate(uint64_t count, double seconds) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(0)
      << static_cast<double>(count) / seconds;
  return out.str();
}

}  // namespace

Serving::Serving(const ServeOptions& options)
    : options_(options),
      begin_(std::chrono::steady_clock::now()),
      server_(options.server),
      reported_at_(begin_) {}

Result<std::unique_ptr<Serving>> Serving::Start(const ServeOptions& given) {
  ServeOptions options = given;
  PsServerOptions& server = options.server;
  const std::string name = base::Concat("server ", server.rank);
  // What an earlier run of this server saved last is newer than what the job
  // began with, and has all of its tables.
  ASSIGN_OR_RETURN(std::optional<Note> note, ReadNote(options.last_save_file));
  // What it has logged is newer still.
  const bool logged =
      server.durability != Durability::kNone && LogHolds(server.log_folder);
  if (logged) note.reset();
  server.job = note.has_value() ? note->saved.job : RandomJob();
  if (note.has_value()) server.load_folder = note->saved.folder;
  if (note.has_value() && note->of_job) server.load_only.clear();
  if (!server.load_folder.empty() && !logged) {
    if (!base::Exists(server.load_folder)) {
      return NotFound(name, ": the folder to load, ", server.load_folder,
                      ", is not there");
    }
    Result<std::shared_ptr<const table::SavedModel>> found =
        FindBeginning(server.load_folder, note);
    RETURN_IF_ERROR(found.status().WithContext(name));
    server.load_model = std::move(found).value();
  }
  if (server.epoch == 0) {
    ASSIGN_OR_RETURN(const std::string file, EpochFile(options));
    ASSIGN_OR_RETURN(server.epoch, EpochOfStart(file));
  }
  if (!options.last_save_file.empty()) {
    if (!note.has_value() && !server.load_folder.empty()) {
      Note begin;
      begin.saved.folder = server.load_folder;
      begin.saved.job = server.job;
      if (server.load_model != nullptr) {
        begin.saved.number = server.load_model->number;
      }
      RETURN_IF_ERROR(WriteNote(options.last_save_file, begin));
    }
    server.on_saved = [name,
                       file = options.last_save_file](const LastSave& saved) {
      const Status noted = WriteNote(file, {saved, true});
      if (!noted.ok()) {
        FLEET_LOG(WARNING) << name << ": " << noted;
      }
    };
  }
  if (const std::string file = GoodbyeFile(options); !file.empty()) {
    server.on_goodbye = [name, file](const std::string& goodbyes) {
      const Status noted = base::AtomicWriteFile(file, goodbyes);
      if (!noted.ok()) {
        FLEET_LOG(WARNING) << name << ": " << noted;
      }
    };
  }
  if (!server.on_arrival) {
    server.on_arrival = [name](int worker, const char* way) {
      FLEET_LOG(INFO) << name << ": worker " << worker << " is here, by "
                      << way;
    };
  }
  auto serving = std::make_unique<Serving>(options);
  if (note.has_value() && note->of_job) {
    RETURN_IF_ERROR(
        RestoreLedger(*server.load_model, note->saved.job, serving->server_)
            .WithContext(name));
  }
  RETURN_IF_ERROR(serving->server_.OpenLog().WithContext(name));
  cluster::TellLauncher(server.durability == Durability::kNone
                            ? cluster::LauncherWord::kLogsNothing
                            : cluster::LauncherWord::kLogs);
  RETURN_IF_ERROR(RestoreGoodbyes(options, serving->server_).WithContext(name));
  serving->SayWhatIsLost();
  Status listening;
  if (IsBoundTo(options.listen_fd, options.address)) {
    listening = serving->server_.ListenOn(options.listen_fd);
  } else {
    ASSIGN_OR_RETURN(const channel::Address bind,
                     cluster::BindAddress(options.address));
    listening = serving->server_.Listen(bind);
  }
  RETURN_IF_ERROR(listening.WithContext(
      base::Concat(name, " cannot listen at ", options.address.ToString())));
  const std::string& host = serving->address().host;
  if (options.warns_without_secret && server.trust.secret.empty() &&
      !channel::IsLoopback(host)) {
    FLEET_LOG(WARNING) << name << ": this job has no secret: "
                       << cluster::WhoCanJoin(server.trust.named_hosts)
                       << " can join it. Give all its processes the same "
                          "FLEET_SECRET_FILE.";
  }
  FLEET_LOG(INFO) << name << " of " << server.num_servers << " for "
                  << server.num_workers
                  << (server.num_workers == 1 ? " worker" : " workers")
                  << " listens at " << serving->address().ToString()
                  << (server.load_folder.empty()
                          ? ""
                          : ", and loads tables from " + server.load_folder)
                  << (server.load_model == nullptr ||
                              server.load_model->number == 0
                          ? ""
                          : base::Concat(", save ", server.load_model->number))
                  << "; durability " << ToString(server.durability)
                  << (server.durability == Durability::kNone
                          ? ""
                          : ", in " + server.log_folder);
  return serving;
}

Status Serving::Run() {
  Status stopped = ServeUntilStopped();
  Report();
  SayWhatIsLost();
  if (!stopped.ok()) return stopped;
  const Status removed = server_.RemoveLog();
  if (!removed.ok()) {
    FLEET_LOG(WARNING) << removed;
  }
  const std::string lost = server_.lost_of_gone();
  if (lost.empty() || options_.on_data_loss == OnDataLoss::kGoOn) {
    return stopped;
  }
  return DataLoss("server ", options_.server.rank, " has lost ", lost,
                  ". With FLEET_PS_ON_DATA_LOSS=go_on that is no failure");
}

Status Serving::ServeUntilStopped() {
  // Both may take as long as the tables are large and the disk is slow.
  const Repeated checkpoints(kCheckpointEvery, [this] { Checkpoint(); });
  const Repeated expiry(kExpireEvery, [this] { ExpireRows(); });
  Status stopped = WatchUntilStopped();
  if (stopped.code() == StatusCode::kUnavailable) {
    FLEET_LOG(WARNING) << stopped;
    cluster::TellLauncher(cluster::LauncherWord::kOthersFailed);
    (void)base::WaitInterruptibly(
        Deadline::After(options_.linger), options_.interrupt,
        [this](Deadline slice) { return server_.WaitUntilAlone(slice); });
  }
  server_.StopWriting();
  return stopped;
}

Status Serving::WatchUntilStopped() {
  auto next = [](TimePoint from, milliseconds interval) {
    return interval.count() == 0 ? Deadline::Infinite()
                                 : Deadline::At(from + interval);
  };
  Deadline missing = next(begin_, options_.name_missing_after);
  Deadline report = next(begin_, options_.report_every);
  Deadline watch = next(begin_, kBeatInterval);
  while (true) {
    Status stopped = base::WaitInterruptibly(
        Earlier(watch, Earlier(missing, report)), options_.interrupt,
        [this](Deadline slice) { return server_.WaitUntilStopped(slice); });
    if (stopped.code() != StatusCode::kDeadlineExceeded) return stopped;
    if (watch.expired()) {
      server_.WatchWorkers(std::chrono::steady_clock::now());
      watch = next(std::chrono::steady_clock::now(), kBeatInterval);
    }
    if (missing.expired()) {
      SayWhoIsMissing();
      missing =
          next(std::chrono::steady_clock::now(), options_.name_missing_after);
    }
    if (report.expired()) {
      Report();
      report = next(std::chrono::steady_clock::now(), options_.report_every);
    }
  }
}

void Serving::ExpireRows() {
  const Result<uint64_t> erased =
      server_.ExpireRows(std::chrono::steady_clock::now());
  if (erased.ok()) return;
  FLEET_LOG(WARNING) << "server " << options_.server.rank << ": "
                     << erased.status();
}

void Serving::SayWhatIsLost() {
  const std::string lost = server_.lost_of_gone();
  if (lost.empty()) return;
  cluster::TellLauncher(cluster::LauncherWord::kLost);
  FLEET_LOG(WARNING) << "server " << options_.server.rank
                     << " was started again and has lost " << lost
                     << " that it had acknowledged, and who said good-bye "
                        "before it could be told";
}

void Serving::Checkpoint() {
  const Status written = server_.CheckpointIfDue();
  if (written.ok()) return;
  FLEET_LOG(WARNING) << "server " << options_.server.rank << ": no checkpoint, "
                     << written;
}

void Serving::SayWhoIsMissing() {
  const std::string missing = server_.NotSeenWorkers();
  if (missing.empty()) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::steady_clock::now() - begin_);
  FLEET_LOG(WARNING) << "server " << options_.server.rank << " at "
                     << address().ToString() << " has waited "
                     << seconds.count() << " s for " << missing
                     << ". Do they run, and is this server in their list?";
}

void Serving::Report() {
  const TimePoint now = std::chrono::steady_clock::now();
  const double seconds =
      std::max(std::chrono::duration<double>(now - reported_at_).count(), 1e-3);
  const PsServerCounters counters = server_.counters();
  const PsServerHoldings holdings = server_.holdings();
  FLEET_LOG(INFO)
      << "server " << options_.server.rank << ": " << holdings.num_tables
      << " tables, " << holdings.num_rows << " rows, "
      << Megabytes(holdings.byte_size) << "; "
      << Rate(counters.num_requests - reported_.num_requests, seconds)
      << " requests/s, "
      << Rate(counters.num_pulled_keys - reported_.num_pulled_keys, seconds)
      << " keys/s pulled, "
      << Rate(counters.num_pushed_keys - reported_.num_pushed_keys, seconds)
      << " pushed"
      << (holdings.num_nonfinite == 0
              ? std::string()
              : base::Concat("; ", holdings.num_nonfinite,
                             " gradients were not finite"))
      << (holdings.num_expired == 0
              ? std::string()
              : base::Concat("; ", holdings.num_expired,
                             " rows were erased when their time was over"))
      << (holdings.save_byte_size == 0
              ? std::string()
              : base::Concat("; a save that is being written takes ",
                             Megabytes(holdings.save_byte_size)));
  reported_ = counters;
  reported_at_ = now;
}

}  // namespace fleet::ps
