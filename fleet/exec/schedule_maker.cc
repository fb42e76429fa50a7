// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/schedule_maker.h"

#include <algorithm>
#include <utility>

#include "fleet/exec/control_step.h"
#include "fleet/program/attr_or.h"
#include "fleet/program/control.h"

namespace fleet::exec {

using ops::Op;
using ops::OptimizerOp;
using program::GradSource;
using program::OpDef;
using program::Operation;
using program::SlotDef;
using program::Variable;

namespace {

constexpr std::string_view kGrad = "_grad";
constexpr std::string_view kEmpty = "@EMPTY@";

std::string Where(const Operation& op) {
  return op.made_at.empty() ? op.type : op.made_at + ": " + op.type;
}

bool Contains(const std::vector<Place>& places, Place place) {
  return std::find(places.begin(), places.end(), place) != places.end();
}

// What an update touches, and which of that it changes.
std::vector<Place> PlacesOf(const OptimizerStep::Update& update) {
  std::vector<Place> places = {update.gradient, update.learning_rate,
                               update.skip, update.values};
  places.insert(places.end(), update.state.begin(), update.state.end());
  places.insert(places.end(), update.powers.begin(), update.powers.end());
  std::erase(places, kNothing);
  return places;
}

std::vector<Place> ChangedBy(const OptimizerStep::Update& update) {
  std::vector<Place> places = {update.values};
  places.insert(places.end(), update.state.begin(), update.state.end());
  if (update.advances_powers) {
    places.insert(places.end(), update.powers.begin(), update.powers.end());
  }
  std::erase(places, kNothing);
  return places;
}

void AddUpdate(OptimizerStep& step, const OptimizerStep::Update& update) {
  step.Add(update);
  for (Place place : PlacesOf(update)) step.inputs.push_back(place);
  for (Place place : ChangedBy(update)) {
    step.outputs.push_back(place);
    step.in_place.push_back(place);
  }
}

// Whether an update may not change places with a step before it.
bool Conflicts(const Step& step, const OptimizerStep::Update& update) {
  const std::vector<Place> touched = PlacesOf(update);
  const std::vector<Place> changed = ChangedBy(update);
  auto hits = [](const std::vector<Place>& places,
                 const std::vector<Place>& others) {
    return std::any_of(places.begin(), places.end(),
                       [&](Place place) { return Contains(others, place); });
  };
  return hits(touched, step.outputs) || hits(touched, step.in_place) ||
         hits(changed, step.inputs);
}

}  // namespace

Result<std::unique_ptr<Schedule>> ScheduleMaker::Make(
    const std::vector<std::string>& feeds,
    const std::vector<std::string>& fetches) {
  schedule_.reset(new Schedule());
  for (const std::string& name : feeds) {
    schedule_->feed_places_.push_back(PlaceOf(name));
    fed_.insert(name);
  }
  steps_ = &schedule_->steps_;
  for (size_t i = 0; i < block_->num_ops(); ++i) {
    RETURN_IF_ERROR(Add(block_->op(i)));
  }
  for (const std::string& name : fetches) {
    if (block_->Find(name) == nullptr) {
      return InvalidArgument("fetch: the program has no variable ", name);
    }
    schedule_->fetch_places_.push_back(PlaceOf(name));
    Read(name, "fetch");
  }
  if (target_ == Schedule::Target::kGpu) {
    FuseProducts();
  } else {
    UpdateEarly();
  }
  AddKept();
  AddLastUses();
  MarkChangedFeeds();
  AddSharers();
  schedule_->values_.resize(schedule_->names_.size());
  schedule_->arrays_.resize(schedule_->names_.size());
  return std::move(schedule_);
}

Place ScheduleMaker::PlaceOf(const std::string& name) {
  // The main block has what nobody declares.
  const program::Block* home = block_;
  while (home->parent() >= 0 && home->FindHere(name) == nullptr) {
    home = &program_.block(home->parent());
  }
  auto [entry, is_new] =
      places_.try_emplace({home->index(), name}, schedule_->names_.size());
  if (is_new) schedule_->names_.push_back(name);
  return entry->second;
}

void ScheduleMaker::Read(const std::string& name, const std::string& reader) {
  // A body's own variables never come from the scope.
  if (block_->index() != 0 && block_->FindHere(name) != nullptr) return;
  if (!written_.contains(name) && !fed_.contains(name)) {
    read_first_.try_emplace(name, reader);
  }
}

Status ScheduleMaker::Add(const Operation& op) {
  if (op.type == "feed" || op.type == "fetch") return OkStatus();
  auto extension = extensions_.find(op.type);
  if (extension != extensions_.end()) {
    return AddExtension(op, *extension->second);
  }
  if (op.type == "conditional_block") return AddConditional(op);
  if (op.type == "while") return AddWhile(op);
  if (AddSimpleControl(op)) return OkStatus();
  const OpDef* def = library_.definitions().Find(op.type);
  if (def != nullptr) {
    ASSIGN_OR_RETURN(const program::Attrs attrs, ResolveAttrs(*def, op));
    if (auto optimizer = ops::ReadOptimizerOp(*def, attrs)) {
      return AddOptimizer(op, *def, *optimizer);
    }
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

Result<std::unique_ptr<KernelStep>> ScheduleMaker::Begin(const Operation& op,
                                                         const Op& kernels) {
  auto step = std::make_unique<KernelStep>();
  step->op = &kernels;
  step->what = Where(op);
  ASSIGN_OR_RETURN(step->attrs, ResolveAttrs(*kernels.def, op));
  return step;
}

void ScheduleMaker::AddInputs(Step& step,
                              const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    step.inputs.push_back(PlaceOf(name));
    Read(name, step.what);
  }
}

void ScheduleMaker::AddOutput(Step& step, const std::string& name) {
  if (name == kEmpty) {
    step.outputs.push_back(kNothing);
    return;
  }
  step.outputs.push_back(PlaceOf(name));
  written_.insert(name);
}

Status ScheduleMaker::AddForward(const Operation& op, const Op& kernels) {
  ASSIGN_OR_RETURN(std::unique_ptr<KernelStep> step, Begin(op, kernels));
  for (const SlotDef& slot : kernels.def->inputs) {
    AddInputs(*step, op.input(slot.name));
    step->slot_end.push_back(static_cast<uint32_t>(step->inputs.size()));
  }
  for (const SlotDef& slot : kernels.def->outputs) {
    const std::vector<std::string>& names = op.output(slot.name);
    for (const std::string& name : names) AddOutput(*step, name);
    // The kernel gives one all the same.
    if (names.empty() && !slot.variadic) step->outputs.push_back(kNothing);
  }
  steps_->push_back(std::move(step));
  return OkStatus();
}

Status ScheduleMaker::AddBackward(const Operation& op, const Op& kernels) {
  const OpDef& def = *kernels.def;
  ASSIGN_OR_RETURN(std::unique_ptr<KernelStep> step, Begin(op, kernels));
  step->backward = true;
  for (const GradSource& use : def.grad.uses) {
    switch (use.kind) {
      case GradSource::kInput:
        AddInputs(*step, op.input(def.inputs[use.slot].name));
        break;
      case GradSource::kOutput:
        AddInputs(*step, op.input(def.outputs[use.slot].name));
        break;
      case GradSource::kOutputGrad:
        AddInputs(*step, op.input(def.outputs[use.slot].name + "@GRAD"));
        break;
    }
    step->slot_end.push_back(static_cast<uint32_t>(step->inputs.size()));
  }
  step->needs = 0;
  for (int slot : def.grad.gives) {
    const SlotDef& input = def.inputs[slot];
    const std::vector<std::string>& names = op.output(input.name + "@GRAD");
    for (const std::string& name : names) {
      const size_t position = step->outputs.size();
      if (name != kEmpty && position < 64) {
        step->needs |= uint64_t{1} << position;
      }
      AddOutput(*step, name);
    }
    if (names.empty() && !input.variadic) step->outputs.push_back(kNothing);
  }
  steps_->push_back(std::move(step));
  return OkStatus();
}

Status ScheduleMaker::AddExtension(const Operation& op, Extension& extension) {
  Result<std::unique_ptr<ExtensionStep>> prepared = extension.Prepare(op);
  if (!prepared.ok()) return prepared.status().WithContext(Where(op));
  auto step = std::make_unique<ExtensionCall>(*std::move(prepared));
  step->what = Where(op);
  for (const program::Slot& slot : op.inputs) AddInputs(*step, slot.arguments);
  for (const program::Slot& slot : op.outputs) {
    for (const std::string& name : slot.arguments) AddOutput(*step, name);
  }
  for (Place place : step->outputs) {
    if (Contains(step->inputs, place)) step->in_place.push_back(place);
  }
  steps_->push_back(std::move(step));
  return OkStatus();
}

Status ScheduleMaker::AddOptimizer(const Operation& op, const OpDef& def,
                                   const OptimizerOp& optimizer) {
  auto arguments = [&](int slot) -> const std::vector<std::string>& {
    static const std::vector<std::string> kNone;
    return slot < 0 ? kNone : op.input(def.inputs[slot].name);
  };
  const size_t num_parameters = arguments(optimizer.param).size();
  for (size_t i = 0; i < num_parameters; ++i) {
    auto place = [&](int slot) {
      const std::vector<std::string>& names = arguments(slot);
      if (names.empty()) return kNothing;
      return PlaceOf(names[i < names.size() ? i : 0]);
    };
    OptimizerStep::Update update{
        .values = place(optimizer.param),
        .gradient = place(optimizer.gradient),
        .learning_rate = place(optimizer.learning_rate),
        .skip = place(optimizer.skip),
        .state = {},
        .powers = {},
        .decay = optimizer.decay_of(i),
        .transform = optimizer.transform,
        .rate_factor = optimizer.rate_factor,
        .advances_powers = optimizer.advances_powers};
    for (size_t k = 0; k < update.state.size(); ++k) {
      update.state[k] = place(optimizer.state[k]);
    }
    for (size_t k = 0; k < update.powers.size(); ++k) {
      update.powers[k] = place(optimizer.powers[k]);
    }
    // Those next to each other go together, unless one would see what another
    // one did.
    auto* last = steps_->empty()
                     ? nullptr
                     : dynamic_cast<OptimizerStep*>(steps_->back().get());
    if (last == nullptr || !(last->rule() == optimizer.rule) ||
        last->updates().back().skip != update.skip ||
        last->Updates(update.values)) {
      auto step = std::make_unique<OptimizerStep>(optimizer.rule);
      step->what = Where(op);
      last = step.get();
      steps_->push_back(std::move(step));
    }
    for (Place place : PlacesOf(update)) {
      Read(schedule_->names_[place], Where(op));
    }
    for (Place place : ChangedBy(update)) {
      written_.insert(schedule_->names_[place]);
    }
    AddUpdate(*last, update);
  }
  return OkStatus();
}

Result<Steps> ScheduleMaker::MakeBody(const Operation& op) {
  const std::vector<int> bodies = program::BodiesOf(op);
  if (bodies.size() != 1 || bodies[0] <= 0 ||
      static_cast<size_t>(bodies[0]) >= program_.num_blocks()) {
    return InvalidArgument(Where(op), ": there is no body to run");
  }
  Steps body;
  const program::Block* outer_block =
      std::exchange(block_, &program_.block(static_cast<size_t>(bodies[0])));
  Steps* outer_steps = std::exchange(steps_, &body);
  Status status;
  for (size_t i = 0; status.ok() && i < block_->num_ops(); ++i) {
    status = Add(block_->op(i));
  }
  block_ = outer_block;
  steps_ = outer_steps;
  RETURN_IF_ERROR(status);
  return body;
}

void ScheduleMaker::Cover(Step& step, const Steps& body) {
  for (const std::unique_ptr<Step>& inner : body) {
    step.inputs.insert(step.inputs.end(), inner->inputs.begin(),
                       inner->inputs.end());
    step.outputs.insert(step.outputs.end(), inner->outputs.begin(),
                        inner->outputs.end());
    step.in_place.insert(step.in_place.end(), inner->in_place.begin(),
                         inner->in_place.end());
  }
}

Status ScheduleMaker::AddConditional(const Operation& op) {
  std::vector<Place> condition;
  for (const std::string& name : op.input("Cond")) {
    Read(name, Where(op));
    condition.push_back(PlaceOf(name));
  }
  if (condition.empty()) {
    return InvalidArgument(Where(op), ": Cond is missing");
  }
  ASSIGN_OR_RETURN(Steps body, MakeBody(op));
  auto step = std::make_unique<ConditionalStep>(
      condition, program::AttrOr(op, "is_scalar_condition", true));
  step->what = Where(op);
  step->inputs = std::move(condition);
  Cover(*step, body);
  step->set_body(std::move(body));
  steps_->push_back(std::move(step));
  return OkStatus();
}

Status ScheduleMaker::AddWhile(const Operation& op) {
  const std::vector<std::string>& condition = op.input("Condition");
  if (condition.size() != 1) {
    return InvalidArgument(Where(op), ": Condition is missing");
  }
  Read(condition[0], Where(op));
  ASSIGN_OR_RETURN(Steps body, MakeBody(op));
  auto step = std::make_unique<WhileStep>(PlaceOf(condition[0]));
  step->what = Where(op);
  step->inputs = {PlaceOf(condition[0])};
  Cover(*step, body);
  step->set_body(std::move(body));
  steps_->push_back(std::move(step));
  return OkStatus();
}

// Choices and arrays. False for another kind of operation.
bool ScheduleMaker::AddSimpleControl(const Operation& op) {
  std::unique_ptr<Step> step;
  std::vector<std::string> slots;
  if (op.type == "select_input") {
    step = std::make_unique<SelectInputStep>();
    slots = {"X", "Mask"};
  } else if (op.type == "select_output") {
    step = std::make_unique<SelectOutputStep>();
    slots = {"X", "Mask"};
  } else if (op.type == "write_to_array") {
    step = std::make_unique<WriteArrayStep>();
    slots = {"X", "I"};
  } else if (op.type == "read_from_array") {
    step = std::make_unique<ReadArrayStep>();
    slots = {"X", "I"};
  } else if (op.type == "add_to_array") {
    step = std::make_unique<AddToArrayStep>();
    slots = {"X", "I", "Array"};
  } else if (op.type == "take_from_array") {
    step = std::make_unique<TakeFromArrayStep>();
    slots = {"Array", "I", "Like"};
  } else if (op.type == "lod_array_length") {
    step = std::make_unique<ArrayLengthStep>();
    slots = {"X"};
  } else {
    return false;
  }
  step->what = Where(op);
  // Neither arrays nor what goes into them must have a value.
  for (const std::string& slot : slots) {
    for (const std::string& name : op.input(slot)) {
      step->inputs.push_back(PlaceOf(name));
      if (slot != "X" && slot != "Array") Read(name, step->what);
    }
  }
  for (const std::string& name : op.output("Out")) AddOutput(*step, name);
  steps_->push_back(std::move(step));
  return true;
}

bool ScheduleMaker::IsLarge(Place parameter) const {
  // Below this the memory of a gradient is not worth a pass of its own.
  constexpr int64_t kLarge = 64 << 10;  // elements
  const Variable* variable = block_->Find(schedule_->names_[parameter]);
  if (variable == nullptr) return false;
  int64_t numel = 1;
  for (int64_t dim : variable->type.dims) numel *= dim;
  return numel >= kLarge;
}

// A large gradient is applied as soon as it is there, so that its memory is
// free for the next one; what is small stays in one pass.
void ScheduleMaker::UpdateEarly() {
  Steps& steps = schedule_->steps_;
  std::vector<Steps> before(steps.size());  // what comes before each step
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto* step = dynamic_cast<const OptimizerStep*>(steps[i].get());
    if (step == nullptr) continue;
    auto rest = std::make_unique<OptimizerStep>(step->rule());
    rest->what = step->what;
    for (const OptimizerStep::Update& update : step->updates()) {
      size_t at = i;
      if (IsLarge(update.values)) {
        while (at > 0 && !Conflicts(*steps[at - 1], update)) --at;
      }
      if (at == i) {
        AddUpdate(*rest, update);
        continue;
      }
      auto early = std::make_unique<OptimizerStep>(step->rule());
      early->what = step->what;
      AddUpdate(*early, update);
      before[at].push_back(std::move(early));
    }
    steps[i] = std::move(rest);
  }
  Steps all;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (std::unique_ptr<Step>& early : before[i]) {
      all.push_back(std::move(early));
    }
    const auto* step = dynamic_cast<const OptimizerStep*>(steps[i].get());
    if (step != nullptr && step->updates().empty()) continue;
    all.push_back(std::move(steps[i]));
  }
  steps = std::move(all);
}

