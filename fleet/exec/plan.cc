// SPDX-License-Identifier: Apache-2.0
#include "fleet/exec/plan.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "fleet/exec/direct.h"
#include "fleet/exec/plan_layout.h"
#include "fleet/exec/plan_memory.h"
#include "fleet/ops/aten_error.h"

namespace fleet::exec {
namespace {

using program::TensorType;

bool HasType(const at::Tensor& tensor, const TensorType& type) {
  return tensor.defined() && tensor.layout() == at::kStrided &&
         tensor.device().is_cpu() &&
         tensor.scalar_type() == ops::ToScalarType(type.dtype) &&
         tensor.sizes() == at::IntArrayRef(type.dims);
}

int64_t ByteSize(const Value& value) {
  return value.numel() * static_cast<int64_t>(c10::elementSize(
                             ops::ToScalarType(value.type.dtype)));
}

// Whether the shapes of a forward kernel's outputs follow from those of its
// inputs, as they were seen.
bool ShapesFollow(Graph& graph, const Node& node) {
  const KernelStep& kernel = *node.kernel;
  if (kernel.backward) return true;  // they are those of forward values
  std::vector<std::vector<TensorType>> inputs;
  size_t next = 0;
  for (uint32_t end : kernel.slot_end) {
    std::vector<TensorType>& slot = inputs.emplace_back();
    for (; next < end; ++next) {
      if (node.inputs[next] == kNone) return false;
      slot.push_back(graph.values[node.inputs[next]].type);
    }
  }
  auto types = kernel.def().InferTypes(
      program::OpTypes(kernel.def(), std::move(inputs), kernel.attrs));
  if (!types.ok()) return false;
  for (size_t i = 0; i < node.outputs.size() && i < types->size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    Value& value = graph.values[node.outputs[i]];
    if (!value.dense || value.type.dims == (*types)[i].dims) continue;
    // An output that is empty when it has no meaning.
    if (value.numel() != 0) return false;
    value.dense = false;
  }
  return true;
}

// Memory that an extension has for a value, which lives from node to node.
struct Offer {
  int value;
  int first, last;
  at::Tensor home;
};

bool Collide(const Offer& a, const Offer& b) {
  auto range = [](const Offer& offer) {
    const auto* begin = static_cast<const char*>(offer.home.const_data_ptr());
    return std::pair(begin, begin + offer.home.nbytes());
  };
  const auto [a_begin, a_end] = range(a);
  const auto [b_begin, b_end] = range(b);
  return a_begin < b_end && b_begin < a_end && a.first <= b.last &&
         b.first <= a.last;
}

}  // namespace

std::unique_ptr<Plan> Plan::Make(const PlanSource& source) {
  std::unique_ptr<Plan> plan(new Plan());
  return plan->Build(source) ? std::move(plan) : nullptr;
}

bool Plan::Build(const PlanSource& source) {
  if (!AddNodes(source)) return false;
  names_ = source.names;
  frame_.resize(names_.size());
  graph_.CountReaders();
  if (source.fusing) {
    std::vector<int*> plain;
    for (int& value : fetches_) plain.push_back(&value);
    for (auto& [value, index] : stores_) plain.push_back(&value);
    ChooseLayouts(graph_, plain);
  }
  MakeDirectForms(graph_, source.fusing);
  memory_.assign(graph_.values.size(), nullptr);
  tensors_.resize(graph_.values.size());
  followers_.resize(graph_.values.size());
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const int home = graph_.Home(static_cast<int>(v));
    if (home != static_cast<int>(v)) {
      followers_[home].push_back(static_cast<int>(v));
    }
  }
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (!graph_.nodes[i].gone) run_order_.push_back(static_cast<int>(i));
  }
  AskForHomes();
  PlaceInArena();
  return true;
}

