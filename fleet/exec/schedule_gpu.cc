// SPDX-License-Identifier: Apache-2.0

// Runs on a GPU: plain ones, and records of them that are replayed.

#include <algorithm>
#include <utility>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include "fleet/base/log.h"
#include "fleet/exec/schedule.h"
#include "fleet/ops/aten_error.h"
#include "fleet/ops/gpu_kernels.h"

namespace fleet::exec {
namespace {

// Runs before a record: shapes that come once or twice are not worth one.
constexpr int kPlainRuns = 2;
// Variables that move make a record useless. Who moves them so often will do
// it again.
constexpr int kMaxAttempts = 8;

at::Tensor Moved(const at::Tensor& tensor, at::Device device) {
  return tensor.device() == device ? tensor : tensor.to(device);
}

// What a rehearsal changes, to be put back when it fails.
class Savepoint final {
 public:
  explicit Savepoint(at::Device device)
      : random_(at::globalContext().defaultGenerator(device)),
        state_(random_.get_state()) {}

  void Add(const at::Tensor& tensor) {
    saved_.emplace_back(tensor, tensor.clone());
  }
  void PutBack() {
    for (auto& [tensor, value] : saved_) tensor.copy_(value);
    random_.set_state(state_);
  }

 private:
  at::Generator random_;
  const at::Tensor state_;
  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;
};

}  // namespace

Schedule::Record::~Record() {
  if (graph == nullptr) return;
  try {
    ops::WaitForGpu(device);
  } catch (const std::exception& error) {
    // At the end of a process CUDA may be gone before.
    FLEET_LOG(DEBUG) << "end of a CUDA graph: "
                     << ops::FromException(error).ToString();
  }
}

Result<std::vector<at::Tensor>> Schedule::RunOnGpu(
    Scope& scope, std::span<const at::Tensor> feeds,
    const ops::Context& context) {
  if (recording_ && !recordable_.has_value()) {
    const std::string reason = NeverRecorded();
    recordable_ = reason.empty() && CudaGraph::Possible(context.device);
    if (!reason.empty()) {
      FLEET_LOG(DEBUG) << "no CUDA graph of this program: " << reason;
    }
  }
  if (!recording_ || !*recordable_) return RunPlainOnGpu(scope, feeds, context);
  Record& record = FindRecord(feeds);
  if (record.hopeless || record.num_plain < kPlainRuns) {
    ++record.num_plain;
    return RunPlainOnGpu(scope, feeds, context);
  }
  FindKept(scope);
  if (record.graph != nullptr && KeptAreAt(record.kept)) {
    return Replay(record, feeds);
  }
  return MakeRecord(record, scope, feeds, context);
}

Result<std::vector<at::Tensor>> Schedule::RunPlainOnGpu(
    Scope& scope, std::span<const at::Tensor> feeds,
    const ops::Context& context) {
  std::vector<at::Tensor> moved;
  try {
    for (const at::Tensor& feed : feeds) {
      moved.push_back(Moved(feed, context.device));
    }
  } catch (const std::exception& error) {
    return ops::FromException(error).WithContext("feed");
  }
  return RunPlain(scope, moved, context, nullptr);
}

// What is known before anything ran; empty when it can be tried.
std::string Schedule::NeverRecorded() const {
  for (const std::unique_ptr<Step>& step : steps_) {
    if (!step->plannable()) return step->what + " decides on the host";
    if (dynamic_cast<const ExtensionCall*>(step.get()) != nullptr) {
      return step->what + " is not a kernel";
    }
    const auto* optimizer = dynamic_cast<const OptimizerStep*>(step.get());
    if (optimizer != nullptr && optimizer->MaySkip()) {
      return step->what + " may be skipped, which the host decides";
    }
    const auto* kernel = dynamic_cast<const KernelStep*>(step.get());
    if (kernel == nullptr || kernel->backward) continue;
    for (size_t i = 0; i < kernel->def().attrs.size(); ++i) {
      const auto* seed = std::get_if<int64_t>(&kernel->attrs[i]);
      if (kernel->def().attrs[i].name == "seed" && seed != nullptr &&
          *seed != 0) {
        return step->what + " has a seed of its own";
      }
    }
  }
  return "";
}

Schedule::Record& Schedule::FindRecord(std::span<const at::Tensor> feeds) {
  auto fits = [](const Located& wanted, const at::Tensor& feed) {
    return wanted.type == feed.scalar_type() &&
           feed.sizes() == at::IntArrayRef(wanted.sizes);
  };
  auto found =
      std::find_if(records_.begin(), records_.end(), [&](const Record& record) {
        return std::equal(record.wanted.begin(), record.wanted.end(),
                          feeds.begin(), feeds.end(), fits);
      });
  if (found != records_.end()) {
    if (found != records_.begin()) {
      records_.splice(records_.begin(), records_, found);
    }
    return records_.front();
  }
  Record& record = records_.emplace_front();
  for (const at::Tensor& feed : feeds) record.wanted.push_back(Locate(&feed));
  if (records_.size() > kMaxRecords) records_.pop_back();
  return record;
}

Schedule::Located Schedule::Locate(const at::Tensor* tensor) {
  if (tensor == nullptr || !tensor->defined() ||
      tensor->layout() != at::kStrided) {
    return {};
  }
  return {tensor->const_data_ptr(), tensor->scalar_type(),
          tensor->sizes().vec(), tensor->strides().vec()};
}

bool Schedule::IsAt(const Located& place, const at::Tensor* tensor) {
  const bool there = tensor != nullptr && tensor->defined();
  if (place.type == at::ScalarType::Undefined || !there) {
    return (place.type != at::ScalarType::Undefined) == there;
  }
  return tensor->layout() == at::kStrided &&
         tensor->const_data_ptr() == place.address &&
         tensor->scalar_type() == place.type &&
         tensor->sizes() == at::IntArrayRef(place.sizes) &&
         tensor->strides() == at::IntArrayRef(place.strides);
}

bool Schedule::KeptAreAt(const std::vector<Located>& places) const {
  if (places.size() != kept_tensors_.size()) return false;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!IsAt(places[i], kept_tensors_[i])) return false;
  }
  return true;
}

