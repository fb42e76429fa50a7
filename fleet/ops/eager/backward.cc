// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/eager/backward.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "fleet/ops/update/merged_rows.h"

namespace fleet::ops {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Hooks that only LibTorch's engine calls. Those behind an accumulation are
// called by the accumulating node itself.
bool HasHooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() ||
         !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty();
}

// What the walk knows of a node: who still has to send it gradients, and those
// that have come.
struct Visit {
  Node* node;
  int waits_for = 0;
  GradientSink* sink = nullptr;
  variable_list grads;
};

using Callbacks = std::vector<std::function<void()>>;

// What the outermost walk of this thread calls at its end; null outside of one.
thread_local Callbacks* at_end = nullptr;

// Where a node should compute its gradients, by their position.
struct Places {
  const Node* node;
  c10::SmallVector<at::Tensor, 4> tensors;
};
thread_local const Places* places = nullptr;
// Whose kernel runs: a node may run others before it returns, and these must
// not write where it should.
thread_local const Node* running = nullptr;

// Visits by node, in open addressing. A walk of a small graph takes
// microseconds, of which a std::unordered_map would be a good part.
class VisitMap {
 public:
  // The visit of `node`, and whether it is new.
  std::pair<uint32_t, bool> Insert(Node* node) {
    if (visits_.size() * 2 >= slots_.size()) Grow();
    size_t i = Hash(node);
    while (slots_[i] != kEmpty) {
      if (visits_[slots_[i]].node == node) return {slots_[i], false};
      i = (i + 1) & (slots_.size() - 1);
    }
    slots_[i] = static_cast<uint32_t>(visits_.size());
    visits_.push_back({node});
    return {slots_[i], true};
  }

  Visit& operator[](uint32_t index) { return visits_[index]; }
  size_t size() const { return visits_.size(); }

 private:
  static constexpr uint32_t kEmpty = UINT32_MAX;

  size_t Hash(Node* node) const {
    uint64_t h = reinterpret_cast<uintptr_t>(node) * 0x9E3779B97F4A7C15ull;
    return (h >> 32) & (slots_.size() - 1);
  }

  void Grow() {
    slots_.assign(std::max<size_t>(64, slots_.size() * 2), kEmpty);
    for (uint32_t v = 0; v < visits_.size(); ++v) {
      size_t i = Hash(visits_[v].node);
      while (slots_[i] != kEmpty) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = v;
    }
  }

  std::vector<uint32_t> slots_;
  std::vector<Visit> visits_;
};

// Sets a variable for a time.
template <class T>
class Restore {
 public:
  Restore(T& variable, T value) : variable_(variable), before_(variable) {
    variable = value;
  }
  Restore(const Restore&) = delete;
  ~Restore() { variable_ = before_; }

 private:
  T& variable_;
  const T before_;
};

class Walk {
 public:
  // Finds every node below the roots. False if the graph is not one for us.
  bool Discover(const std::vector<Edge>& roots) {
    for (const Edge& root : roots) {
      roots_.push_back(visits_.Insert(root.function.get()).first);
    }
    // visits_ grows while it is read: it is the queue of the search.
    for (uint32_t v = 0; v < visits_.size(); ++v) {
      Node* node = visits_[v].node;
      if (HasHooks(*node)) return false;
      if (auto& hook = node->tensor_post_acc_grad_hooks(); hook != nullptr) {
        visits_[v].sink = dynamic_cast<GradientSink*>(hook.get());
        has_sinks_ |= visits_[v].sink != nullptr;
      }
      for (const Edge& edge : node->next_edges()) {
        if (!edge.is_valid()) continue;
        uint32_t next = visits_.Insert(edge.function.get()).first;
        ++visits_[next].waits_for;
      }
    }
    return true;
  }

  void Run(const std::vector<Edge>& roots, std::vector<at::Tensor>& grads,
           bool retain_graph) {
    for (size_t i = 0; i < roots.size(); ++i) {
      Deliver(roots_[i], roots[i].input_nr, std::move(grads[i]));
    }
    for (uint32_t root : roots_) {
      if (visits_[root].waits_for == 0 && !IsReady(root)) Push(root);
    }
    while (!ready_.empty()) {
      std::pop_heap(ready_.begin(), ready_.end());
      uint32_t v = ready_.back().second;
      ready_.pop_back();
      Step(v, retain_graph);
    }
  }

 private:
  // Nodes run in the reverse order of their making, as far as gradients allow.
  void Push(uint32_t v) {
    ready_.emplace_back(visits_[v].node->sequence_nr(), v);
    std::push_heap(ready_.begin(), ready_.end());
  }

  bool IsReady(uint32_t v) const {
    return std::any_of(ready_.begin(), ready_.end(),
                       [v](const auto& entry) { return entry.second == v; });
  }