// Turns steps into nodes, and places into values that are written once. What a
// step changes in place stays one value, which nobody may share.
bool Plan::AddNodes(const PlanSource& source) {
  std::vector<int> current(source.names.size(), kNone);
  auto add_value = [&](Place place, const PlanSource::Type& type,
                       Value::Origin origin, int maker) {
    Value value;
    value.place = place;
    value.dense = type.has_value();
    if (type) value.type = *type;
    value.origin = origin;
    value.maker = maker;
    graph_.values.push_back(std::move(value));
    current[place] = static_cast<int>(graph_.values.size()) - 1;
    return current[place];
  };
  for (size_t i = 0; i < source.feeds.size(); ++i) {
    if (!source.feed_types[i]) return false;
    feeds_.push_back(
        add_value(source.feeds[i], source.feed_types[i], Value::kFeed, kNone));
  }
  for (size_t i = 0; i < source.kept.size(); ++i) {
    if (!source.kept_types[i]) return false;
    kept_.push_back(add_value(source.kept[i].place, source.kept_types[i],
                              Value::kKept, kNone));
    graph_.values.back().pinned = true;
  }
  for (size_t s = 0; s < source.steps.size(); ++s) {
    Step& step = *source.steps[s];
    Node node;
    node.step = &step;
    if (!step.plannable()) return false;
    node.kernel = dynamic_cast<KernelStep*>(&step);
    for (Place place : step.inputs) {
      node.inputs.push_back(place == kNothing ? kNone : current[place]);
    }
    for (int value : node.inputs) {
      if (value != kNone) node.reads.push_back(value);
    }
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      const Place place = step.outputs[i];
      if (place == kNothing) {
        node.outputs.push_back(kNone);
      } else if (std::find(step.in_place.begin(), step.in_place.end(), place) !=
                 step.in_place.end()) {
        graph_.values[current[place]].pinned = true;
        node.outputs.push_back(current[place]);
      } else {
        node.outputs.push_back(add_value(place, source.output_types[s][i],
                                         Value::kMade, static_cast<int>(s)));
      }
    }
    if (node.kernel != nullptr && !ShapesFollow(graph_, node)) return false;
    graph_.nodes.push_back(std::move(node));
  }
  for (Place place : source.fetches) {
    if (current[place] == kNone || !graph_.values[current[place]].dense) {
      return false;
    }
    fetches_.push_back(current[place]);
    graph_.values[current[place]].needed_after = true;
  }
  for (size_t i = 0; i < source.kept.size(); ++i) {
    const int last = current[source.kept[i].place];
    if (!source.kept[i].written || last == kept_[i]) continue;
    const Value& value = graph_.values[last];
    if (!value.dense || !(value.type == graph_.values[kept_[i]].type)) {
      return false;
    }
    stores_.emplace_back(last, i);
    graph_.values[last].needed_after = true;
  }
  return true;
}

// By value: the node that uses its memory last, by itself or by a follower.
std::vector<int> Plan::LastUses() const {
  std::vector<int> last(graph_.values.size(), kNone);
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const Value& value = graph_.values[v];
    int& until = last[graph_.Home(static_cast<int>(v))];
    until = std::max(until, value.maker);
    for (int reader : value.readers) until = std::max(until, reader);
    if (value.needed_after) until = static_cast<int>(graph_.nodes.size());
  }
  return last;
}

// Extensions may have memory of their own for what they are given. Several may
// offer the same: then it serves values that do not live at the same time, and
// the others stay where the executor puts them.
void Plan::AskForHomes() {
  const std::vector<int> last = LastUses();
  std::vector<Offer> offers;
  for (Node& node : graph_.nodes) {
    auto* call = dynamic_cast<ExtensionCall*>(node.step);
    if (call == nullptr || node.direct) continue;
    std::vector<TensorType> types;
    for (int value : node.inputs) {
      types.push_back(value == kNone ? TensorType{}
                                     : graph_.values[value].type);
    }
    Result<std::vector<at::Tensor>> homes = call->extension().Homes(types);
    if (!homes.ok()) continue;
    for (size_t i = 0; i < homes->size() && i < node.inputs.size(); ++i) {
      const int value = node.inputs[i];
      const at::Tensor& home = (*homes)[i];
      if (value == kNone || !home.defined() || !home.is_contiguous() ||
          !HasType(home, graph_.values[value].type)) {
        continue;
      }
      offers.push_back(
          {value, graph_.values[value].maker, last[graph_.Home(value)], home});
    }
  }
  for (const Offer& offer : offers) {
    const Value& v = graph_.values[offer.value];
    const bool ours = v.origin == Value::kMade && v.memory_of == kNone &&
                      v.maker != kNone && graph_.nodes[v.maker].direct;
    if (!ours || tensors_[offer.value].defined()) continue;
    const bool taken =
        std::any_of(offers.begin(), offers.end(), [&](const Offer& other) {
          return other.value != offer.value && Collide(offer, other);
        });
    if (taken) continue;
    tensors_[offer.value] = offer.home;
    SetAddress(offer.value, offer.home.data_ptr());
  }
}

void Plan::SetAddress(int value, void* address) {
  memory_[value] = address;
  for (int follower : followers_[value]) memory_[follower] = address;
}

