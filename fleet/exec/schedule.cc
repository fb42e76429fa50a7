// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/schedule.h"

#include <algorithm>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include "fleet/exec/schedule_maker.h"

namespace fleet::exec {
namespace {

// Nothing for what is not a dense tensor on the CPU.
PlanSource::Type PlannedType(const at::Tensor& value) {
  if (!value.defined() || value.layout() != at::kStrided ||
      !value.device().is_cpu()) {
    return std::nullopt;
  }
  const program::DType dtype = ops::ToDType(value.scalar_type());
  if (dtype == program::DType::kNone) return std::nullopt;
  return program::TensorType{dtype, value.sizes().vec()};
}

bool Fits(const PlanSource::Type& type, const at::Tensor& value) {
  return type && value.layout() == at::kStrided && value.device().is_cpu() &&
         ops::ToDType(value.scalar_type()) == type->dtype &&
         value.sizes() == at::IntArrayRef(type->dims);
}

// Whether a change of one may be seen in the other. The rows of a sparse
// gradient are often those of a dense one.
bool ShareMemory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return false;
  if (a.is_sparse()) {
    return ShareMemory(a._indices(), b) || ShareMemory(a._values(), b);
  }
  if (b.is_sparse()) return ShareMemory(b, a);
  return a.has_storage() && b.has_storage() &&
         a.storage().is_alias_of(b.storage());
}

}  // namespace

Result<std::unique_ptr<Schedule>> Schedule::Compile(
    const program::Program& program, const ops::OpLibrary& library,
    const Extensions& extensions, const std::vector<std::string>& feeds,
    const std::vector<std::string>& fetches, Target target) {
  return ScheduleMaker(program, library, extensions, target)
      .Make(feeds, fetches);
}

Result<std::vector<at::Tensor>> Schedule::Run(Scope& scope,
                                              std::span<const at::Tensor> feeds,
                                              const ops::Context& context) {
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below;
  last_plan_ = nullptr;
  if (context.device.is_cuda()) return RunOnGpu(scope, feeds, context);
  const bool writes_feeds =
      std::find(feed_changes_.begin(), feed_changes_.end(), true) !=
      feed_changes_.end();
  if (!planning_ || writes_feeds) {
    return RunPlain(scope, feeds, context, nullptr);
  }
  Shapes* shapes = FindShapes(feeds);
  if (shapes == nullptr) {
    shapes_.push_front({.source = EmptySource(), .plan = nullptr});
    if (shapes_.size() > kMaxShapes) shapes_.pop_back();
    Result<std::vector<at::Tensor>> fetched =
        RunPlain(scope, feeds, context, &shapes_.front());
    if (!fetched.ok()) shapes_.pop_front();
    return fetched;
  }
  if (shapes->plan == nullptr && !shapes->hopeless) {
    shapes->plan = Plan::Make(shapes->source);
    shapes->hopeless = shapes->plan == nullptr;
    shapes->source.output_types.clear();
  }
  if (shapes->plan != nullptr) {
    FindKept(scope);
    if (shapes->plan->TakesKept(kept_tensors_)) {
      last_plan_ = shapes->plan.get();
      if (!last_plan_->holds_arena()) LimitArenas();
      return shapes->plan->Run(feeds, kept_tensors_, context);
    }
  }
  return RunPlain(scope, feeds, context, nullptr);
}

Schedule::Shapes* Schedule::FindShapes(std::span<const at::Tensor> feeds) {
  for (auto it = shapes_.begin(); it != shapes_.end(); ++it) {
    const std::vector<PlanSource::Type>& types = it->source.feed_types;
    bool fits = true;
    for (size_t i = 0; fits && i < feeds.size(); ++i) {
      fits = Fits(types[i], feeds[i]);
    }
    if (!fits) continue;
    if (it != shapes_.begin()) shapes_.splice(shapes_.begin(), shapes_, it);
    return &shapes_.front();
  }
  return nullptr;
}

// The plan that runs next, the first in the list, is about to take memory:
// those that ran longest ago give theirs back.
void Schedule::LimitArenas() {
  int64_t sum = 0;
  for (Shapes& shapes : shapes_) {
    if (shapes.plan == nullptr) continue;
    sum += shapes.plan->arena_bytes();
    if (sum > kMaxArenas && &shapes != &shapes_.front()) {
      shapes.plan->ReleaseArena();
    }
  }
}

