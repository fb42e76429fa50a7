// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/trainer.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iomanip>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include "fleet/base/exceptions.h"
#include "fleet/base/mutex.h"
#include "fleet/program/lod.h"

namespace fleet::exec {
namespace {

using base::Deadline;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Threads share the cores: what one operation uses of them is divided, and is
// as before when the trainer ends.
class CoresPerThread final {
 public:
  explicit CoresPerThread(int num_threads) : before_(at::get_num_threads()) {
    if (num_threads > 1) Set(std::max(1, before_ / num_threads));
  }
  ~CoresPerThread() { Set(before_); }

 private:
  static void Set(int count) {
    if (count != at::get_num_threads()) at::set_num_threads(count);
  }
  const int before_;
};

// A batch as feeds over its own memory.
class Feeder final {
 public:
  static Result<Feeder> Make(const program::Program& program,
                             const std::vector<data::Slot>& slots,
                             at::Device device) {
    Feeder feeder(device);
    const program::Block& block = program.block(0);
    for (size_t i = 0; i < slots.size(); ++i) {
      if (block.Find(slots[i].name) == nullptr) continue;
      const std::string lod = slots[i].name + std::string(program::kLodSuffix);
      const bool feeds_lod = slots[i].ragged && block.Find(lod) != nullptr;
      feeder.entries_.push_back({i, &slots[i], feeds_lod});
      feeder.feeds_.push_back({slots[i].name, {}});
      if (feeds_lod) feeder.feeds_.push_back({lod, {}});
    }
    if (feeder.entries_.empty()) {
      return InvalidArgument(
          "the program has none of the variables that the dataset holds: ",
          slots.front().name, slots.size() > 1 ? ", ..." : "");
    }
    return feeder;
  }

  const std::vector<Feed>& Feeds(const data::Batch& batch) {
    size_t next = 0;
    for (const Entry& entry : entries_) {
      const data::Column& column = batch.columns()[entry.column];
      const bool is_float = entry.slot->type == data::SlotType::kFloat32;
      shape_.assign(1, entry.slot->ragged
                           ? column.offsets.back()
                           : static_cast<int64_t>(batch.num_samples()));
      shape_.insert(shape_.end(), entry.slot->dims.begin(),
                    entry.slot->dims.end());
      feeds_[next++].value = is_float ? Wrap(column.floats.data(), at::kFloat)
                                      : Wrap(column.ints.data(), at::kLong);
      if (!entry.feeds_lod) continue;
      shape_.assign(1, static_cast<int64_t>(column.offsets.size()));
      feeds_[next++].value = Wrap(column.offsets.data(), at::kLong);
    }
    return feeds_;
  }

 private:
  struct Entry {
    size_t column;
    const data::Slot* slot;
    bool feeds_lod;
  };

  explicit Feeder(at::Device device) : device_(device) {}

  // Feeds are only read.
  at::Tensor Wrap(const void* memory, at::ScalarType type) const {
    at::Tensor tensor = at::from_blob(const_cast<void*>(memory), shape_,
                                      at::TensorOptions(type));
    return device_.is_cpu() ? tensor : tensor.to(device_);
  }

  const at::Device device_;
  std::vector<Entry> entries_;
  std::vector<Feed> feeds_;
  std::vector<int64_t> shape_;
};

// "[0.6931]", "[1 2 3 ... of 100]"
std::string Shown(const at::Tensor& value) {
  if (!value.defined()) return "[none]";
  constexpr int64_t kMaxShown = 8;
  const at::Tensor flat = value.detach().to(at::kCPU, at::kDouble).reshape(-1);
  std::ostringstream text;
  text << '[' << std::setprecision(6);
  const double* numbers = flat.const_data_ptr<double>();
  for (int64_t i = 0; i < std::min(flat.numel(), kMaxShown); ++i) {
    text << (i == 0 ? "" : " ") << numbers[i];
  }
  if (flat.numel() > kMaxShown) text << " ... of " << flat.numel();
  text << ']';
  return text.str();
}

// Collective operations of several threads would meet those of other threads
// elsewhere.
Status CheckThreads(const program::Program& program, int num_threads) {
  if (num_threads < 1) {
    return InvalidArgument("the number of threads must be at least 1, but is ",
                           num_threads);
  }
  if (num_threads == 1) return OkStatus();
  const program::Block& block = program.block(0);
  for (size_t i = 0; i < block.num_ops(); ++i) {
    const std::string& type = block.op(i).type;
    if (type.starts_with("c_") && !type.starts_with("c_sync") &&
        !type.starts_with("c_comm") && !type.starts_with("c_gen")) {
      return FailedPrecondition("the program has the collective operation ",
                                type, ", which ", num_threads,
                                " threads cannot share: use thread=1");
    }
  }
  return OkStatus();
}

// What the threads of one run have in common.
class Training final {
 public:
  Training(data::BatchSource& batches, const TrainOptions& options)
      : batches_(batches), options_(options), begin_(Clock::now()) {
    base::MutexLock lock(mutex_);
    last_line_ = begin_;
  }

