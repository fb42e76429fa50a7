// SPDX-License-Identifier: Apache-2.0
#include "fleet/ops/eager/eager.h"

#include <memory>
#include <string>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "fleet/ops/aten_error.h"
#include "fleet/ops/eager/backward.h"
#include "fleet/ops/eager/node.h"

namespace fleet::ops {
namespace {

using program::GradSource;
using program::OpDef;
using program::TensorType;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using SlotEnds = c10::SmallVector<uint32_t, 8>;

std::span<const at::Tensor> Slot(std::span<const at::Tensor> tensors,
                                 std::span<const uint32_t> ends, int slot) {
  size_t begin = slot == 0 ? 0 : ends[slot - 1];
  return tensors.subspan(begin, ends[slot] - begin);
}

// Where each output slot ends. At most one output slot is variadic; it takes
// what the others leave.
SlotEnds OutputEnds(const OpDef& def, size_t num_tensors) {
  SlotEnds ends;
  size_t spare = num_tensors - (def.outputs.size() - 1);
  uint32_t end = 0;
  for (const program::SlotDef& slot : def.outputs) {
    end += slot.variadic ? spare : 1;
    ends.push_back(end);
  }
  return ends;
}

bool Differentiable(const program::SlotDef& slot, const at::Tensor& tensor) {
  return !slot.constant && tensor.defined() &&
         (tensor.is_floating_point() || tensor.is_complex());
}

bool AnyRequiresGrad(const OpDef& def, std::span<const at::Tensor> inputs,
                     std::span<const uint32_t> ends) {
  for (int slot : def.grad.gives) {
    for (const at::Tensor& tensor : Slot(inputs, ends, slot)) {
      if (tensor.defined() && tensor.requires_grad()) return true;
    }
  }
  return false;
}

// One recorded call of an op: keeps what its backward kernel uses.
class OpNode final : public torch::autograd::Node {
 public:
  OpNode(const Op& op, Attrs attrs, const Context& context)
      : op_(op), attrs_(std::move(attrs)), context_(context) {}

  std::string name() const override { return op_.def->name + "_grad"; }

  void Connect(std::span<const at::Tensor> inputs,
               std::span<const uint32_t> input_ends) {
    for (int slot : op_.def->grad.gives) {
      auto tensors = Slot(inputs, input_ends, slot);
      // The kernel returns a place for an absent input too.
      if (tensors.empty() && !op_.def->inputs[slot].variadic) {
        add_next_edge(torch::autograd::Edge());
      }
      for (const at::Tensor& tensor : tensors) {
        add_next_edge(tensor.defined()
                          ? torch::autograd::impl::gradient_edge(tensor)
                          : torch::autograd::Edge());
      }
    }
  }

  void Save(std::span<const at::Tensor> inputs,
            std::span<const uint32_t> input_ends, Tensors& outputs,
            std::span<const uint32_t> output_ends) {
    uint32_t end = 0;
    for (const GradSource& use : op_.def->grad.uses) {
      if (use.kind != GradSource::kOutputGrad) {
        bool is_output = use.kind == GradSource::kOutput;
        auto slot = is_output ? Slot(outputs, output_ends, use.slot)
                              : Slot(inputs, input_ends, use.slot);
        for (const at::Tensor& tensor : slot) {
          saved_.emplace_back(tensor, is_output);
        }
        end += slot.size();
      }
      saved_end_.push_back(end);
    }
  }

  // Makes this node the history of the outputs that gradients flow through.
  void BecomeHistory(Tensors& outputs, std::span<const uint32_t> output_ends,
                     const NodePtr& self) {
    for (size_t slot = 0; slot < op_.def->outputs.size(); ++slot) {
      size_t begin = slot == 0 ? 0 : output_ends[slot - 1];
      grad_begin_.push_back(num_inputs());
      for (size_t i = begin; i < output_ends[slot]; ++i) {
        if (Differentiable(op_.def->outputs[slot], outputs[i])) {
          uint32_t nr = add_input_metadata(outputs[i]);
          torch::autograd::impl::set_gradient_edge(outputs[i], {self, nr});
        }
      }
    }
    grad_begin_.push_back(num_inputs());
  }

  void release_variables() override {
    for (SavedVariable& saved : saved_) saved.reset_data();
    released_ = true;
  }