void Plan::PlaceInArena() {
  const int end = static_cast<int>(graph_.nodes.size());
  const std::vector<int> last = LastUses();
  std::vector<int> placed;
  std::vector<Lifetime> lives;
  releases_.resize(graph_.nodes.size());
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const Value& value = graph_.values[v];
    if (value.memory_of != kNone || memory_[v] != nullptr) continue;
    if (last[v] == kNone) continue;  // nobody asks for it
    if (value.origin == Value::kConstant) {
      placed.push_back(static_cast<int>(v));
      lives.push_back({ByteSize(value), 0, end});
    } else if (value.origin == Value::kMade && value.maker != kNone &&
               !graph_.nodes[value.maker].gone) {
      if (graph_.nodes[value.maker].direct) {
        placed.push_back(static_cast<int>(v));
        lives.push_back({ByteSize(value), value.maker, last[v]});
      } else if (last[v] < end) {
        releases_[last[v]].push_back(static_cast<int>(v));
      }
    }
  }
  MemoryLayout layout = LayOut(lives);
  arena_bytes_ = layout.byte_size;
  for (size_t i = 0; i < placed.size(); ++i) {
    in_arena_.emplace_back(placed[i], layout.offsets[i]);
  }
}

void Plan::TakeArena() {
  arena_ = at::empty({std::max<int64_t>(arena_bytes_, 1)}, at::kByte);
  auto* base = static_cast<char*>(arena_.data_ptr());
  for (auto [v, offset] : in_arena_) {
    const Value& value = graph_.values[v];
    SetAddress(v, base + offset);
    if (value.origin == Value::kConstant) {
      std::fill_n(static_cast<float*>(memory_[v]), value.numel(),
                  value.constant);
    }
  }
}

bool Plan::TakesKept(std::span<at::Tensor* const> kept) const {
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] == nullptr || !kept[i]->is_contiguous() ||
        !HasType(*kept[i], graph_.values[kept_[i]].type)) {
      return false;
    }
  }
  return true;
}

Result<std::vector<at::Tensor>> Plan::Run(std::span<const at::Tensor> feeds,
                                          std::span<at::Tensor* const> kept,
                                          const ops::Context& context) {
  if (!arena_.defined()) TakeArena();
  LoadFeeds(feeds);
  LoadKept(kept);
  Status status = RunNodes(context);
  std::vector<at::Tensor> fetched;
  if (status.ok()) {
    for (auto [value, index] : stores_) {
      std::memcpy(kept[index]->data_ptr(), memory_[value],
                  ByteSize(graph_.values[value]));
    }
    fetched.reserve(fetches_.size());
    for (int value : fetches_) {
      const TensorType& type = graph_.values[value].type;
      at::Tensor copy = at::empty(type.dims, ops::ToScalarType(type.dtype));
      std::memcpy(copy.data_ptr(), memory_[value],
                  ByteSize(graph_.values[value]));
      fetched.push_back(std::move(copy));
    }
  }
  // The last first: a value that moved twice comes back to where it began.
  for (auto moved = moved_.rbegin(); moved != moved_.rend(); ++moved) {
    tensors_[moved->value] = std::move(moved->tensor);
    SetAddress(moved->value, moved->address);
  }
  moved_.clear();
  for (int value : feeds_) tensors_[value].reset();
  for (int value : kept_) tensors_[value].reset();
  RETURN_IF_ERROR(status);
  return fetched;
}

void Plan::LoadFeeds(std::span<const at::Tensor> feeds) {
  for (size_t i = 0; i < feeds.size(); ++i) {
    at::Tensor& tensor = tensors_[feeds_[i]];
    tensor = feeds[i].is_contiguous() ? feeds[i] : feeds[i].contiguous();
    SetAddress(feeds_[i], const_cast<void*>(tensor.const_data_ptr()));
  }
}

void Plan::LoadKept(std::span<at::Tensor* const> kept) {
  for (size_t i = 0; i < kept.size(); ++i) {
    tensors_[kept_[i]] = *kept[i];
    SetAddress(kept_[i], kept[i]->data_ptr());
  }
}

Status Plan::RunNodes(const ops::Context& context) {
  int at = 0;
  try {
    for (int i : run_order_) {
      at = i;
      Node& node = graph_.nodes[i];
      if (node.direct) {
        node.direct(memory_.data());
      } else {
        Status status = RunGeneral(node, context);
        if (!status.ok()) return Explain(node, status);
      }
      for (int value : releases_[i]) tensors_[value].reset();
    }
  } catch (const std::exception& error) {
    return Explain(graph_.nodes[at], ops::FromException(error));
  }
  return OkStatus();
}

// A tensor over the memory of a value that a direct form made or will make.
at::Tensor Plan::TensorOf(int value) {
  if (tensors_[value].defined()) return tensors_[value];
  const Value& v = graph_.values[value];
  if (memory_[value] == nullptr) {
    if (!v.dense || v.numel() != 0) return {};
    return at::empty(v.type.dims, ops::ToScalarType(v.type.dtype));
  }
  const at::TensorOptions options(ops::ToScalarType(v.type.dtype));
  if (!v.channels_last) {
    return at::from_blob(memory_[value], v.type.dims, options);
  }
  const Dims& d = v.type.dims;
  return at::from_blob(memory_[value], d,
                       {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]}, options);
}

