// SPDX-License-Identifier: Apache-2.0
#include "fleet/program/lod.h"

#include <algorithm>
#include <array>
#include <vector>

namespace fleet::program {
namespace {

// The slot whose offsets are in slot `lod_slot`: YLod -> Y, Lod -> X.
std::string OwnerOf(std::string_view lod_slot) {
  lod_slot.remove_suffix(3);
  return lod_slot.empty() ? "X" : std::string(lod_slot);
}

// Ops on sequences whose result is cut as this input is.
std::string_view KeptFrom(std::string_view type) {
  constexpr std::array kFromX = {"sequence_softmax", "sequence_reverse",
                                 "sequence_conv", "sequence_enumerate",
                                 "row_conv"};
  if (std::find(kFromX.begin(), kFromX.end(), type) != kFromX.end()) return "X";
  if (type == "crf_decoding") return "Emission";
  return type == "sequence_expand_as" ? "Y" : "";
}

// Ops whose result may have as many rows as their input, but not those rows.
bool MixesRows(const Operation& op) {
  constexpr std::array kMixers = {
      "transpose2",  "gather", "gather_nd",      "scatter",     "unique",
      "where_index", "shape",  "masked_select",  "roll",        "flip",
      "argsort",     "range",  "stack",          "unstack",     "expand_v2",
      "tile",        "unfold", "scatter_nd_add", "index_select"};
  if (std::find(kMixers.begin(), kMixers.end(), op.type) != kMixers.end()) {
    return true;
  }
  if (op.type.starts_with("reduce_") || op.type.starts_with("c_")) return true;
  auto first_is = [&](const char* name, int64_t value) {
    const AttrValue* attr = op.attr(name);
    if (attr == nullptr) return false;
    if (const auto* one = std::get_if<int64_t>(&attr->value)) {
      return *one == value;
    }
    const auto* list = std::get_if<std::vector<int64_t>>(&attr->value);
    return list != nullptr && !list->empty() && list->front() == value;
  };
  if (op.type == "reshape2") return !first_is("shape", 0);
  if (op.type == "concat" || op.type == "split") {
    return op.attr("axis") == nullptr || first_is("axis", 0);
  }
  if (op.type == "slice" || op.type == "strided_slice") {
    return first_is("axes", 0);
  }
  return false;
}

// The first variable among the inputs that is a sequence.
const Variable* FirstSequence(const Block& block, const Operation& op) {
  for (const Slot& slot : op.inputs) {
    for (const std::string& name : slot.arguments) {
      const Variable* variable = block.Find(name);
      if (variable != nullptr && !variable->lod.empty()) return variable;
    }
  }
  return nullptr;
}

void SetLod(Variable& variable, const std::string& lod) {
  variable.lod = lod;
  variable.lod_level = lod.empty() ? 0 : 1;
}

// Whether the definition has a slot for offsets.
bool SeesSequences(const OpDef& def) {
  auto has = [](const std::vector<SlotDef>& slots) {
    return std::any_of(slots.begin(), slots.end(), [](const SlotDef& slot) {
      return IsLodSlot(slot.name);
    });
  };
  return has(def.inputs) || has(def.outputs);
}

void SetOutputs(Block& block, const Operation& op, const std::string& lod) {
  for (const Slot& slot : op.outputs) {
    if (IsLodSlot(slot.name)) continue;
    for (const std::string& name : slot.arguments) {
      if (Variable* variable = block.Find(name)) SetLod(*variable, lod);
    }
  }
}

}  // namespace

void MakeSequence(Block& block, const std::string& name) {
  Variable* variable = block.FindHere(name);
  FLEET_CHECK(variable != nullptr, "there is no variable ", name);
  SetLod(*variable, name + std::string(kLodSuffix));
  block.AddVariable({.name = variable->lod,
                     .type = {DType::kInt64, {-1}},
                     .stop_gradient = true,
                     .is_data = variable->is_data});
}

Status CompleteLod(const OpRegistry& registry, Block& block, Operation& op) {
  const OpDef* def = registry.Find(op.type);
  if (def == nullptr || !SeesSequences(*def)) return OkStatus();
  for (const SlotDef& slot : def->inputs) {
    if (!IsLodSlot(slot.name) || !op.input(slot.name).empty()) continue;
    Slot offsets{slot.name, {}};
    for (const std::string& name : op.input(OwnerOf(slot.name))) {
      const Variable* variable = block.Find(name);
      if (variable != nullptr && !variable->lod.empty()) {
        offsets.arguments.push_back(variable->lod);
      } else if (!slot.optional) {
        return InvalidArgument(
            op.made_at, op.made_at.empty() ? "" : ": ", op.type, ": ", name,
            " is no sequence: it has lod_level 0, but must come from data "
            "with lod_level=1");
      }
    }
    std::erase_if(op.inputs,
                  [&](const Slot& old) { return old.name == slot.name; });
    if (!offsets.arguments.empty()) op.inputs.push_back(std::move(offsets));
  }
  for (const SlotDef& slot : def->outputs) {
    if (!IsLodSlot(slot.name) || !op.output(slot.name).empty()) continue;
    const std::string owner = OwnerOf(slot.name);
    if (op.output(owner).empty()) continue;
    std::erase_if(op.outputs,
                  [&](const Slot& old) { return old.name == slot.name; });
    op.outputs.push_back(
        {slot.name, {op.output(owner)[0] + std::string(kLodSuffix)}});
  }
  return OkStatus();
}

void PassLodOn(const OpRegistry& registry, Block& block, const Operation& op) {
  const OpDef* def = registry.Find(op.type);
  if (def == nullptr) return;
  if (SeesSequences(*def)) {
    const std::string_view from = KeptFrom(op.type);
    std::string lod;
    if (!from.empty() && !op.input(from).empty()) {
      const Variable* variable = block.Find(op.input(from)[0]);
      if (variable != nullptr) lod = variable->lod;
    }
    if (!op.output("OutLod").empty()) {
      lod = op.output("OutLod")[0];
      if (Variable* offsets = block.Find(lod)) offsets->stop_gradient = true;
    }
    SetOutputs(block, op, lod);
    return;
  }
  const Variable* from = FirstSequence(block, op);
  if (from == nullptr || from->type.dims.empty() || MixesRows(op)) return;
  const std::string lod = from->lod;
  const int64_t rows = from->type.dims[0];
  for (const Slot& slot : op.outputs) {
    for (const std::string& name : slot.arguments) {
      Variable* variable = block.Find(name);
      if (variable != nullptr && !variable->persistable &&
          !variable->type.dims.empty() && variable->type.dims[0] == rows) {
        SetLod(*variable, lod);
      }
    }
  }
}

Status RestoreLod(const OpRegistry& registry, Program& program) {
  Block& main = program.block(0);
  std::vector<std::string> sequences;
  std::vector<std::string> made;
  for (size_t i = 0; i < main.num_ops(); ++i) {
    if (main.op(i).type == "feed") continue;
    for (const Slot& slot : main.op(i).outputs) {
      made.insert(made.end(), slot.arguments.begin(), slot.arguments.end());
    }
  }
  for (const Variable* variable : main.variables()) {
    const bool is_made =
        std::find(made.begin(), made.end(), variable->name) != made.end();
    if (variable->lod_level > 0 && variable->lod.empty() && !is_made &&
        variable->kind == VariableKind::kTensor && !variable->persistable) {
      sequences.push_back(variable->name);
    }
  }
  if (sequences.empty()) return OkStatus();
  for (const std::string& name : sequences) MakeSequence(main, name);
  for (size_t i = 0; i < main.num_ops(); ++i) {
    Operation& op = main.op(i);
    RETURN_IF_ERROR(CompleteLod(registry, main, op));
    for (const std::string& name : op.output("OutLod")) {
      main.AddVariable(
          {.name = name, .type = {DType::kInt64, {-1}}, .stop_gradient = true});
    }
    PassLodOn(registry, main, op);
  }
  return OkStatus();
}

}  // namespace fleet::program