// The run that is rehearsed, and then recorded: everything that it makes is on
// the GPU, and fetches stay where they are.
Status Schedule::RunRecordable(Record& record, Scope& scope,
                               const ops::Context& context,
                               std::vector<at::Tensor>& fetches) {
  record.checks.Clear();
  const ops::LateChecks::Collecting collecting(record.checks);
  Frame frame{values_, arrays_, names_, context};
  Status status = Load(scope, record.feeds);
  for (const Kept& kept : kept_) {
    const at::Tensor& value = values_[kept.place];
    if (status.ok() && value.defined() && value.device() != context.device) {
      status = FailedPrecondition(kept.name, " is on ", value.device().str());
    }
  }
  for (size_t i = 0; status.ok() && i < steps_.size(); ++i) {
    Step& step = *steps_[i];
    record.checks.set_operation(step.what);
    if (!sharers_[i].empty()) Unshare(i);
    status = RunOne(step, frame);
    if (status.ok()) status = CudaGraph::Waited().WithContext(step.what);
    for (Place place : step.outputs) {
      if (!status.ok() || place == kNothing) continue;
      const at::Tensor& value = values_[place];
      if (value.defined() && value.device() != context.device) {
        status = FailedPrecondition(step.what, ": ", names_[place],
                                    " is made on the host");
      }
    }
    for (Place place : last_uses_[i]) values_[place].reset();
  }
  if (status.ok()) {
    Store(scope);
    fetches.clear();
    for (Place place : fetch_places_) fetches.push_back(values_[place]);
  }
  for (at::Tensor& value : values_) value.reset();
  return status;
}

