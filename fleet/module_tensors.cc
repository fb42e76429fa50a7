// SPDX-License-Identifier: Apache-2.0
#include "fleet/module_tensors.h"

#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <variant>

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "fleet/exec/tensor_container.h"
#include "fleet/ops/aten_error.h"

namespace fleet {
namespace {

using sync::NamedTensor;
using Tensors = std::vector<NamedTensor>;

// The weights that Paddle stores transposed.
std::set<const c10::TensorImpl*> LinearWeights(
    const torch::nn::Module& module) {
  std::set<const c10::TensorImpl*> weights;
  const auto look_at = [&](const torch::nn::Module& part) {
    if (const auto* linear = part.as<torch::nn::Linear>()) {
      weights.insert(linear->weight.unsafeGetTensorImpl());
    }
  };
  look_at(module);
  for (const auto& part : module.modules(/*include_self=*/false)) {
    look_at(*part);
  }
  return weights;
}

// Paddle's name of a buffer; empty for one that Paddle does not have.
std::string PaddleName(const std::string& name) {
  const size_t dot = name.rfind('.') + 1;  // 0 without a dot
  const std::string_view last = std::string_view(name).substr(dot);
  if (last == "num_batches_tracked") return "";
  if (last == "running_mean") return name.substr(0, dot) + "_mean";
  if (last == "running_var") return name.substr(0, dot) + "_variance";
  return name;
}

std::string Describe(const at::Tensor& tensor) {
  std::ostringstream out;
  out << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes();
  return out.str();
}

void Join(std::string& list, const std::string& more) {
  if (!list.empty()) list += ", ";
  list += more;
}

}  // namespace

Tensors ModuleTensors(const torch::nn::Module& module, LayerStyle style) {
  const bool paddle = style == LayerStyle::kPaddle;
  std::set<const c10::TensorImpl*> transposed;
  if (paddle) transposed = LinearWeights(module);
  Tensors tensors;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor value = item.value().detach();
    const bool turn = transposed.contains(item.value().unsafeGetTensorImpl());
    tensors.push_back({item.key(), turn ? value.t() : value});
  }
  for (const auto& item : module.named_buffers()) {
    std::string name = paddle ? PaddleName(item.key()) : item.key();
    if (!name.empty()) tensors.push_back({std::move(name), item.value()});
  }
  return tensors;
}

Result<saved::Value> AddTensors(saved::ContainerWriter& writer,
                                const Tensors& tensors) {
  saved::Dict dict;
  for (const NamedTensor& each : tensors) {
    ASSIGN_OR_RETURN(const saved::BlobId blob,
                     exec::AddTensor(writer, each.name, each.tensor));
    dict.items.emplace_back(saved::Value{each.name}, saved::Value{blob});
  }
  return saved::Value{std::move(dict)};
}

Result<Tensors> ReadTensors(const saved::ContainerReader& reader,
                            const saved::Value& value) {
  const auto* dict = std::get_if<saved::Dict>(&value.held);
  if (dict == nullptr) return InvalidArgument("it holds no tensors by names");
  Tensors tensors;
  for (const auto& [key, item] : dict->items) {
    const auto* name = std::get_if<std::string>(&key.held);
    if (name == nullptr) return InvalidArgument("it has a key that is no name");
    const auto* blob = std::get_if<saved::BlobId>(&item.held);
    if (blob == nullptr) return InvalidArgument("'", *name, "' is no tensor");
    Result<at::Tensor> tensor = exec::ReadTensor(reader, *blob);
    if (!tensor.ok()) return tensor.status().WithContext("'" + *name + "'");
    tensors.push_back({*name, *std::move(tensor)});
  }
  return tensors;
}

Status MatchTensors(const Tensors& to, Tensors& from) {
  std::map<std::string_view, NamedTensor*> left;
  for (NamedTensor& each : from) left[each.name] = &each;
  std::string missing, other;
  Tensors ordered;
  for (const NamedTensor& wanted : to) {
    const auto found = left.find(wanted.name);
    if (found == left.end()) {
      Join(missing, wanted.name);
      continue;
    }
    const at::Tensor& tensor = found->second->tensor;
    if (tensor.scalar_type() != wanted.tensor.scalar_type() ||
        tensor.sizes() != wanted.tensor.sizes()) {
      Join(other, wanted.name + " is " + Describe(tensor) + " in place of " +
                      Describe(wanted.tensor));
    }
    ordered.push_back(std::move(*found->second));
    left.erase(found);
  }
  std::string unexpected;
  for (const auto& [name, tensor] : left) Join(unexpected, std::string(name));
  std::string text;
  for (const auto& [what, names] :
       {std::pair("missing ", &missing), std::pair("unexpected ", &unexpected),
        std::pair("", &other)}) {
    if (!names->empty()) (text += text.empty() ? "" : "; ") += what + *names;
  }
  if (!text.empty()) {
    return InvalidArgument("its tensors are not those of the module: ", text);
  }
  from = std::move(ordered);
  return OkStatus();
}

Status CopyTensors(const Tensors& to, const Tensors& from) {
  const at::NoGradGuard no_grad;
  try {
    for (size_t i = 0; i < to.size(); ++i) to[i].tensor.copy_(from[i].tensor);
  } catch (const std::exception& error) {
    return ops::FromException(error);
  }
  return OkStatus();
}

}  // namespace fleet
