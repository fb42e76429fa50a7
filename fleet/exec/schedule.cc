// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/schedule.h"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include "fleet/ops/aten_error.h"

namespace fleet::exec {

using ops::Op;
using program::Block;
using program::GradSource;
using program::OpDef;
using program::Operation;
using program::Variable;

namespace {

constexpr std::string_view kGrad = "_grad";
constexpr std::string_view kEmpty = "@EMPTY@";

std::string Where(const Operation& op) {
  return op.made_at.empty() ? op.type : op.made_at + ": " + op.type;
}

}  // namespace

class ScheduleMaker {
 public:
  ScheduleMaker(const program::Program& program, const ops::OpLibrary& library,
                const Extensions& extensions)
      : block_(program.block(0)), library_(library), extensions_(extensions) {}

  Result<std::unique_ptr<Schedule>> Make(
      const std::vector<std::string>& feeds,
      const std::vector<std::string>& fetches) {
    for (const std::string& name : feeds) {
      schedule_->feed_places_.push_back(PlaceOf(name));
      fed_.insert(name);
    }
    for (size_t i = 0; i < block_.num_ops(); ++i) {
      RETURN_IF_ERROR(Add(block_.op(i)));
    }
    for (const std::string& name : fetches) {
      if (block_.Find(name) == nullptr) {
        return InvalidArgument("fetch: the program has no variable ", name);
      }
      schedule_->fetch_places_.push_back(PlaceOf(name));
      Read(name);
    }
    AddKept();
    AddLastUses();
    schedule_->values_.resize(schedule_->names_.size());
    return std::move(schedule_);
  }

 private:
  uint32_t PlaceOf(const std::string& name) {
    auto [entry, is_new] = places_.try_emplace(name, schedule_->names_.size());
    if (is_new) schedule_->names_.push_back(name);
    return entry->second;
  }

  void Read(const std::string& name) {
    if (!written_.contains(name) && !fed_.contains(name)) {
      read_first_.insert(name);
    }
  }

  Status Add(const Operation& op) {
    if (op.type == "feed" || op.type == "fetch") return OkStatus();
    auto extension = extensions_.find(op.type);
    if (extension != extensions_.end()) {
      return AddExtension(op, *extension->second);
    }
    const Op* forward = library_.Find(op.type);
    if (forward != nullptr) return AddForward(op, *forward);
    if (op.type.ends_with(kGrad)) {
      const std::string_view type(op.type);
      const Op* of = library_.Find(type.substr(0, type.size() - kGrad.size()));
      if (of != nullptr && of->backward != nullptr) return AddBackward(op, *of);
    }
    return InvalidArgument(Where(op), ": there is no kernel for it");
  }

  Result<Schedule::Step> Begin(const Operation& op, const OpDef& def,
                               ops::KernelFn kernel) {
    Schedule::Step step;
    step.kernel = kernel;
    step.what = Where(op);
    ASSIGN_OR_RETURN(step.attrs, program::ResolveAttrs(def, op));
    return step;
  }

  void AddInput(Schedule::Step& step, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      step.inputs.push_back(PlaceOf(name));
      Read(name);
    }
    step.slot_end.push_back(static_cast<uint32_t>(step.inputs.size()));
  }

  void AddOutput(Schedule::Step& step, const std::string& name) {
    if (name == kEmpty) {
      step.outputs.push_back(Schedule::kNothing);
      return;
    }
    step.outputs.push_back(PlaceOf(name));
    written_.insert(name);
  }

  Status AddExtension(const Operation& op, Extension& extension) {
    Schedule::Step step;
    step.what = Where(op);
    Result<std::unique_ptr<ExtensionStep>> prepared = extension.Prepare(op);
    if (!prepared.ok()) return prepared.status().WithContext(step.what);
    step.extension = *std::move(prepared);
    for (const program::Slot& slot : op.inputs) AddInput(step, slot.arguments);
    for (const program::Slot& slot : op.outputs) {
      for (const std::string& name : slot.arguments) AddOutput(step, name);
    }
    schedule_->steps_.push_back(std::move(step));
    return OkStatus();
  }

  Status AddForward(const Operation& op, const Op& kernels) {
    const OpDef& def = *kernels.def;
    ASSIGN_OR_RETURN(Schedule::Step step, Begin(op, def, kernels.forward));
    for (const program::SlotDef& slot : def.inputs) {
      AddInput(step, op.input(slot.name));
    }
    for (const program::SlotDef& slot : def.outputs) {
      const std::vector<std::string>& names = op.output(slot.name);
      for (const std::string& name : names) AddOutput(step, name);
      // The kernel gives one all the same.
      if (names.empty() && !slot.variadic) {
        step.outputs.push_back(Schedule::kNothing);
      }
    }
    schedule_->steps_.push_back(std::move(step));
    return OkStatus();
  }