Result<std::vector<at::Tensor>> Schedule::MakeRecord(
    Record& record, Scope& scope, std::span<const at::Tensor> feeds,
    const ops::Context& context) {
  record.graph.reset();
  record.fetches.clear();
  record.kept.clear();
  for (const at::Tensor* t : kept_tensors_) record.kept.push_back(Locate(t));
  std::vector<at::Tensor> fetched;
  Status status = ++record.num_attempts > kMaxAttempts
                      ? FailedPrecondition("its variables always move")
                      : Rehearse(record, scope, feeds, context, fetched);
  const bool done = status.ok();  // this run; the next ones replay it
  if (done) {
    FindKept(scope);
    status = KeptAreAt(record.kept)
                 ? Capture(record, scope, context)
                 : FailedPrecondition("a variable gets other memory in a run");
  }
  if (!status.ok()) {
    FLEET_LOG(DEBUG) << "no CUDA graph of this program: " << status.ToString();
    record.hopeless = true;
    record.feeds.clear();
    record.fetches.clear();
  }
  // A mistake of the user comes up again there, as its own.
  if (!done) return RunPlainOnGpu(scope, feeds, context);
  return fetched;
}

// A run, in the way in which it will be recorded. After an error the variables
// of the scope are as before.
Status Schedule::Rehearse(Record& record, Scope& scope,
                          std::span<const at::Tensor> feeds,
                          const ops::Context& context,
                          std::vector<at::Tensor>& fetched) {
  try {
    record.feeds.clear();
    for (const at::Tensor& feed : feeds) {
      record.feeds.push_back(at::empty(
          feed.sizes(),
          at::TensorOptions(feed.scalar_type()).device(context.device)));
      record.feeds.back().copy_(feed);
    }
    Savepoint savepoint(context.device);
    for (size_t i = 0; i < kept_.size(); ++i) {
      const at::Tensor* tensor = kept_tensors_[i];
      if (kept_[i].written && tensor != nullptr && tensor->defined()) {
        savepoint.Add(*tensor);
      }
    }
    Status status = CudaGraph::Rehearse(context.device, [&] {
      std::vector<at::Tensor> fetches;
      RETURN_IF_ERROR(RunRecordable(record, scope, context, fetches));
      for (const at::Tensor& fetch : fetches) {
        fetched.push_back(fetch.defined() ? fetch.clone() : fetch);
      }
      return OkStatus();
    });
    if (status.ok()) status = record.checks.Take();
    if (!status.ok()) savepoint.PutBack();
    return status;
  } catch (const std::exception& error) {
    return ops::FromException(error);
  }
}

Status Schedule::Capture(Record& record, Scope& scope,
                         const ops::Context& context) {
  const bool in_use =
      std::any_of(records_.begin(), records_.end(),
                  [](const Record& other) { return other.graph != nullptr; });
  if (!in_use) pool_ = CudaGraph::NewPool();
  record.device = context.device;
  ASSIGN_OR_RETURN(record.graph, CudaGraph::Record(context.device, pool_, [&] {
                     return RunRecordable(record, scope, context,
                                          record.fetches);
                   }));
  FLEET_LOG(DEBUG) << "a CUDA graph of " << steps_.size() << " steps";
  return OkStatus();
}

Result<std::vector<at::Tensor>> Schedule::Replay(
    Record& record, std::span<const at::Tensor> feeds) {
  const Status earlier = record.checks.Take();
  if (!earlier.ok()) {
    return earlier.WithContext("in an earlier run of the program");
  }
  try {
    for (size_t i = 0; i < feeds.size(); ++i) {
      // From memory that the device reads by itself, the copy must be over
      // before the caller has it back.
      const bool wait = feeds[i].device().is_cpu() && feeds[i].is_pinned();
      record.feeds[i].copy_(feeds[i], /*non_blocking=*/!wait);
    }
    RETURN_IF_ERROR(record.graph->Replay());
    ++num_replays_;
    std::vector<at::Tensor> fetched;
    fetched.reserve(record.fetches.size());
    for (const at::Tensor& fetch : record.fetches) {
      fetched.push_back(fetch.defined() ? fetch.clone() : fetch);
    }
    return fetched;
  } catch (const std::exception& error) {
    return ops::FromException(error);
  }
}

}  // namespace fleet::exec
