// SPDX-License-Identifier: Apache-2.0

// Workers push and pull while servers and workers are killed (kill -9) and
// started again, stopped (SIGSTOP) and let go on, while connections are cut and
// delayed, a disk is full or fails, a clock is stepped; what comes when is
// drawn from a seed. Every update adds one to its keys, and to a dense
// parameter, and what was begun and acknowledged is counted (history.h). Each
// pull has to read what docs/modes.md promises:
//
//   async: all updates that were acknowledged before it began, those of the
//          worker itself among them, and none that had not begun when it ended
//   sync:  exactly the steps that are done
//
// An asynchronous update of the dense parameter, of which each server has a
// part, is a turn: a save, which is made once in a while (not with --saves 0),
// has one value in all of it, unless one of the servers refused an update for
// want of room.
//
// In the end, with servers at rest, values below what was acknowledged are lost
// updates, values above what was begun are updates that were applied twice.
//
//   storm --server FLEET_SERVER --folder DIR [--durability log] [--events 20]
//         [--kinds kill,stop,...] [--servers 2] [--workers 2] [--rows 1000]
//         [--dim 2] [--filled 0] [--log-mb 8] [--pause-ms 100] [--seed 1]
//         [--sync 0] [--busy-seconds 10] [--heartbeat-timeout 10] [--shim LIB]
//         [--disk DIR] [--saves 1]
//
// With --filled all rows are there before the first event; --log-mb 0 is the
// limit that servers have by themselves; --pause-ms is the longest pause before
// an event. --disk is a small file system of its own for logs; without it, a
// full disk is what the shim says. Prints the seed and what it found; exit code
// 0 when all held.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <spawn.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/descriptor.h"
#include "fleet/base/file_system.h"
#include "fleet/base/status.h"
#include "fleet/ps/client.h"
#include "fleet/table/dense_table.h"
#include "fleet/table/key.h"
#include "fleet/table/save_manifest.h"

#include "tests/chaos/history.h"
#include "tests/chaos/proxy.h"
#include "tests/chaos/shim.h"

namespace {

using fleet::OkStatus;
using fleet::Result;
using fleet::Status;
using fleet::base::Concat;
using fleet::base::Deadline;
using fleet::chaos::Control;
using fleet::chaos::History;
using fleet::chaos::Listening;
using fleet::chaos::ListenOnLoopback;
using fleet::chaos::Proxy;
using fleet::ps::PsClient;
using fleet::ps::TableId;
using fleet::table::Key;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Random = std::mt19937_64;

constexpr TableId kRows{0};
constexpr TableId kWeights{1};
constexpr size_t kNumWeights = 40'000;  // its gradient comes in parts
constexpr size_t kKeysOfPush = 50;

Deadline Soon() { return Deadline::After(std::chrono::seconds(120)); }

int64_t Now() { return Clock::now().time_since_epoch().count(); }

struct Flags {
  std::map<std::string, std::string> given;

  std::string Text(const std::string& name,
                   const std::string& otherwise = "") const {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : found->second;
  }
  uint64_t Number(const std::string& name, uint64_t otherwise) const {
    const std::string text = Text(name);
    return text.empty() ? otherwise : std::stoull(text);
  }
  int servers() const { return static_cast<int>(Number("servers", 2)); }
  int workers() const { return static_cast<int>(Number("workers", 2)); }
  uint64_t rows() const { return Number("rows", 1000); }
  uint64_t seed() const { return Number("seed", 1); }
  size_t dim() const { return Number("dim", 2); }
  // Longer than anybody is stopped.
  uint64_t heartbeat_timeout() const { return Number("heartbeat-timeout", 10); }
  bool sync() const { return Number("sync", 0) != 0; }
  std::string folder() const { return Text("folder"); }
};

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "storm: %s\n", why.c_str());
  std::exit(1);
}

template <typename T>
T OrFail(Result<T> result) {
  if (!result.ok()) Fail(result.status().ToString());
  return std::move(result).value();
}

std::unique_ptr<History> OpenHistory(const Flags& flags) {
  return OrFail(History::Open(flags.folder() + "/history", flags.workers(),
                              flags.servers(), flags.rows() + 1));
}

// ---- workers: processes of their own

