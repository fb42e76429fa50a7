// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/schedule.h"

#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include "fleet/exec/schedule_maker.h"
#include "fleet/ops/aten_error.h"

namespace fleet::exec {
namespace {

program::TensorType TypeOf(const at::Tensor& value) {
  return {ops::ToDType(value.scalar_type()), value.sizes().vec()};
}

}  // namespace

Result<std::unique_ptr<Schedule>> Schedule::Compile(
    const program::Program& program, const ops::OpLibrary& library,
    const Extensions& extensions, const std::vector<std::string>& feeds,
    const std::vector<std::string>& fetches) {
  return ScheduleMaker(program, library, extensions).Make(feeds, fetches);
}

Result<std::vector<at::Tensor>> Schedule::Run(Scope& scope,
                                              std::span<const at::Tensor> feeds,
                                              const ops::Context& context) {
  at::NoGradGuard no_grad;
  at::AutoDispatchBelowADInplaceOrView below;
  Status status = Load(scope, feeds);
  if (status.ok()) status = RunSteps(context);
  std::vector<at::Tensor> fetched;
  if (status.ok()) {
    Store(scope);
    fetched = Fetch();
  }
  for (at::Tensor& value : values_) value.reset();
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
    if (!value.defined() || !value.has_storage()) continue;
    for (Place changed : steps_[step]->in_place) {
      const at::Tensor& other = values_[changed];
      if (other.defined() && other.has_storage() &&
          other.storage().is_alias_of(value.storage())) {
        value = value.clone();
        break;
      }
    }
  }
}

Status Schedule::RunSteps(const ops::Context& context) {
  Frame frame{values_, context};
  for (size_t i = 0; i < steps_.size(); ++i) {
    Status status;
    try {
      if (!sharers_[i].empty()) Unshare(i);
      status = steps_[i]->Run(frame);
    } catch (const std::exception& error) {
      status = ops::FromException(error);
    }
    if (!status.ok()) return Explain(*steps_[i], status);
    for (Place place : last_uses_[i]) values_[place].reset();
  }
  return OkStatus();
}

Status Schedule::Explain(const Step& step, const Status& reason) const {
  std::string given;
  for (Place place : step.inputs) {
    const at::Tensor& value = values_[place];
    if (!given.empty()) given += ", ";
    given += names_[place] + " ";
    given +=
        value.defined() ? program::ToString(TypeOf(value)) : "without a value";
  }
  return reason.WithContext(step.what + "(" + given + ")");
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
