// SPDX-License-Identifier: Apache-2.0

// What is one step on a GPU and two in the program.

#include <algorithm>

#include "fleet/exec/schedule_maker.h"

namespace fleet::exec {
namespace {

using program::Variable;

bool Contains(const std::vector<Place>& places, Place place) {
  return std::find(places.begin(), places.end(), place) != places.end();
}

}  // namespace

// Whether the steps at `at` and behind it are a product with a parameter and
// the sum with its bias, and nobody asks for the product alone.
bool ScheduleMaker::FusesAt(size_t at) const {
  const Steps& steps = schedule_->steps_;
  if (at + 1 >= steps.size()) return false;
  const auto* product = dynamic_cast<const KernelStep*>(steps[at].get());
  const auto* sum = dynamic_cast<const KernelStep*>(steps[at + 1].get());
  if (product == nullptr || sum == nullptr || product->backward ||
      sum->backward || product->def().name != "matmul_v2" ||
      sum->def().name != "elementwise_add") {
    return false;
  }
  for (std::string_view attr : {"trans_x", "trans_y"}) {
    const int i = product->def().AttrIndex(attr);
    if (i < 0 || std::get<bool>(product->attrs[i])) return false;
  }
  const Place between = product->outputs[0];
  if (sum->inputs.size() != 2 || sum->inputs[0] != between ||
      sum->inputs[1] == between || sum->outputs[0] == between) {
    return false;
  }
  // Both are parameters that fit, so that the sum has the product's shape.
  const Variable* weight = block_->Find(schedule_->names_[product->inputs[1]]);
  const Variable* bias = block_->Find(schedule_->names_[sum->inputs[1]]);
  const Variable* middle = block_->Find(schedule_->names_[between]);
  if (weight == nullptr || bias == nullptr || middle == nullptr ||
      !weight->persistable || !bias->persistable || middle->persistable ||
      weight->type.dims.size() != 2 || bias->type.dims.size() != 1 ||
      weight->type.dims[1] != bias->type.dims[0] ||
      weight->type.dtype != bias->type.dtype) {
    return false;
  }
  const int64_t axis =
      std::get<int64_t>(sum->attrs[sum->def().AttrIndex("axis")]);
  const auto rank = static_cast<int64_t>(middle->type.dims.size());
  if (axis != -1 && axis != rank - 1) return false;
  if (Contains(schedule_->fetch_places_, between) ||
      Contains(schedule_->feed_places_, between)) {
    return false;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = *steps[i];
    if (i != at && Contains(step.outputs, between)) return false;
    if (i == at + 1 || !Contains(step.inputs, between)) continue;
    // The gradient of the sum looks at the shape only.
    const auto* grad = dynamic_cast<const KernelStep*>(&step);
    if (grad == nullptr || !grad->backward || grad->op != sum->op) {
      return false;
    }
  }
  return true;
}

// A product and its bias are one launch.
void ScheduleMaker::FuseProducts() {
  const ops::Op* fc = library_.Find("fc");
  if (fc == nullptr) return;
  Steps& steps = schedule_->steps_;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!FusesAt(i)) continue;
    auto& product = static_cast<KernelStep&>(*steps[i]);
    const auto& sum = static_cast<const KernelStep&>(*steps[i + 1]);
    const Place between = product.outputs[0], out = sum.outputs[0];
    product.op = fc;
    product.attrs.clear();
    product.inputs.push_back(sum.inputs[1]);
    product.slot_end = {1, 2, 3};
    product.outputs = {out};
    steps.erase(steps.begin() + static_cast<int64_t>(i) + 1);
    for (const std::unique_ptr<Step>& step : steps) {
      std::replace(step->inputs.begin(), step->inputs.end(), between, out);
    }
  }
}

}  // namespace fleet::exec