// The first workers of a job make its tables.
Status MakeTables(const Flags& flags, PsClient& client) {
  fleet::table::SparseTableOptions rows;
  rows.name = "rows";
  rows.dim = flags.dim();
  rows.initializer = fleet::table::ConstantInit{0.0f};
  rows.update.learning_rate.base = 1.0;
  fleet::table::DenseSpec weights;
  weights.name = "weights";
  weights.size = kNumWeights;
  weights.update.learning_rate.base = 1.0;
  RETURN_IF_ERROR(
      client.CreateTables({{kRows, rows}, {kWeights, weights}}, Soon()));
  RETURN_IF_ERROR(client.InitializeDense(
      kWeights, std::vector<float>(kNumWeights), Soon()));
  if (flags.Number("filled", 0) == 0) return OkStatus();
  // A pull in training makes them.
  std::vector<Key> keys(flags.rows());
  std::iota(keys.begin(), keys.end(), Key{0});
  std::vector<float> values(keys.size() * flags.dim());
  return client.Pull(kRows, keys, values, {}, Soon());
}

class Worker final {
 public:
  Worker(const Flags& flags, int index, PsClient& client, History& history)
      : flags_(flags),
        index_(index),
        client_(client),
        history_(history),
        dim_(flags.dim()),
        random_(flags.Number("life", 0) * 1'000'003 + flags.seed() * 1000 +
                static_cast<uint64_t>(index)) {}