  // The first of several failures counts; among failures in batches, whose
  // numbers begin at 1, that of the first batch, whichever thread was faster.
  void Fail(const Status& status, uint64_t batch = 0) {
    {
      base::MutexLock lock(mutex_);
      if (!outcome_.ok() && (batch == 0 || batch >= failed_batch_)) return;
      outcome_ = status;
      failed_batch_ = batch;
    }
    failed_.store(true, std::memory_order_release);
    batches_.Abort(status);
  }
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  void BatchDone(size_t num_samples, std::vector<at::Tensor> fetched) {
    base::MutexLock lock(mutex_);
    ++stats_.num_batches;
    stats_.num_samples += num_samples;
    stats_.fetched = std::move(fetched);
    // Without anything to show, a line now and then says that it goes on.
    constexpr double kSilence = 10;
    if (options_.print_period == 0 ||
        stats_.num_batches % options_.print_period != 0) {
      return;
    }
    if (options_.fetches.empty() && SecondsSince(last_line_) < kSilence) return;
    PrintLocked(ProgressLocked());
  }

  void ThreadDone(int thread, uint64_t num_batches, double waiting,
                  double running) {
    if (options_.on_thread_end) options_.on_thread_end();
    if (!options_.debug) return;
    std::ostringstream line;
    line << options_.name << ": thread " << thread << ": " << num_batches
         << " batches, " << std::fixed << std::setprecision(3) << running
         << " s running, " << waiting << " s waiting for data";
    base::MutexLock lock(mutex_);
    PrintLocked(line.str());
  }

  // A pass without a batch is a failure: who goes on would save what was not
  // trained over what was.
  Result<TrainStats> Finish() {
    base::MutexLock lock(mutex_);
    RETURN_IF_ERROR(outcome_);
    if (stats_.num_batches == 0) {
      return InvalidArgument(
          options_.name,
          ": the dataset gave no batch, so nothing ran: ", batches_.WhyEmpty());
    }
    stats_.seconds = SecondsSince(begin_);
    return std::move(stats_);
  }

 private:
  std::string ProgressLocked() REQUIRES(mutex_) {
    const double seconds = std::max(SecondsSince(last_line_), 1e-9);
    const uint64_t samples = stats_.num_samples - samples_at_last_line_;
    last_line_ = Clock::now();
    samples_at_last_line_ = stats_.num_samples;
    std::ostringstream line;
    line << options_.name << ": batch " << stats_.num_batches << ", "
         << stats_.num_samples << " samples, " << std::fixed
         << std::setprecision(0) << static_cast<double>(samples) / seconds
         << " samples/s";
    for (size_t i = 0; i < options_.fetches.size(); ++i) {
      line << ", "
           << (i < options_.fetch_names.size() ? options_.fetch_names[i]
                                               : options_.fetches[i])
           << ": " << Shown(stats_.fetched[i]);
    }
    return line.str();
  }
  void PrintLocked(const std::string& line) REQUIRES(mutex_) {
    if (options_.print) {
      options_.print(line);
    } else {
      std::fprintf(stderr, "%s\n", line.c_str());
    }
  }

  data::BatchSource& batches_;
  const TrainOptions& options_;
  const Clock::time_point begin_;
  std::atomic<bool> failed_ = false;
  base::Mutex mutex_;
  Status outcome_ GUARDED_BY(mutex_);
  uint64_t failed_batch_ GUARDED_BY(mutex_) = 0;  // where outcome_ is of one
  TrainStats stats_ GUARDED_BY(mutex_);
  Clock::time_point last_line_ GUARDED_BY(mutex_);
  uint64_t samples_at_last_line_ GUARDED_BY(mutex_) = 0;
};

// One of the threads. The first is the calling one, which also looks for
// interrupts and at watched variables.
class TrainThread final {
 public:
  TrainThread(int index, const program::Program& program, Executor& executor,
              Scope& scope, Feeder feeder, data::BatchSource& batches,
              const TrainOptions& options, Training& training)
      : index_(index),
        program_(program),
        executor_(executor),
        scope_(scope),
        feeder_(std::move(feeder)),
        batches_(batches),
        options_(options),
        training_(training),
        last_look_(Clock::now()) {
    if (index == 0 && options.interrupt) {
      // A step may take microseconds, and asking takes one.
      interrupt_ = [this, last = Clock::time_point()]() mutable {
        const Clock::time_point now = Clock::now();
        if (now - last < base::kInterruptInterval / 2) return OkStatus();
        last = now;
        return options_.interrupt();
      };
    }
  }

