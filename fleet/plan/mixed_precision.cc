// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/mixed_precision.h"

#include <map>
#include <utility>
#include <vector>

#include "fleet/program/control.h"
#include "fleet/program/op_role.h"

namespace fleet::plan {
namespace {

using program::AttrKind;
using program::AttrValue;
using program::Block;
using program::Computes;
using program::DType;
using program::OpDef;
using program::Operation;
using program::OpRegistry;
using program::OpRole;
using program::Program;
using program::Slot;
using program::Slots;
using program::Uses;
using program::Variable;
using program::VariableKind;

// Normalisations keep their scale, bias and statistics in float32.
bool StaysFloat32(const Operation& op, const std::string& slot) {
  return (op.type == "batch_norm" || op.type == "instance_norm" ||
          op.type == "layer_norm" || op.type == "group_norm") &&
         slot != "X";
}

// Learning rates and updates.
bool IsOfUpdates(const Operation& op) {
  return (static_cast<int>(RoleOf(op)) &
          (static_cast<int>(OpRole::kOptimize) |
           static_cast<int>(OpRole::kSchedule))) != 0;
}

class Pass {
 public:
  Pass(const OpRegistry& registry, Program& program,
       const MixedPrecision& options)
      : registry_(registry),
        program_(program),
        block_(program.block(0)),
        options_(options),
        suffix_(options.dtype == DType::kFloat16 ? ".cast_fp16"
                                                 : ".cast_bf16") {}

  Result<MixedPrecisionResult> Run() {
    if (options_.level == program::AmpLevel::kNone) return std::move(result_);
    if (options_.dtype != DType::kFloat16 &&
        options_.dtype != DType::kBfloat16) {
      return InvalidArgument(
          "mixed precision: dtype must be float16 or bfloat16, not ",
          Name(options_.dtype));
    }
    for (size_t i = 0; i < block_.num_ops(); ++i) {
      const Operation& op = block_.op(i);
      const int role = static_cast<int>(RoleOf(op));
      if ((role & static_cast<int>(OpRole::kBackward)) != 0) {
        return FailedPrecondition(
            "mixed precision: the program has its backward already (", op.type,
            "); casts are put in before");
      }
      for (const std::string& name : UsesOf(program_, op).writes) {
        ++num_writes_[name];
      }
    }
    for (at_ = 0; at_ < block_.num_ops(); ++at_) {
      RETURN_IF_ERROR(Rewrite());
    }
    if (options_.short_parameters) ShortenParameters();
    program_.Touch();
    return std::move(result_);
  }

 private:
  enum class Kind {
    kFree,     // from a feed, a parameter, a constant: may be either
    kShort,    // made in the short type
    kFloat32,  // made by an operation that computes in float32
  };

  DType TypeOf(const std::string& name) const {
    const Variable* variable = block_.Find(name);
    if (variable == nullptr || (variable->kind != VariableKind::kTensor &&
                                variable->kind != VariableKind::kSelectedRows))
      return DType::kNone;
    return variable->type.dtype;
  }

  Kind KindOf(const std::string& name) const {
    auto found = kinds_.find(name);
    return found == kinds_.end() ? Kind::kFree : found->second;
  }

  bool IsInScope(const Operation& op) const {
    if (options_.scope.empty()) return true;
    const AttrValue* path = op.attr("op_namescope");
    const auto* text =
        path == nullptr ? nullptr : std::get_if<std::string>(&path->value);
    return text != nullptr && text->find(options_.scope) != std::string::npos;
  }

  // How operation `op` computes: by the lists, if nothing speaks against the
  // short type.
  Kind Choose(const Operation& op) const {
    bool has_float = false, has_short = false, has_float32 = false;
    for (const Slot& slot : op.inputs) {
      for (const std::string& name : slot.arguments) {
        const DType type = TypeOf(name);
        if (type == DType::kFloat64) return Kind::kFloat32;
        if (!IsFloating(type)) continue;
        has_float = true;
        has_short |= KindOf(name) == Kind::kShort;
        has_float32 |= KindOf(name) == Kind::kFloat32;
      }
    }
    if (!has_float) return Kind::kFree;
    const OpDef* def = registry_.Find(op.type);
    if (def == nullptr || def->external || IsOfUpdates(op) || !IsInScope(op)) {
      return Kind::kFloat32;
    }
    for (const Slots* slots : {&op.inputs, &op.outputs}) {
      for (const Slot& slot : *slots) {
        for (const std::string& name : slot.arguments) {
          if (options_.black_variables.contains(name)) return Kind::kFloat32;
        }
      }
    }
    for (const Slot& slot : op.outputs) {
      if (StaysFloat32(op, slot.name == "Y" ? "X" : slot.name)) continue;
      for (const std::string& name : slot.arguments) {
        const Variable* variable = block_.Find(name);
        auto writes = num_writes_.find(name);
        if (variable != nullptr &&
            (variable->persistable || writes->second > 1)) {
          return Kind::kFloat32;
        }
      }
    }
    switch (AtLevel(program::DefinedPrecisions().Of(op.type, options_.custom),
                    options_.level, options_.promote)) {
      case Computes::kShort:
        return Kind::kShort;
      case Computes::kGoesAlong:
        if (has_float32) return Kind::kFloat32;
        return has_short ? Kind::kShort : Kind::kFree;
      case Computes::kFloat32:
        break;
    }
    return Kind::kFloat32;
  }