  Status Run() {
    RETURN_IF_ERROR(flags_.sync() ? Steps() : Pushes());
    ++history_.num_finished();
    const auto all = static_cast<uint64_t>(flags_.workers());
    for (const Deadline deadline = Soon(); history_.num_finished() < all;) {
      if (deadline.expired()) {
        return fleet::DeadlineExceeded("other workers did not finish");
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    if (index_ == 0) RETURN_IF_ERROR(CheckAll());
    return client_.Stop(Soon());
  }

 private:
  std::vector<Key> SomeKeys(uint32_t server) {
    const auto num_servers = static_cast<uint32_t>(flags_.servers());
    std::vector<Key> keys;
    while (keys.size() < kKeysOfPush) {
      const Key key = random_() % flags_.rows();
      if (fleet::table::ServerOfKey(key, num_servers) != server) continue;
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
    return keys;
  }

  // Ok also for one that found a full disk: it changed nothing on the servers
  // that said so.
  Status Pushed(const Status& pushed, const std::vector<uint64_t>& counts) {
    if (pushed.ok()) {
      history_.Acknowledge(index_, counts);
      ++history_.progress(index_);
      return pushed;
    }
    if (pushed.ToString().find("No space left on device") ==
            std::string::npos ||
        pushed.ToString().find("/log.") == std::string::npos) {
      return pushed;
    }
    ++history_.num_refused();
    std::this_thread::sleep_for(milliseconds(2));
    return OkStatus();
  }

  // Pushes are acknowledged in any order; the one that was begun last counts.
  void NoteAcknowledged(int server, int64_t begun) {
    std::atomic<int64_t>& latest = history_.latest_acknowledged(server);
    int64_t before = latest;
    while (before < begun && !latest.compare_exchange_weak(before, begun)) {
    }
  }

  Status Pushes() {
    const std::vector<uint64_t> of_weights = {flags_.rows()};
    const std::vector<float> weights(kNumWeights, -1.0f);
    const std::vector<float> minus(kKeysOfPush * dim_, -1.0f);
    const auto num_servers = static_cast<uint32_t>(flags_.servers());
    for (uint64_t i = 0; history_.end() == 0; ++i) {
      // Keys of one server at a time: its acknowledgement is its own.
      const auto server = static_cast<uint32_t>(random_() % num_servers);
      const std::vector<Key> keys = SomeKeys(server);
      history_.Begin(index_, keys);
      const int64_t begun = Now();
      const Status pushed = client_.Push(kRows, keys, minus, Soon());
      RETURN_IF_ERROR(Pushed(pushed, keys));
      if (pushed.ok()) NoteAcknowledged(static_cast<int>(server), begun);
      if (i % 16 == 0) {
        history_.Begin(index_, of_weights);
        const std::vector<fleet::ps::DenseGradient> gradients = {
            {kWeights, weights}};
        ASSIGN_OR_RETURN(const uint64_t turn, client_.BeginTurn(Soon()));
        RETURN_IF_ERROR(
            Pushed(client_.PushDenseMany(gradients, Soon()), of_weights));
        RETURN_IF_ERROR(client_.EndTurn(turn, Soon()));
      }
      if (index_ == 0 && i % 64 == 0 && flags_.Number("saves", 1) != 0) {
        RETURN_IF_ERROR(CheckSave());
      }
      if (i % 4 == 0) RETURN_IF_ERROR(CheckRows(keys));
      if (i % 32 == 0) RETURN_IF_ERROR(CheckWeights());
      if (index_ == 0 && history_.wants_view() != 0) {
        RETURN_IF_ERROR(TellView());
      }
    }
    return OkStatus();
  }

  Result<fleet::table::SavedModel> Save() {
    const std::string folder = flags_.folder() + "/model";
    RETURN_IF_ERROR(client_.Save(folder, {}, Soon()));
    return fleet::table::FindModel(folder, fleet::table::CheckFiles::kBySize);
  }

  // What is saved is of whole turns.
  Status CheckSave() {
    const History::Read read(history_, {flags_.rows(), flags_.rows()});
    const Result<fleet::table::SavedModel> model = Save();
    // Servers are killed time and again.
    if (model.status().code() == fleet::StatusCode::kFailedPrecondition) {
      return OkStatus();
    }
    RETURN_IF_ERROR(model.status());
    fleet::table::DenseTableOptions options;
    options.name = "weights";
    options.size = kNumWeights;
    options.part = {0, kNumWeights};
    ASSIGN_OR_RETURN(const auto table, fleet::table::DenseTable::Make(options));
    RETURN_IF_ERROR(table->Load(*model).status());
    std::vector<float> values(kNumWeights);
    RETURN_IF_ERROR(table->Pull(values));
    const auto [least, most] = std::ranges::minmax(values);
    if (least != most && history_.num_refused() == 0) {
      return fleet::DataLoss("a save with ", least, " and ", most,
                             " is of a part of a step");
    }
    return read.Check(std::array{least, most});
  }

  // A save has the number of the view.
  Status TellView() {
    ASSIGN_OR_RETURN(const fleet::table::SavedModel model, Save());
    history_.view() = model.saves.back().view;
    history_.wants_view() = 0;
    return OkStatus();
  }

  Result<std::vector<float>> PullRows(const std::vector<Key>& keys) {
    std::vector<float> rows(keys.size() * dim_);
    PsClient::PullOptions look;
    look.training = false;
    RETURN_IF_ERROR(client_.Pull(kRows, keys, rows, look, Soon()));
    std::vector<float> firsts;
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto row = std::span(rows).subspan(i * dim_, dim_);
      const auto [least, most] = std::ranges::minmax(row);
      if (least != most) {
        return fleet::DataLoss("a row of ", least, " and ", most);
      }
      firsts.push_back(row[0]);
    }
    return firsts;
  }

  Status CheckRows(std::vector<Key> keys) {
    // Keys of all servers, beside those that were just pushed.
    for (int i = 0; i < 10; ++i) keys.push_back(random_() % flags_.rows());
    const History::Read read(history_, keys);
    ASSIGN_OR_RETURN(const std::vector<float> values, PullRows(keys));
    return read.Check(values);
  }

  Status CheckWeights() {
    const History::Read read(history_, {flags_.rows(), flags_.rows()});
    std::vector<float> values(kNumWeights);
    RETURN_IF_ERROR(client_.PullDense(kWeights, values, Soon()));
    const auto [least, most] = std::ranges::minmax(values);
    return read.Check(std::array{least, most});
  }

  // Every worker gives each step a gradient that is one for all keys, so that
  // their mean is, whoever takes part.
  Status Steps() {
    std::vector<Key> keys(std::min<uint64_t>(flags_.rows(), 200));
    std::iota(keys.begin(), keys.end(), Key{0});
    const std::vector<float> minus(keys.size() * dim_, -1.0f);
    const std::vector<float> weights(kNumWeights, -1.0f);
    std::vector<float> values(kNumWeights);
    for (uint64_t done = 0; history_.end() == 0 || done < history_.end();) {
      const int64_t begun = Now();
      RETURN_IF_ERROR(client_.Accumulate(kRows, keys, minus, Soon()));
      const std::vector<fleet::ps::DenseGradient> gradients = {
          {kWeights, weights}};
      const std::vector<fleet::ps::DenseValues> pulled = {{kWeights, values}};
      RETURN_IF_ERROR(client_.FinishStep(gradients, pulled, Soon()));
      // One that was started again begins where the others are.
      done = done == 0 ? static_cast<uint64_t>(values[0]) : done + 1;
      ASSIGN_OR_RETURN(const std::vector<float> rows, PullRows(keys));
      ++history_.num_reads();
      const std::vector<float>& after = values;
      for (const auto* all : {&after, &rows}) {
        const auto [least, most] = std::ranges::minmax(*all);
        if (least == static_cast<float>(done) && most == least) continue;
        return fleet::DataLoss("after step ", done, " values are from ", least,
                               " to ", most);
      }
      for (int s = 0; s < flags_.servers(); ++s) NoteAcknowledged(s, begun);
      steps_ = done;
      history_.progress(index_) = done;
      if (index_ == 0 && history_.wants_view() != 0) {
        RETURN_IF_ERROR(TellView());
      }
    }
    return OkStatus();
  }

  Status CheckAll() {
    std::vector<Key> keys(flags_.sync() ? std::min<uint64_t>(flags_.rows(), 200)
                                        : flags_.rows());
    std::iota(keys.begin(), keys.end(), Key{0});
    ASSIGN_OR_RETURN(const std::vector<float> rows, PullRows(keys));
    std::vector<float> dense(kNumWeights);
    RETURN_IF_ERROR(client_.PullDense(kWeights, dense, Soon()));
    const auto compare = [&](uint64_t count, float value) {
      const uint64_t at_least =
          flags_.sync() ? steps_ : history_.acknowledged(count);
      const uint64_t at_most = flags_.sync() ? steps_ : history_.begun(count);
      const auto got = static_cast<uint64_t>(value);
      if (got < at_least) history_.lost() += at_least - got;
      if (got > at_most) history_.twice() += got - at_most;
    };
    for (const Key key : keys) compare(key, rows[key]);
    const auto [least, most] = std::ranges::minmax(dense);
    compare(flags_.rows(), least);
    compare(flags_.rows(), most);
    return OkStatus();
  }

  const Flags& flags_;
  const int index_;
  PsClient& client_;
  History& history_;
  const size_t dim_;
  Random random_;
  uint64_t steps_ = 0;
};

Status RunWorker(const Flags& flags) {
  const auto index = static_cast<int>(flags.Number("worker", 0));
  const std::unique_ptr<History> history = OpenHistory(flags);
  fleet::ps::PsClientOptions options;
  options.worker = index;
  options.reconnect_for = std::chrono::seconds(60);
  options.shared_memory = flags.Number("tcp", 0) == 0;
  options.heartbeat_timeout = std::chrono::seconds(flags.heartbeat_timeout());
  std::vector<fleet::channel::Address> servers;
  std::string list = flags.Text("ports");
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    servers.emplace_back();
    servers.back().host = "127.0.0.1";
    servers.back().port =
        static_cast<uint16_t>(std::stoi(list.substr(0, comma)));
    list.erase(0, std::min(comma + 1, list.size()));
  }
  ASSIGN_OR_RETURN(auto client, PsClient::Connect(servers, options, Soon()));
  if (flags.Number("life", 0) == 0) {
    RETURN_IF_ERROR(MakeTables(flags, *client));
  }
  RETURN_IF_ERROR(client->Refresh(Soon()));
  return Worker(flags, index, *client, *history).Run();
}

// ---- the driver

// A process that is started again and again in the same place.
struct Process {
  std::vector<std::string> arguments, environment;
  std::string log;
  std::string control_file;
  Control* control = nullptr;
  pid_t pid = 0;