  // One batch. False at the end, and when this or another thread failed.
  bool RunOne() {
    if (training_.failed()) return false;
    const Clock::time_point begin = Clock::now();
    Result<bool> more = base::WaitInterruptibly(
        Deadline::Infinite(), interrupt_,
        [&](Deadline slice) { return batches_.Next(batch_, slice); });
    const Clock::time_point ready = Clock::now();
    waiting_ += std::chrono::duration<double>(ready - begin).count();
    if (!more.ok()) training_.Fail(more.status().WithContext(options_.name));
    if (!more.ok() || !*more) return false;
    if (Status status = Step(); !status.ok()) {
      training_.Fail(status.WithContext(base::Concat(
                         options_.name, ": batch ", batch_.number, " (",
                         batch_.num_samples(), " samples from ", batch_.file,
                         " on), thread ", index_)),
                     batch_.number);
      return false;
    }
    ++num_batches_;
    running_ += SecondsSince(ready);
    return true;
  }

  void RunAll() {
    while (RunOne()) {
    }
    training_.ThreadDone(index_, num_batches_, waiting_, running_);
  }

 private:
  Status Step() {
    const std::vector<Feed>& feeds = feeder_.Feeds(batch_);
    const size_t num_fetches = options_.fetches.size();
    if (!WantsToLook()) {
      ASSIGN_OR_RETURN(
          std::vector<at::Tensor> fetched,
          executor_.Run(program_, scope_, feeds, options_.fetches));
      training_.BatchDone(batch_.num_samples(), std::move(fetched));
      return OkStatus();
    }
    std::vector<std::string> names = options_.fetches;
    names.insert(names.end(), options_.watch.names.begin(),
                 options_.watch.names.end());
    ASSIGN_OR_RETURN(std::vector<at::Tensor> fetched,
                     executor_.Run(program_, scope_, feeds, names));
    const std::vector<at::Tensor> seen(fetched.begin() + num_fetches,
                                       fetched.end());
    fetched.resize(num_fetches);
    training_.BatchDone(batch_.num_samples(), std::move(fetched));
    last_look_ = Clock::now();
    return options_.watch.look(seen);
  }

  bool WantsToLook() const {
    return index_ == 0 && options_.watch.look &&
           Clock::now() - last_look_ >= options_.watch.period;
  }

  const int index_;
  const program::Program& program_;
  Executor& executor_;
  Scope& scope_;
  Feeder feeder_;
  data::BatchSource& batches_;
  const TrainOptions& options_;
  Training& training_;
  base::InterruptCheck interrupt_;
  data::Batch batch_;
  Clock::time_point last_look_;
  uint64_t num_batches_ = 0;
  double waiting_ = 0;
  double running_ = 0;
};

}  // namespace

Result<TrainStats> Trainer::Run(const program::Program& program, Scope& scope,
                                data::BatchSource& batches,
                                const TrainOptions& options) {
  if (Status status = CheckThreads(program, options.num_threads);
      !status.ok()) {
    return status.WithContext(options.name);
  }
  Result<Feeder> feeder = Feeder::Make(program, batches.slots(), device_);
  if (!feeder.ok()) return feeder.status().WithContext(options.name);
  const size_t num_threads = static_cast<size_t>(options.num_threads);
  while (executors_.size() < num_threads) {
    executors_.push_back(make_executor_());
  }
  const CoresPerThread cores(options.num_threads);
  Training training(batches, options);
  TrainThread first(0, program, *executors_[0], scope, *feeder, batches,
                    options, training);
  const bool goes_on = first.RunOne();
  if (!goes_on) return training.Finish();

  if (options.on_threads) options.on_threads(options.num_threads);
  std::vector<std::unique_ptr<Scope>> scopes;
  std::vector<std::jthread> threads;
  // For a thread that an exception ended.
  auto give_up = [&](const Status& why) {
    training.Fail(why);
    if (options.on_thread_end) options.on_thread_end();
  };
  try {
    for (size_t i = 1; i < num_threads; ++i) {
      Scope& inner = *scopes.emplace_back(std::make_unique<Scope>(&scope));
      threads.emplace_back([&, i] {
        const Status ended = base::CatchExceptions([&] {
          TrainThread(static_cast<int>(i), program, *executors_[i], inner,
                      *feeder, batches, options, training)
              .RunAll();
          return OkStatus();
        });
        if (!ended.ok()) give_up(ended.WithContext(options.name));
      });
    }
    first.RunAll();
  } catch (...) {
    // The others end, too, and are waited for, before the caller sees it.
    give_up(Internal(options.name, ": thread 0 ended by an exception"));
    throw;
  }
  threads.clear();
  return training.Finish();
}

}  // namespace fleet::exec