  Status AddBackward(const Operation& op, const Op& kernels) {
    const OpDef& def = *kernels.def;
    ASSIGN_OR_RETURN(Schedule::Step step, Begin(op, def, kernels.backward));
    for (const GradSource& use : def.grad.uses) {
      switch (use.kind) {
        case GradSource::kInput:
          AddInput(step, op.input(def.inputs[use.slot].name));
          break;
        case GradSource::kOutput:
          AddInput(step, op.input(def.outputs[use.slot].name));
          break;
        case GradSource::kOutputGrad:
          AddInput(step, op.input(def.outputs[use.slot].name + "@GRAD"));
          break;
      }
    }
    step.needs = 0;
    for (int slot : def.grad.gives) {
      const program::SlotDef& input = def.inputs[slot];
      const std::vector<std::string>& names = op.output(input.name + "@GRAD");
      for (const std::string& name : names) {
        const size_t position = step.outputs.size();
        if (name != kEmpty && position < 64) {
          step.needs |= uint64_t{1} << position;
        }
        AddOutput(step, name);
      }
      if (names.empty() && !input.variadic) {
        step.outputs.push_back(Schedule::kNothing);
      }
    }
    schedule_->steps_.push_back(std::move(step));
    return OkStatus();
  }

  void AddKept() {
    for (const auto& [name, place] : places_) {
      const Variable* variable = block_.Find(name);
      const bool persistable = variable != nullptr && variable->persistable;
      const bool read_first = read_first_.contains(name);
      // What is read but never made can only come from the scope.
      if (!persistable && !read_first) continue;
      schedule_->kept_.push_back(
          {place, name, read_first, persistable && written_.contains(name)});
    }
  }

  void AddLastUses() {
    std::set<uint32_t> needed(schedule_->fetch_places_.begin(),
                              schedule_->fetch_places_.end());
    for (const Schedule::Kept& kept : schedule_->kept_) {
      needed.insert(kept.place);
    }
    for (size_t i = schedule_->steps_.size(); i-- > 0;) {
      Schedule::Step& step = schedule_->steps_[i];
      for (const std::vector<uint32_t>* places :
           {&step.inputs, &step.outputs}) {
        for (uint32_t place : *places) {
          if (place != Schedule::kNothing && needed.insert(place).second) {
            step.last_uses.push_back(place);
          }
        }
      }
    }
  }

  const Block& block_;
  const ops::OpLibrary& library_;
  const Extensions& extensions_;
  std::unique_ptr<Schedule> schedule_{new Schedule()};
  std::map<std::string, uint32_t> places_;
  std::set<std::string> fed_;
  std::set<std::string> written_;
  std::set<std::string> read_first_;
};

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
  for (size_t i = 0; status.ok() && i < steps_.size(); ++i) {
    status = RunStep(steps_[i], context);
  }
  std::vector<at::Tensor> fetched;
  if (status.ok()) {
    Store(scope);
    for (uint32_t place : fetch_places_) {
      fetched.push_back(values_[place].clone());
    }
  }
  for (at::Tensor& value : values_) value.reset();
  RETURN_IF_ERROR(status);
  return fetched;
}

Status Schedule::Load(Scope& scope, std::span<const at::Tensor> feeds) {
  FLEET_CHECK(feeds.size() == feed_places_.size());
  for (size_t i = 0; i < feeds.size(); ++i) values_[feed_places_[i]] = feeds[i];
  for (const Kept& kept : kept_) {
    const at::Tensor* tensor = scope.Find(kept.name);
    if (tensor != nullptr && tensor->defined()) {
      values_[kept.place] = *tensor;
    } else if (kept.read_first) {
      return FailedPrecondition(
          "variable ", kept.name,
          " has no value: feed it if it is data, or run the startup program "
          "first if it is a parameter");
    }
  }
  return OkStatus();
}

Status Schedule::RunStep(const Step& step, const ops::Context& context) {
  c10::SmallVector<at::Tensor, 8> inputs;
  for (uint32_t place : step.inputs) inputs.push_back(values_[place]);
  Status status;
  try {
    status = step.extension != nullptr ? RunExtension(step, inputs)
                                       : RunKernel(step, inputs, context);
  } catch (const std::exception& error) {
    status = ops::FromException(error);
  }
  if (!status.ok()) return Explain(step, status);
  for (uint32_t place : step.last_uses) values_[place].reset();
  return OkStatus();
}

Status Schedule::RunKernel(const Step& step, std::span<const at::Tensor> inputs,
                           const ops::Context& context) {
  ops::KernelCall call{inputs, step.slot_end, step.attrs, context,
                       ops::GradNeeds(step.needs)};
  step.kernel(call);
  for (size_t i = 0; i < step.outputs.size() && i < call.out.size(); ++i) {
    if (step.outputs[i] != kNothing) {
      values_[step.outputs[i]] = std::move(call.out[i]);
    }
  }
  return OkStatus();
}

Status Schedule::RunExtension(const Step& step,
                              std::span<const at::Tensor> inputs) {
  c10::SmallVector<at::Tensor, 8> outputs;
  for (uint32_t place : step.outputs) {
    outputs.push_back(place == kNothing ? at::Tensor() : values_[place]);
  }
  RETURN_IF_ERROR(step.extension->Run(inputs, outputs));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (step.outputs[i] != kNothing) {
      values_[step.outputs[i]] = std::move(outputs[i]);
    }
  }
  return OkStatus();
}

Status Schedule::Explain(const Step& step, const Status& reason) const {
  std::string given;
  for (uint32_t place : step.inputs) {
    const at::Tensor& value = values_[place];
    if (!given.empty()) given += ", ";
    given += names_[place] + " ";
    given += value.defined()
                 ? program::ToString(program::TensorType{
                       ops::ToDType(value.scalar_type()), value.sizes().vec()})
                 : "without a value";
  }
  return reason.WithContext(step.what + "(" + given + ")");
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