  void MapControl() {
    const fleet::base::Descriptor file(
        ::open(control_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file.valid() || ::ftruncate(file.get(), sizeof(Control)) != 0) {
      Fail("cannot make " + control_file);
    }
    control = static_cast<Control*>(::mmap(nullptr, sizeof(Control),
                                           PROT_READ | PROT_WRITE, MAP_SHARED,
                                           file.get(), 0));
    if (control == MAP_FAILED) Fail("cannot map " + control_file);
  }
  void Start() {
    std::vector<std::string> all = environment;
    for (char** each = environ; *each != nullptr; ++each) {
      all.emplace_back(*each);
    }
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> made;
      for (std::string& text : texts) made.push_back(text.data());
      made.push_back(nullptr);
      return made;
    };
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    const int error =
        ::posix_spawn(&pid, arguments[0].c_str(), &actions, nullptr,
                      pointers(arguments).data(), pointers(all).data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) Fail("cannot start " + arguments[0]);
  }
  void Kill() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    (void)::waitpid(pid, nullptr, 0);
    pid = 0;
  }
  // Whether it has ended by itself, and then how.
  bool Ended(int* status) {
    if (pid <= 0 || ::waitpid(pid, status, WNOHANG) != pid) return false;
    pid = 0;
    return true;
  }
};