void ScheduleMaker::AddKept() {
  for (const auto& [key, place] : places_) {
    const auto& [home, name] = key;
    if (home != 0) continue;
    const Variable* variable = block_->Find(name);
    const bool persistable = variable != nullptr && variable->persistable;
    auto reader = read_first_.find(name);
    const bool read_first = reader != read_first_.end();
    // What is read but never made can only come from the scope.
    if ((!persistable && !read_first) || fed_.contains(name)) continue;
    schedule_->kept_.push_back(
        {.place = place,
         .name = name,
         .is_data = variable != nullptr && variable->is_data,
         .read_first = read_first,
         .written = persistable && written_.contains(name),
         .reader = read_first ? reader->second : ""});
  }
}

void ScheduleMaker::AddLastUses() {
  std::set<Place> needed(schedule_->fetch_places_.begin(),
                         schedule_->fetch_places_.end());
  for (const Schedule::Kept& kept : schedule_->kept_) {
    needed.insert(kept.place);
  }
  schedule_->last_uses_.resize(schedule_->steps_.size());
  for (size_t i = schedule_->steps_.size(); i-- > 0;) {
    const Step& step = *schedule_->steps_[i];
    for (const std::vector<Place>* places : {&step.inputs, &step.outputs}) {
      for (Place place : *places) {
        if (place != kNothing && needed.insert(place).second) {
          schedule_->last_uses_[i].push_back(place);
        }
      }
    }
  }
}

void ScheduleMaker::MarkChangedFeeds() {
  for (Place feed : schedule_->feed_places_) {
    schedule_->feed_changes_.push_back(std::any_of(
        schedule_->steps_.begin(), schedule_->steps_.end(),
        [&](const auto& step) { return Contains(step->in_place, feed); }));
  }
}

// Whatever outlives a step that changes memory may be a view of that memory,
// and must then be cut loose first.
void ScheduleMaker::AddSharers() {
  Schedule& s = *schedule_;
  s.sharers_.resize(s.steps_.size());
  std::set<Place> live(s.fetch_places_.begin(), s.fetch_places_.end());
  for (size_t i = s.steps_.size(); i-- > 0;) {
    const Step& step = *s.steps_[i];
    if (!step.in_place.empty()) {
      for (Place place : live) {
        if (!Contains(step.in_place, place)) s.sharers_[i].push_back(place);
      }
    }
    for (Place place : step.outputs) {
      if (place != kNothing) live.erase(place);
    }
    live.insert(step.inputs.begin(), step.inputs.end());
  }
}

}  // namespace fleet::exec