void Schedule::FindKept(Scope& scope) {
  if (kept_scope_ == scope.id() && kept_generation_ == scope.generation()) {
    return;
  }
  kept_tensors_.clear();
  for (const Kept& kept : kept_) kept_tensors_.push_back(scope.Find(kept.name));
  kept_scope_ = scope.id();
  kept_generation_ = scope.generation();
}

PlanSource Schedule::EmptySource() const {
  PlanSource source{.fusing = fusing_,
                    .steps = steps_,
                    .feeds = feed_places_,
                    .fetches = fetch_places_,
                    .names = names_};
  for (const Kept& kept : kept_) {
    source.kept.push_back({kept.place, kept.written});
  }
  return source;
}

// Takes the types of all values down in `record` unless it is null.
Result<std::vector<at::Tensor>> Schedule::RunPlain(
    Scope& scope, std::span<const at::Tensor> feeds,
    const ops::Context& context, Shapes* record) {
  Status status = Load(scope, feeds);
  if (status.ok() && record != nullptr) {
    for (const at::Tensor& feed : feeds) {
      record->source.feed_types.push_back(PlannedType(feed));
    }
    for (const Kept& kept : kept_) {
      record->source.kept_types.push_back(PlannedType(values_[kept.place]));
    }
  }
  if (status.ok()) status = RunSteps(context, record);
  std::vector<at::Tensor> fetched;
  if (status.ok()) {
    Store(scope);
    fetched = Fetch();
  }
  for (at::Tensor& value : values_) value.reset();
  for (std::vector<at::Tensor>& array : arrays_) array.clear();
  RETURN_IF_ERROR(status);
  return fetched;
}

Status Schedule::Load(Scope& scope, std::span<const at::Tensor> feeds) {
  FLEET_CHECK(feeds.size() == feed_places_.size());
  for (size_t i = 0; i < feeds.size(); ++i) {
    values_[feed_places_[i]] = feed_changes_[i] ? feeds[i].clone() : feeds[i];
  }
  for (const Kept& kept : kept_) {
    const at::Tensor* tensor = scope.Find(kept.name);
    if (tensor != nullptr && tensor->defined()) {
      values_[kept.place] = *tensor;
    } else if (kept.read_first) {
      return FailedPrecondition(
          kept.reader, ": variable ", kept.name, " has no value: ",
          kept.is_data ? "it is data and must be fed"
                       : "run the startup program first, or feed it");
    }
  }
  return OkStatus();
}

void Schedule::Unshare(size_t step) {
  for (Place place : sharers_[step]) {
    at::Tensor& value = values_[place];
    for (Place changed : steps_[step]->in_place) {
      if (ShareMemory(value, values_[changed])) {
        value = value.clone();
        break;
      }
    }
  }
}

Status Schedule::RunSteps(const ops::Context& context, Shapes* record) {
  Frame frame{values_, arrays_, names_, context};
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (!sharers_[i].empty()) Unshare(i);
    RETURN_IF_ERROR(RunOne(*steps_[i], frame));
    if (record != nullptr) {
      auto& types = record->source.output_types.emplace_back();
      for (Place place : steps_[i]->outputs) {
        types.push_back(place == kNothing ? std::nullopt
                                          : PlannedType(values_[place]));
      }
    }
    for (Place place : last_uses_[i]) {
      values_[place].reset();
      arrays_[place].clear();
    }
  }
  return OkStatus();
}

std::vector<at::Tensor> Schedule::Fetch() const {
  std::vector<at::Tensor> fetched;
  fetched.reserve(fetch_places_.size());
  for (Place place : fetch_places_) {
    const at::Tensor& value = values_[place];
    fetched.push_back(value.defined() ? value.clone() : value);
  }
  return fetched;
}

// What the program wrote goes into the memory that the scope's tensor has, so
// that whoever holds it sees the new value.
void Schedule::Store(Scope& scope) {
  for (const Kept& kept : kept_) {
    at::Tensor& value = values_[kept.place];
    if (!kept.written || !value.defined()) continue;
    at::Tensor* found = scope.Find(kept.name);
    at::Tensor& tensor = found != nullptr ? *found : scope.Get(kept.name);
    if (!tensor.defined() || tensor.sizes() != value.sizes() ||
        tensor.scalar_type() != value.scalar_type()) {
      tensor = value.is_contiguous() && value.storage().use_count() == 1
                   ? value
                   : value.clone();
    } else if (!tensor.is_same(value) &&
               tensor.data_ptr() != value.data_ptr()) {
      tensor.copy_(value);
    }
  }
}

}  // namespace fleet::exec