enum class Kind {
  kKill,
  kKillAll,
  kStop,
  kWorker,
  kCut,
  kDelay,
  kFull,
  kDisk,
  kClock,
  kBusy
};
constexpr std::pair<const char*, Kind> kKinds[] = {
    {"kill", Kind::kKill},   {"killall", Kind::kKillAll},
    {"stop", Kind::kStop},   {"worker", Kind::kWorker},
    {"cut", Kind::kCut},     {"delay", Kind::kDelay},
    {"full", Kind::kFull},   {"disk", Kind::kDisk},
    {"clock", Kind::kClock}, {"busy", Kind::kBusy}};

class Storm final {
 public:
  explicit Storm(const Flags& flags)
      : flags_(flags), history_(OpenHistory(flags)), random_(flags.seed()) {
    const std::string kinds = "," + flags.Text("kinds", "kill") + ",";
    for (const auto& [name, kind] : kKinds) {
      if (kinds.find(Concat(",", name, ",")) == kinds.npos) continue;
      kinds_.push_back(kind);
      uses_proxy_ = uses_proxy_ || kind == Kind::kCut || kind == Kind::kDelay;
    }
    if (kinds_.empty()) Fail("--kinds " + flags.Text("kinds"));
    StartServers();
    for (int w = 0; w < flags_.workers(); ++w) StartWorker(w);
  }
  ~Storm() {
    for (auto* all : {&workers_, &servers_}) {
      for (Process& process : *all) process.Kill();
    }
  }
  Storm(const Storm&) = delete;
  Storm& operator=(const Storm&) = delete;

  Status Run() {
    RETURN_IF_ERROR(WaitForAll());
    const uint64_t events = flags_.Number("events", 20);
    for (uint64_t i = 0; i < events; ++i) {
      SleepUpTo(std::max<uint64_t>(1, flags_.Number("pause-ms", 100)));
      const Kind kind = kinds_[Below(kinds_.size())];
      ++num_events_[kind];
      RETURN_IF_ERROR(
          Do(kind).WithContext(Concat("event ", i, " (", NameOf(kind), ")")));
    }
    return End();
  }

  void Print() const {
    std::string events;
    for (const auto& [kind, count] : num_events_) {
      events += Concat(", ", count, " ", NameOf(kind));
    }
    uint64_t acknowledged = 0;
    uint64_t unknown = 0;
    for (uint64_t count = 0; count <= flags_.rows(); ++count) {
      acknowledged += history_->acknowledged(count);
      unknown += history_->begun(count) - history_->acknowledged(count);
    }
    if (flags_.sync()) acknowledged = history_->end();
    std::printf(
        "storm: seed %llu, %s, %s%s: %llu kills%s; %llu acknowledged %s, %llu "
        "of unknown end, %llu pulls checked, %llu refused; %llu lost, %llu "
        "applied twice; from a server's death to its next acknowledgement p50 "
        "%.3f s, p99 %.3f s\n",
        Long(flags_.seed()), flags_.Text("durability", "log").c_str(),
        flags_.sync() ? "sync" : "async", uses_proxy_ ? ", tcp" : "",
        Long(num_kills_), events.c_str(), Long(acknowledged),
        flags_.sync() ? "steps" : "updates", Long(unknown),
        Long(history_->num_reads()), Long(history_->num_refused()),
        Long(history_->lost()), Long(history_->twice()), Quantile(0.5),
        Quantile(0.99));
  }

 private:
  static unsigned long long Long(uint64_t value) { return value; }
  static const char* NameOf(Kind kind) {
    for (const auto& [name, each] : kKinds) {
      if (each == kind) return name;
    }
    return "";
  }
  uint64_t Below(uint64_t count) { return random_() % count; }
  void SleepUpTo(uint64_t most) {
    std::this_thread::sleep_for(milliseconds(Below(most)));
  }
  std::string LogFolder() const {
    return flags_.Text("disk", flags_.folder()) + "/log";
  }
  // Preloaded only where something asks for it.
  void Preload(Process& process, const std::string& name) {
    process.control_file = Concat(flags_.folder(), "/control.", name);
    process.MapControl();
    const std::string shim = flags_.Text("shim");
    if (shim.empty()) return;
    process.environment.push_back("LD_PRELOAD=" + shim);
    process.environment.push_back("CHAOS_CONTROL=" + process.control_file);
  }