 protected:
  variable_list apply(variable_list&& grads) override {
    TORCH_CHECK(
        !released_, op_.def->name,
        ": backward a second time, but what it needs was freed after the "
        "first; call backward(retain_graph=True) then");
    Tensors tensors;
    SlotEnds ends;
    GatherUses(grads, tensors, ends);
    uint64_t needs = 0;
    for (size_t i = 0; i < num_outputs() && i < 64; ++i) {
      if (task_should_compute_output(i)) needs |= uint64_t{1} << i;
    }
    KernelCall call{tensors, ends, attrs_, context_, GradNeeds(needs), {}};
    const RunningNode running(*this);
    if (at::GradMode::is_enabled()) {
      op_.backward(call);
    } else {
      at::AutoDispatchBelowADInplaceOrView guard;
      op_.backward(call);
    }
    return variable_list(std::make_move_iterator(call.out.begin()),
                         std::make_move_iterator(call.out.end()));
  }

 private:
  void GatherUses(const variable_list& grads, Tensors& tensors,
                  SlotEnds& ends) {
    size_t use_index = 0;
    uint32_t next_saved = 0;
    for (const GradSource& use : op_.def->grad.uses) {
      if (use.kind == GradSource::kOutputGrad) {
        for (uint32_t i = grad_begin_[use.slot]; i < grad_begin_[use.slot + 1];
             ++i) {
          tensors.push_back(
              grads[i].defined() ? grads[i] : input_metadata(i).zeros_like());
        }
      } else {
        NodePtr self;
        if (use.kind == GradSource::kOutput) self = getptr();
        for (; next_saved < saved_end_[use_index]; ++next_saved) {
          tensors.push_back(saved_[next_saved].unpack(self));
        }
      }
      next_saved = saved_end_[use_index++];
      ends.push_back(tensors.size());
    }
  }

  const Op& op_;
  Attrs attrs_;
  const Context context_;
  c10::SmallVector<SavedVariable, 4> saved_;
  SlotEnds saved_end_;   // by position in `uses`
  SlotEnds grad_begin_;  // by output slot: first of its gradients
  bool released_ = false;
};

std::vector<std::vector<TensorType>> TypesOf(const OpDef& def,
                                             std::span<const at::Tensor> inputs,
                                             std::span<const uint32_t> ends) {
  std::vector<std::vector<TensorType>> types(def.inputs.size());
  for (size_t slot = 0; slot < types.size(); ++slot) {
    for (const at::Tensor& tensor : Slot(inputs, ends, slot)) {
      if (!tensor.defined()) continue;
      types[slot].push_back(
          {ToDType(tensor.scalar_type()),
           program::Dims(tensor.sizes().begin(), tensor.sizes().end())});
    }
  }
  return types;
}

// The kernel failed. The shape rule usually knows a better reason than ATen: it
// speaks of the op's own arguments.
Status Explain(const OpDef& def, std::span<const at::Tensor> inputs,
               std::span<const uint32_t> ends, const Attrs& attrs,
               const Status& reason) {
  auto types = TypesOf(def, inputs, ends);
  program::OpTypes call(def, types, attrs);
  auto inferred = def.InferTypes(call);
  if (!inferred.ok()) return inferred.status();
  std::string given;
  for (size_t slot = 0; slot < types.size(); ++slot) {
    for (const TensorType& type : types[slot]) {
      given += (given.empty() ? "" : ", ") + def.inputs[slot].name + " " +
               program::ToString(type);
    }
  }
  return reason.WithContext(def.name + "(" + given + ")");
}

}  // namespace

Result<Tensors> RunEager(const Op& op, std::span<const at::Tensor> inputs,
                         std::span<const uint32_t> slot_end, Attrs attrs,
                         const Context& context) {
  KernelCall call{inputs, slot_end, attrs, context};
  try {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.forward(call);
  } catch (const std::exception& error) {
    return Explain(*op.def, inputs, slot_end, attrs, FromException(error));
  }
  Tensors outputs = std::move(call.out);
  if (op.backward == nullptr || !at::GradMode::is_enabled() ||
      !AnyRequiresGrad(*op.def, inputs, slot_end)) {
    return outputs;
  }
  SlotEnds output_ends = OutputEnds(*op.def, outputs.size());
  NodePtr self = MakeNode<OpNode>(op, std::move(attrs), context);
  auto& node = static_cast<OpNode&>(*self);
  node.Connect(inputs, slot_end);
  node.BecomeHistory(outputs, output_ends, self);
  node.Save(inputs, slot_end, outputs, output_ends);
  return outputs;
}

}  // namespace fleet::ops