  void Step(uint32_t v, bool retain_graph) {
    Node& node = *visits_[v].node;
    variable_list grads = std::move(visits_[v].grads);
    bool any = std::any_of(grads.begin(), grads.end(),
                           [](const at::Tensor& g) { return g.defined(); });
    variable_list out;
    GradientSink* sink = visits_[v].sink;
    if (any && !(sink != nullptr && sink->Take(grads[0]))) {
      grads.resize(node.num_inputs());
      out = has_sinks_ ? CallWithPlaces(node, std::move(grads))
                       : node(std::move(grads));
      torch::autograd::validate_outputs(
          node.next_edges(), out, [&](const std::string& text) {
            return "gradient of " + node.name() + ": " + text;
          });
    }
    for (size_t i = 0; i < node.num_outputs(); ++i) {
      const Edge& edge = node.next_edge(i);
      if (!edge.is_valid()) continue;
      uint32_t next = visits_.Insert(edge.function.get()).first;
      if (any && i < out.size() && out[i].defined()) {
        Deliver(next, edge.input_nr, std::move(out[i]));
      }
      if (--visits_[next].waits_for == 0) Push(next);
    }
    if (any && !retain_graph) node.release_variables();
  }

  variable_list CallWithPlaces(Node& node, variable_list&& grads) {
    Places wanted{&node, {}};
    for (size_t i = 0; i < node.num_outputs(); ++i) {
      const Edge& edge = node.next_edge(i);
      if (!edge.is_valid()) continue;
      Visit& next = visits_[visits_.Insert(edge.function.get()).first];
      // The only gradient that comes: nothing was delivered, nobody follows.
      if (next.sink == nullptr || next.waits_for != 1 || !next.grads.empty()) {
        continue;
      }
      wanted.tensors.resize(node.num_outputs());
      wanted.tensors[i] = next.sink->Place();
    }
    Restore<const Places*> restore(places, &wanted);
    return node(std::move(grads));
  }

  void Deliver(uint32_t v, uint32_t input, at::Tensor&& grad) {
    variable_list& grads = visits_[v].grads;
    if (grads.size() <= input) grads.resize(input + 1);
    at::Tensor& sum = grads[input];
    if (!sum.defined()) {
      sum = std::move(grad);
    } else if (Owned(sum) && !grad.is_sparse()) {
      sum.add_(grad);
    } else {
      sum = AddGradients(sum, grad);
    }
  }

  // Whether nobody else sees the memory of `grad`, so it may be added to.
  static bool Owned(const at::Tensor& grad) {
    return grad.use_count() == 1 && grad.layout() == at::kStrided &&
           grad.storage().use_count() == 1 &&
           grad.is_non_overlapping_and_dense();
  }

  VisitMap visits_;
  bool has_sinks_ = false;
  std::vector<uint32_t> roots_;
  std::vector<std::pair<uint64_t, uint32_t>> ready_;  // heap by age of the node
};

}  // namespace

void Backward(const std::vector<at::Tensor>& outputs,
              std::vector<at::Tensor> grads, bool retain_graph) {
  bool on_cpu = true;
  std::vector<Edge> roots;
  for (const at::Tensor& output : outputs) {
    on_cpu &= output.device().is_cpu() && output.requires_grad();
    if (on_cpu) roots.push_back(torch::autograd::impl::gradient_edge(output));
  }
  Walk walk;
  if (!on_cpu || !walk.Discover(roots)) {
    torch::autograd::backward(outputs, grads, retain_graph);
    return;
  }
  at::NoGradGuard no_grad;
  if (at_end != nullptr) {  // inside another walk
    walk.Run(roots, grads, retain_graph);
    return;
  }
  Callbacks callbacks;
  {
    Restore<Callbacks*> restore(at_end, &callbacks);
    walk.Run(roots, grads, retain_graph);
  }
  for (const auto& callback : callbacks) callback();
}

void AtEndOfBackward(std::function<void()> callback) {
  if (at_end != nullptr) {
    at_end->push_back(std::move(callback));
  } else {
    torch::autograd::Engine::get_default_engine().queue_callback(
        std::move(callback));
  }
}

at::Tensor EmptyGradient(size_t position, at::IntArrayRef shape,
                         const at::TensorOptions& options) {
  if (places != nullptr && places->node == running &&
      position < places->tensors.size()) {
    const at::Tensor& place = places->tensors[position];
    if (place.defined() && place.sizes() == shape && place.is_contiguous() &&
        place.scalar_type() == c10::typeMetaToScalarType(options.dtype()) &&
        place.device() == options.device()) {
      return place;
    }
  }
  return at::empty(shape, options);
}

RunningNode::RunningNode(const Node& node) : before_(running) {
  running = &node;
}

RunningNode::~RunningNode() { running = before_; }

}  // namespace fleet::ops