  void StartServers() {
    std::string list;
    for (int i = 0; i < flags_.servers(); ++i) {
      // They stay open over restarts, as a launcher keeps them.
      sockets_.push_back(OrFail(ListenOnLoopback()));
      const uint16_t port = sockets_.back().port;
      list += Concat(i == 0 ? "" : ",", "127.0.0.1:", port);
      if (uses_proxy_) proxies_.push_back(OrFail(Proxy::Start(port)));
    }
    for (size_t i = 0; i < sockets_.size(); ++i) {
      Process& server = servers_.emplace_back();
      server.arguments = {flags_.Text("server"),
                          "--servers",
                          list,
                          "--rank",
                          std::to_string(i),
                          "--workers",
                          std::to_string(flags_.workers()),
                          "--durability",
                          flags_.Text("durability", "log"),
                          "--log-dir",
                          LogFolder()};
      server.environment = {
          Concat("FLEET_LISTEN_FD=", sockets_[i].socket.get()),
          "FLEET_PS_WORKER_GRACE=60",
          "FLEET_PS_LOG_MB=" + flags_.Text("log-mb", "8"),
          Concat("FLEET_HEARTBEAT_TIMEOUT=", flags_.heartbeat_timeout())};
      server.log = Concat(flags_.folder(), "/server.", i, ".txt");
      Preload(server, Concat("server.", i));
      server.Start();
    }
  }

  void StartWorker(int w) {
    const auto index = static_cast<size_t>(w);
    if (workers_.size() <= index) {
      Process& made = workers_.emplace_back();
      made.log = Concat(flags_.folder(), "/worker.", w, ".txt");
      Preload(made, Concat("worker.", w));
      lives_.push_back(0);
    }
    Process& worker = workers_[index];
    std::string ports;
    for (size_t i = 0; i < sockets_.size(); ++i) {
      const uint16_t port =
          uses_proxy_ ? proxies_[i]->port() : sockets_[i].port;
      ports += Concat(i == 0 ? "" : ",", port);
    }
    worker.arguments = {"/proc/self/exe"};
    for (const auto& [name, value] : flags_.given) {
      worker.arguments.push_back("--" + name);
      worker.arguments.push_back(value);
    }
    for (const auto& [name, value] :
         {std::pair<std::string, std::string>("worker", std::to_string(w)),
          {"ports", ports},
          {"tcp", uses_proxy_ ? "1" : "0"},
          {"life", std::to_string(lives_[index]++)}}) {
      worker.arguments.push_back("--" + name);
      worker.arguments.push_back(value);
    }
    worker.Start();
  }

  // DataLoss or whatever a process said when it ended by itself.
  Status CheckAlive() {
    for (auto* all : {&workers_, &servers_}) {
      for (Process& process : *all) {
        int status = 0;
        if (!process.Ended(&status)) continue;
        return fleet::Unavailable(process.log, ": ended with status ", status);
      }
    }
    return OkStatus();
  }

  // Every worker has done something since: nobody waits for ever.
  Status WaitForAll() {
    std::vector<uint64_t> before;
    for (int w = 0; w < flags_.workers(); ++w) {
      before.push_back(history_->progress(w));
    }
    const Deadline deadline = Soon();
    for (int w = 0; w < flags_.workers(); ++w) {
      while (history_->progress(w) == before[static_cast<size_t>(w)]) {
        RETURN_IF_ERROR(CheckAlive());
        if (deadline.expired()) {
          return fleet::DeadlineExceeded("worker ", w,
                                         " has done nothing for 120 s");
        }
        std::this_thread::sleep_for(milliseconds(1));
      }
    }
    return OkStatus();
  }

  // Measures from a server's death until a push to its keys that was begun
  // after it is acknowledged: what was on its way before does not count.
  Status KillServers(const std::vector<size_t>& victims) {
    std::vector<int64_t> died;
    for (const size_t victim : victims) {
      servers_[victim].Kill();
      died.push_back(Now());
    }
    for (const size_t victim : victims) servers_[victim].Start();
    for (size_t i = 0; i < victims.size(); ++i) {
      ++num_kills_;
      RETURN_IF_ERROR(WaitUntilBack(victims[i], died[i]));
      seconds_.push_back(static_cast<double>(Now() - died[i]) / 1e9);
    }
    return OkStatus();
  }