  // The variable that holds `name` as `to`, made before the operation at hand
  // if it is not there yet.
  std::string Cast(const std::string& name, DType to) {
    auto [entry, is_new] = casts_.try_emplace({name, to});
    if (!is_new) return entry->second;
    std::string cast =
        name + (to == DType::kFloat32 ? std::string(".cast_fp32") : suffix_);
    while (block_.Find(cast) != nullptr) cast += "_";
    entry->second = cast;
    Variable variable = *block_.Find(name);
    const DType from = variable.type.dtype;
    variable.name = cast;
    variable.type.dtype = to;
    variable.persistable = variable.is_parameter = variable.is_data = false;
    block_.AddVariable(std::move(variable));
    Operation op{
        .type = "cast",
        .inputs = {{"X", {name}}},
        .outputs = {{"Out", {cast}}},
        .attrs = {{"in_dtype", {AttrKind::kInt, static_cast<int64_t>(from)}},
                  {"out_dtype", {AttrKind::kInt, static_cast<int64_t>(to)}}},
        .made_at = block_.op(at_).made_at};
    block_.Insert(at_++, std::move(op));
    kinds_[cast] = to == DType::kFloat32 ? Kind::kFloat32 : Kind::kShort;
    ++result_.num_casts;
    return cast;
  }

  // Gives the operation at hand inputs of type `to` in place of `from`.
  void CastInputs(DType from, DType to) {
    Operation& op = block_.op(at_);  // stays where it is when others come in
    for (Slot& slot : op.inputs) {
      if (to != DType::kFloat32 && StaysFloat32(op, slot.name)) continue;
      for (std::string& name : slot.arguments) {
        if (TypeOf(name) == from) name = Cast(name, to);
      }
    }
  }

  // Removes the casts that were put in at `begin` and behind it.
  void TakeBack(size_t begin) {
    for (size_t i = begin; i < at_; ++i) {
      const std::string cast = block_.op(i).output("Out").front();
      std::erase_if(casts_,
                    [&](const auto& entry) { return entry.second == cast; });
      kinds_.erase(cast);
      block_.RemoveVariable(cast);
      --result_.num_casts;
    }
    block_.Remove(begin, at_);
    at_ = begin;
  }

  // What bodies read keeps its type.
  void CastForBodies() {
    const Uses uses = UsesOf(program_, block_.op(at_));
    for (const std::string& name : uses.reads) {
      if (KindOf(name) != Kind::kShort) continue;
      const std::string cast = Cast(name, DType::kFloat32);
      RenameIn(program_, block_, at_, at_ + 1, name, cast);
    }
  }

  Status Rewrite() {
    Operation& op = block_.op(at_);
    if (op.type == "feed" || op.type == "fetch") return OkStatus();
    if (!BodiesOf(op).empty()) {
      CastForBodies();
      Mark(op, Kind::kFloat32);
      return OkStatus();
    }
    if (op.type == "cast") {
      // What the user casts has the type that the user says.
      op.attrs["in_dtype"] = {
          AttrKind::kInt, static_cast<int64_t>(TypeOf(op.input("X").front()))};
      Mark(op, TypeOf(op.output("Out").front()) == options_.dtype
                   ? Kind::kShort
                   : Kind::kFree);
      return OkStatus();
    }
    Kind kind = Choose(op);
    if (kind == Kind::kShort) {
      const Slots inputs = op.inputs;
      const size_t begin = at_;
      CastInputs(DType::kFloat32, options_.dtype);
      if (!block_.InferTypes(registry_, op).ok()) {
        op.inputs = inputs;
        TakeBack(begin);
        kind = Kind::kFloat32;
      }
    }
    if (kind == Kind::kFloat32) {
      CastInputs(options_.dtype, DType::kFloat32);
      if (registry_.Find(op.type) != nullptr) {
        RETURN_IF_ERROR(block_.InferTypes(registry_, op));
      }
    }
    Mark(op, kind);
    return OkStatus();
  }

  void Mark(const Operation& op, Kind kind) {
    for (const std::string& name : UsesOf(program_, op).writes) {
      kinds_[name] = kind;
      if (kind == Kind::kShort && TypeOf(name) != options_.dtype) {
        kinds_[name] = Kind::kFree;  // integers, statistics
      }
      casts_.erase({name, DType::kFloat32});
      casts_.erase({name, options_.dtype});
    }
  }

  // Where a cast is all that reads a parameter, the parameter takes its place.
  void ShortenParameters() {
    std::map<std::string, int> num_reads;
    for (size_t i = 0; i < block_.num_ops(); ++i) {
      for (const std::string& name : UsesOf(program_, block_.op(i)).reads) {
        ++num_reads[name];
      }
    }
    for (size_t i = 0; i < block_.num_ops();) {
      const Operation& op = block_.op(i);
      Variable* parameter =
          op.type == "cast" ? block_.Find(op.input("X").front()) : nullptr;
      if (parameter == nullptr || !parameter->is_parameter ||
          num_reads[parameter->name] != 1 ||
          TypeOf(op.output("Out").front()) != options_.dtype) {
        ++i;
        continue;
      }
      const std::string cast = op.output("Out").front();
      block_.Remove(i, i + 1);
      RenameIn(program_, block_, i, block_.num_ops(), cast, parameter->name);
      block_.RemoveVariable(cast);
      parameter->type.dtype = options_.dtype;
      result_.parameters.insert(parameter->name);
      --result_.num_casts;
    }
  }

  const OpRegistry& registry_;
  Program& program_;
  Block& block_;
  const MixedPrecision& options_;
  const std::string suffix_;
  size_t at_ = 0;  // of the operation at hand
  std::map<std::string, int> num_writes_;
  std::map<std::string, Kind> kinds_;  // of what operations made
  std::map<std::pair<std::string, DType>, std::string> casts_;
  MixedPrecisionResult result_;
};

}  // namespace

Result<MixedPrecisionResult> UseMixedPrecision(const OpRegistry& registry,
                                               Program& program,
                                               const MixedPrecision& options) {
  return Pass(registry, program, options).Run();
}

}  // namespace fleet::plan