// Whether a view of a value may live longer than the value: its tensor owns
// the memory and nobody writes there again. It is not so for planned memory and
// the homes of extensions, which other values take over; for a value in the
// memory of another, whose tensor here owns nothing; and for what a later step
// changes in place.
bool Plan::KeepsItsMemory(int value) const {
  const Value& v = graph_.values[value];
  const bool direct = v.maker != kNone && graph_.nodes[v.maker].direct;
  return tensors_[value].defined() && !v.pinned && !direct;
}

// Puts the inputs of a node into the frame, and takes down those of which it
// must not give views.
void Plan::Lend(const Node& node) {
  lent_.clear();
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const int value = node.inputs[i];
    if (value == kNone) continue;
    at::Tensor& tensor = frame_[node.step->inputs[i]];
    tensor = TensorOf(value);
    if (!tensor.defined() || KeepsItsMemory(value)) continue;
    if (tensor.is_sparse()) {
      lent_.push_back(tensor._indices());
      lent_.push_back(tensor._values());
    } else {
      lent_.push_back(tensor);
    }
  }
}

// `made` itself, or a copy where it lies in memory that the node was lent.
at::Tensor Plan::Owned(at::Tensor made) const {
  const bool is_lent =
      std::any_of(lent_.begin(), lent_.end(), [&](const at::Tensor& tensor) {
        return tensor.storage().is_alias_of(made.storage());
      });
  return is_lent ? made.clone() : std::move(made);
}

// The ids and the rows of a sparse gradient are often those that the node was
// given, under another shape.
at::Tensor Plan::OwnedSparse(const at::Tensor& made) const {
  const at::Tensor indices = made._indices(), values = made._values();
  const at::Tensor own_indices = Owned(indices), own_values = Owned(values);
  if (own_indices.is_same(indices) && own_values.is_same(values)) return made;
  return at::_sparse_coo_tensor_unsafe(own_indices, own_values, made.sizes(),
                                       made.options(), made.is_coalesced());
}

Status Plan::RunGeneral(Node& node, const ops::Context& context) {
  Step& step = *node.step;
  Lend(node);
  Frame frame{frame_, {}, {}, context};
  Status status = step.Run(frame);
  for (size_t i = 0; status.ok() && i < step.outputs.size(); ++i) {
    const int out = node.outputs[i];
    if (out == kNone) continue;
    const Value& value = graph_.values[out];
    at::Tensor& made = frame_[step.outputs[i]];
    if (!value.dense) {
      if (made.defined() && made.is_sparse()) {
        made = OwnedSparse(made);
      } else if (made.defined() && made.has_storage()) {
        made = Owned(made);
      }
      tensors_[out] = made;
      continue;
    }
    if (!HasType(made, value.type)) {
      status = Internal("the result is not ", program::ToString(value.type),
                        ", as it was before");
      break;
    }
    made = made.contiguous(value.channels_last ? at::MemoryFormat::ChannelsLast
                                               : at::MemoryFormat::Contiguous);
    if (value.pinned && memory_[out] != nullptr &&
        made.data_ptr() == memory_[out]) {
      continue;  // changed in place
    }
    made = Owned(made);
    if (value.pinned) {
      // Whoever changes it must not change what a kernel took it from, nor
      // another result of that kernel.
      if (node.kernel != nullptr && made.storage().use_count() > 1) {
        made = made.clone();
      }
      moved_.push_back({out, tensors_[out], memory_[out]});
    }
    tensors_[out] = made;
    SetAddress(out, made.data_ptr());
  }
  lent_.clear();
  for (Place place : step.inputs) {
    if (place != kNothing) frame_[place].reset();
  }
  for (Place place : step.outputs) {
    if (place != kNothing) frame_[place].reset();
  }
  return status;
}

Status Plan::Explain(const Node& node, const Status& reason) const {
  std::string given;
  for (int value : node.inputs) {
    if (!given.empty()) given += ", ";
    if (value == kNone) {
      given += "nothing";
      continue;
    }
    const Value& v = graph_.values[value];
    given += names_[v.place] + " " + program::ToString(v.type);
  }
  return reason.WithContext(node.step->what + "(" + given + ")");
}

size_t Plan::num_direct() const {
  return std::count_if(run_order_.begin(), run_order_.end(), [&](int i) {
    return static_cast<bool>(graph_.nodes[i].direct);
  });
}

size_t Plan::num_general() const { return run_order_.size() - num_direct(); }

}  // namespace fleet::exec