  // Until a push to the server that was begun since is acknowledged.
  Status WaitUntilBack(size_t index, int64_t since) {
    const auto server = static_cast<int>(index);
    const Deadline deadline = Soon();
    while (history_->latest_acknowledged(server) <= since) {
      RETURN_IF_ERROR(CheckAlive());
      if (deadline.expired()) {
        return fleet::DeadlineExceeded(
            "server ", server,
            " was started again, and acknowledged nothing for 120 s");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return OkStatus();
  }

  Status Do(Kind kind) {
    const size_t server = Below(servers_.size());
    const size_t worker = Below(workers_.size());
    const bool of_server = Below(2) == 0;
    Process& any = of_server ? servers_[server] : workers_[worker];
    switch (kind) {
      case Kind::kKill:
        return KillServers({server});
      case Kind::kKillAll: {
        std::vector<size_t> all(servers_.size());
        std::iota(all.begin(), all.end(), size_t{0});
        return KillServers(all);
      }
      case Kind::kStop: {
        // One in twenty for long enough that others name it.
        const uint64_t most = Below(20) == 0 ? 3000 : 300;
        ::kill(any.pid, SIGSTOP);
        SleepUpTo(most);
        ::kill(any.pid, SIGCONT);
        break;
      }
      case Kind::kWorker:
        workers_[worker].Kill();
        SleepUpTo(100);
        StartWorker(static_cast<int>(worker));
        ++num_worker_kills_;
        break;
      case Kind::kCut:
        proxies_[server]->Cut();
        break;
      case Kind::kDelay:
        proxies_[server]->set_delay_ms(static_cast<int>(1 + Below(20)));
        SleepUpTo(300);
        proxies_[server]->set_delay_ms(0);
        break;
      case Kind::kFull:
        RETURN_IF_ERROR(FillDisk());
        break;
      case Kind::kDisk:
        RETURN_IF_ERROR(FailDisk(server));
        break;
      case Kind::kBusy:
        RETURN_IF_ERROR(BeBusy());
        break;
      case Kind::kClock: {
        const auto day = static_cast<int64_t>(86'400'000'000'000);
        any.control->clock_step =
            static_cast<int64_t>(random_() % static_cast<uint64_t>(2 * day)) -
            day;
        break;
      }
    }
    return WaitForAll();
  }

  Result<uint64_t> View() {
    history_->wants_view() = 1;
    const Deadline deadline = Soon();
    while (history_->wants_view() != 0) {
      RETURN_IF_ERROR(CheckAlive());
      if (deadline.expired()) {
        return fleet::DeadlineExceeded("worker 0 does not tell the view");
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    return history_->view().load();
  }

  // Others take all cores for as long as --busy-seconds says. Nobody may be
  // declared dead, and the view stays.
  Status BeBusy() {
    ASSIGN_OR_RETURN(const uint64_t before, View());
    std::vector<pid_t> busy;
    for (int i = 0; i < 8; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (std::atomic<uint64_t> spins = 0;; ++spins) {
        }
      }
      busy.push_back(pid);
    }
    const Deadline end = Deadline::After(
        std::chrono::seconds(flags_.Number("busy-seconds", 10)));
    Status held;
    while (held.ok() && !end.expired()) held = WaitForAll();
    for (const pid_t pid : busy) {
      ::kill(pid, SIGKILL);
      (void)::waitpid(pid, nullptr, 0);
    }
    RETURN_IF_ERROR(held);
    ASSIGN_OR_RETURN(const uint64_t after, View());
    uint64_t num_dead = 0;
    for (auto* all : {&workers_, &servers_}) {
      for (const Process& process : *all) {
        ASSIGN_OR_RETURN(const std::string log,
                         fleet::base::ReadFile(process.log));
        num_dead += log.find("counts as dead") == log.npos ? 0 : 1;
      }
    }
    std::printf(
        "storm: %llu s with 8 busy processes: %llu false deaths, %llu "
        "view changes\n",
        Long(flags_.Number("busy-seconds", 10)), Long(num_dead),
        Long(after - before));
    if (num_dead == 0 && after == before) return OkStatus();
    return fleet::Unavailable("somebody was declared dead who was alive");
  }

  // The server has to end by itself: what is on the disk is not known any more.
  Status FailDisk(size_t index) {
    Process& server = servers_[index];
    server.control->disk_fails = 1;
    const Deadline deadline = Soon();
    int status = 0;
    while (!server.Ended(&status)) {
      if (deadline.expired()) {
        return fleet::DeadlineExceeded(server.log, ": the disk fails, and it ",
                                       "does not end");
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 0) {
      return fleet::Unavailable(server.log, ": ended with status ", status);
    }
    server.control->disk_fails = 0;
    const int64_t ended = Now();
    server.Start();
    // A server that finds a full disk when it is started does not start.
    return WaitUntilBack(index, ended);
  }

  Status FillDisk() {
    const std::string disk = flags_.Text("disk");
    if (disk.empty()) {
      for (Process& server : servers_) server.control->disk_is_full = 1;
      SleepUpTo(400);
      for (Process& server : servers_) server.control->disk_is_full = 0;
      return OkStatus();
    }
    const std::string ballast = disk + "/ballast";
    const fleet::base::Descriptor file(
        ::open(ballast.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    // Ever smaller pieces, until there is no room for a page.
    off_t size = 0;
    for (off_t piece = off_t{64} << 20; piece >= 4096; piece /= 2) {
      while (::posix_fallocate(file.get(), size, piece) == 0) size += piece;
    }
    SleepUpTo(400);
    return fleet::base::Remove(ballast);
  }

  Status End() {
    RETURN_IF_ERROR(WaitForAll());
    // In sync mode all end after the same step, a few behind the present one.
    uint64_t end = 1;
    if (flags_.sync()) {
      for (int w = 0; w < flags_.workers(); ++w) {
        end = std::max<uint64_t>(end, history_->progress(w));
      }
      end += 20;
    }
    history_->end() = end;
    const Deadline deadline = Soon();
    for (auto* all : {&workers_, &servers_}) {
      for (Process& process : *all) {
        int status = 0;
        while (!process.Ended(&status)) {
          if (deadline.expired()) {
            return fleet::DeadlineExceeded(process.log, ": it does not end");
          }
          std::this_thread::sleep_for(milliseconds(2));
        }
        if (status == 0) continue;
        return fleet::Unavailable(process.log, ": ended with status ", status);
      }
    }
    if (history_->lost() + history_->twice() > 0) {
      return fleet::DataLoss("updates were lost or applied twice");
    }
    if (fleet::base::Exists(LogFolder())) {
      ASSIGN_OR_RETURN(const auto left, fleet::base::ListFolder(LogFolder()));
      if (!left.empty()) {
        return fleet::FailedPrecondition(LogFolder(), "/", left[0],
                                         " is left after a good end");
      }
    }
    return OkStatus();
  }

  double Quantile(double q) const {
    std::vector<double> sorted = seconds_;
    if (sorted.empty()) return 0.0;
    std::sort(sorted.begin(), sorted.end());
    return sorted[std::min(
        sorted.size() - 1,
        static_cast<size_t>(q * static_cast<double>(sorted.size())))];
  }

  const Flags& flags_;
  const std::unique_ptr<History> history_;
  Random random_;
  std::vector<Kind> kinds_;
  bool uses_proxy_ = false;
  std::vector<Listening> sockets_;
  std::vector<std::unique_ptr<Proxy>> proxies_;
  std::vector<Process> servers_, workers_;
  std::vector<uint64_t> lives_;
  std::map<Kind, uint64_t> num_events_;
  uint64_t num_kills_ = 0;
  uint64_t num_worker_kills_ = 0;
  std::vector<double> seconds_;
};

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    flags.given[std::string(argv[i]).substr(2)] = argv[i + 1];
  }
  if (flags.Text("server").empty() || flags.folder().empty()) {
    Fail("usage: storm --server FLEET_SERVER --folder DIR [--events N] ...");
  }
  if (flags.given.contains("worker")) {
    const Status done = RunWorker(flags);
    if (!done.ok()) Fail(done.ToString());
    return 0;
  }
  Storm storm(flags);
  const Status done = storm.Run();
  storm.Print();
  if (done.ok()) return 0;
  Fail(Concat("seed ", flags.seed(), ": ", done.ToString()));
}
