// SPDX-License-Identifier: Apache-2.0
#include "fleet/checkpoint.h"

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "fleet/exec/tensor_container.h"
#include "fleet/module_tensors.h"

namespace fleet {
namespace {

namespace optim = torch::optim;
using saved::Dict;
using saved::List;
using saved::Value;
using sync::NamedTensor;
using State = optim::OptimizerParamState;

Value TextValue(std::string text) { return Value{std::move(text)}; }

// Calls `f` with the name of each part of a parameter's state, and the part: a
// tensor, which may be undefined, or a count.
template <class S, class F>
void ForEachPart(S& state, F f) {
  using Plain = std::remove_const_t<S>;
  if constexpr (std::is_same_v<Plain, optim::AdamParamState> ||
                std::is_same_v<Plain, optim::AdamWParamState>) {
    f("step", state.step());
    f("exp_avg", state.exp_avg());
    f("exp_avg_sq", state.exp_avg_sq());
    f("max_exp_avg_sq", state.max_exp_avg_sq());
  } else if constexpr (std::is_same_v<Plain, optim::SGDParamState>) {
    f("momentum_buffer", state.momentum_buffer());
  } else if constexpr (std::is_same_v<Plain, optim::AdagradParamState>) {
    f("step", state.step());
    f("sum", state.sum());
  } else {
    static_assert(std::is_same_v<Plain, optim::RMSpropParamState>);
    f("step", state.step());
    f("square_avg", state.square_avg());
    f("momentum_buffer", state.momentum_buffer());
    f("grad_avg", state.grad_avg());
  }
}

// Calls `f` with the name of the optimizer's rule and its kind of state.
template <class F>
auto WithRule(const optim::Optimizer& optimizer, F f)
    -> decltype(f("", std::type_identity<optim::SGDParamState>{})) {
  const auto is = [&](auto type) {
    return dynamic_cast<const typename decltype(type)::type*>(&optimizer) !=
           nullptr;
  };
  if (is(std::type_identity<optim::Adam>{})) {
    return f("Adam", std::type_identity<optim::AdamParamState>{});
  }
  if (is(std::type_identity<optim::AdamW>{})) {
    return f("AdamW", std::type_identity<optim::AdamWParamState>{});
  }
  if (is(std::type_identity<optim::SGD>{})) {
    return f("SGD", std::type_identity<optim::SGDParamState>{});
  }
  if (is(std::type_identity<optim::Adagrad>{})) {
    return f("Adagrad", std::type_identity<optim::AdagradParamState>{});
  }
  if (is(std::type_identity<optim::RMSprop>{})) {
    return f("RMSprop", std::type_identity<optim::RMSpropParamState>{});
  }
  return InvalidArgument(
      "a checkpoint has the state of Adam, AdamW, SGD, Adagrad or RMSprop, and "
      "the optimizer is none of them");
}

std::vector<at::Tensor> ParametersOf(const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(),
                      group.params().end());
  }
  return parameters;
}

// ---- saving

template <class S>
Result<Value> AddState(saved::ContainerWriter& writer, const State& state) {
  Dict dict;
  Status failure;
  const auto add = [&](const char* name, const auto& part) {
    if constexpr (std::is_same_v<std::decay_t<decltype(part)>, int64_t>) {
      dict.items.emplace_back(TextValue(name), Value{part});
    } else if (part.defined() && failure.ok()) {
      const Result<saved::BlobId> blob = exec::AddTensor(writer, name, part);
      if (!blob.ok()) {
        failure = blob.status();
      } else {
        dict.items.emplace_back(TextValue(name), Value{*blob});
      }
    }
  };
  ForEachPart(static_cast<const S&>(state), add);
  RETURN_IF_ERROR(failure);
  return Value{std::move(dict)};
}

Result<Value> AddOptimizer(saved::ContainerWriter& writer,
                           const optim::Optimizer& optimizer) {
  return WithRule(
      optimizer,
      [&]<class S>(const char* rule, std::type_identity<S>) -> Result<Value> {
        List rates, states;
        for (const auto& group : optimizer.param_groups()) {
          rates.push_back(Value{group.options().get_lr()});
        }
        for (const at::Tensor& parameter : ParametersOf(optimizer)) {
          const auto found =
              optimizer.state().find(parameter.unsafeGetTensorImpl());
          if (found == optimizer.state().end()) {
            states.emplace_back();
            continue;
          }
          ASSIGN_OR_RETURN(Value state, AddState<S>(writer, *found->second));
          states.push_back(std::move(state));
        }
        Dict dict;
        dict.items.emplace_back(TextValue("rule"), TextValue(rule));
        dict.items.emplace_back(TextValue("rates"), Value{std::move(rates)});
        dict.items.emplace_back(TextValue("state"), Value{std::move(states)});
        return Value{std::move(dict)};
      });
}

// ---- loading

// The member of a dict, of a type. InvalidArgument says which is not there.
template <class T>
Result<const T*> Member(const Value& value, const std::string& key) {
  const auto* dict = std::get_if<Dict>(&value.held);
  const Value* member = dict == nullptr ? nullptr : dict->Find(key);
  const T* typed = member == nullptr ? nullptr : std::get_if<T>(&member->held);
  if (typed == nullptr) {
    return InvalidArgument("it is no checkpoint: it lacks '", key, "'");
  }
  return typed;
}

// What an optimizer gets.
struct OptimizerState {
  std::vector<double> rates;
  std::vector<std::unique_ptr<State>> states;  // null where there is none
};

template <class S>
Result<std::unique_ptr<State>> ReadState(const saved::ContainerReader& reader,
                                         const Value& value,
                                         const at::Tensor& parameter) {
  const auto* dict = std::get_if<Dict>(&value.held);
  if (dict == nullptr) return InvalidArgument("it is no dict");
  auto state = std::make_unique<S>();
  Status failure;
  const auto read = [&](const char* name, auto& part) {
    const Value* member = dict->Find(name);
    if (member == nullptr || !failure.ok()) return;
    if constexpr (std::is_same_v<std::decay_t<decltype(part)>, int64_t>) {
      const auto* count = std::get_if<int64_t>(&member->held);
      if (count == nullptr) {
        failure = InvalidArgument(name, " is no count");
      } else {
        part = *count;
      }
    } else {
      const auto* blob = std::get_if<saved::BlobId>(&member->held);
      Result<at::Tensor> tensor = blob == nullptr
                                      ? InvalidArgument("it is no tensor")
                                      : exec::ReadTensor(reader, *blob);
      if (!tensor.ok()) {
        failure = tensor.status().WithContext(name);
      } else if (tensor->sizes() != parameter.sizes() ||
                 tensor->scalar_type() != parameter.scalar_type()) {
        failure = InvalidArgument(
            name, " is ", c10::toString(tensor->scalar_type()), ' ',
            tensor->sizes(), ", and the parameter ",
            c10::toString(parameter.scalar_type()), ' ', parameter.sizes());
      } else {
        part = tensor->to(parameter.device());
      }
    }
  };
  ForEachPart(*state, read);
  RETURN_IF_ERROR(failure);
  return std::unique_ptr<State>(std::move(state));
}

template <class S>
Result<OptimizerState> ReadStates(const saved::ContainerReader& reader,
                                  const Value& value,
                                  const optim::Optimizer& optimizer) {
  OptimizerState read;
  ASSIGN_OR_RETURN(const List* rates, Member<List>(value, "rates"));
  ASSIGN_OR_RETURN(const List* states, Member<List>(value, "state"));
  const std::vector<at::Tensor> parameters = ParametersOf(optimizer);
  if (rates->size() != optimizer.param_groups().size() ||
      states->size() != parameters.size()) {
    return InvalidArgument("it has the state of ", states->size(),
                           " parameters in ", rates->size(),
                           " groups, and the optimizer has ", parameters.size(),
                           " in ", optimizer.param_groups().size());
  }
  for (const Value& rate : *rates) {
    const auto* number = std::get_if<double>(&rate.held);
    if (number == nullptr) {
      return InvalidArgument("it has a learning rate that is no number");
    }
    read.rates.push_back(*number);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::unique_ptr<State> state;
    if (!std::holds_alternative<std::monostate>((*states)[i].held)) {
      Result<std::unique_ptr<State>> made =
          ReadState<S>(reader, (*states)[i], parameters[i]);
      if (!made.ok()) {
        return made.status().WithContext(
            base::Concat("the state of parameter ", i));
      }
      state = *std::move(made);
    }
    read.states.push_back(std::move(state));
  }
  return read;
}

Result<OptimizerState> ReadOptimizer(const saved::ContainerReader& reader,
                                     const Value& value,
                                     const optim::Optimizer& optimizer) {
  return WithRule(
      optimizer,
      [&]<class S>(const char* rule,
                   std::type_identity<S>) -> Result<OptimizerState> {
        ASSIGN_OR_RETURN(const std::string* found,
                         Member<std::string>(value, "rule"));
        if (*found != rule) {
          return InvalidArgument("it has the state of ", *found,
                                 ", and the optimizer is ", rule);
        }
        return ReadStates<S>(reader, value, optimizer);
      });
}

void Take(OptimizerState state, optim::Optimizer& optimizer) {
  for (size_t i = 0; i < state.rates.size(); ++i) {
    optimizer.param_groups()[i].options().set_lr(state.rates[i]);
  }
  const std::vector<at::Tensor> parameters = ParametersOf(optimizer);
  for (size_t i = 0; i < parameters.size(); ++i) {
    void* key = parameters[i].unsafeGetTensorImpl();
    if (state.states[i] == nullptr) {
      optimizer.state().erase(key);
    } else {
      optimizer.state()[key] = std::move(state.states[i]);
    }
  }
}

Result<int64_t> LoadFrom(const saved::ContainerReader& reader,
                         torch::nn::Module& module,
                         optim::Optimizer& optimizer) {
  ASSIGN_OR_RETURN(const Dict* model, Member<Dict>(reader.root(), "model"));
  ASSIGN_OR_RETURN(const Dict* state, Member<Dict>(reader.root(), "optimizer"));
  ASSIGN_OR_RETURN(const int64_t* progress,
                   Member<int64_t>(reader.root(), "progress"));
  // All is read and compared before anything changes.
  ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors,
                   ReadTensors(reader, Value{*model}));
  const std::vector<NamedTensor> targets =
      ModuleTensors(module, LayerStyle::kTorch);
  RETURN_IF_ERROR(MatchTensors(targets, tensors));
  ASSIGN_OR_RETURN(OptimizerState optimizer_state,
                   ReadOptimizer(reader, Value{*state}, optimizer));
  RETURN_IF_ERROR(CopyTensors(targets, tensors));
  Take(std::move(optimizer_state), optimizer);
  return *progress;
}

}  // namespace

Status SaveCheckpoint(const base::Path& path, const torch::nn::Module& module,
                      const optim::Optimizer& optimizer, int64_t progress) {
  return WriteContainer(
      path, [&](saved::ContainerWriter& writer) -> Result<Value> {
        Dict dict;
        ASSIGN_OR_RETURN(
            Value model,
            AddTensors(writer, ModuleTensors(module, LayerStyle::kTorch)));
        ASSIGN_OR_RETURN(Value state, AddOptimizer(writer, optimizer));
        dict.items.emplace_back(TextValue("model"), std::move(model));
        dict.items.emplace_back(TextValue("optimizer"), std::move(state));
        dict.items.emplace_back(TextValue("progress"), Value{progress});
        return Value{std::move(dict)};
      });
}

Result<int64_t> LoadCheckpoint(const base::Path& path,
                               torch::nn::Module& module,
                               optim::Optimizer& optimizer) {
  ASSIGN_OR_RETURN(const saved::ContainerReader reader,
                   saved::ContainerReader::Open(path));
  Result<int64_t> progress = LoadFrom(reader, module, optimizer);
  if (!progress.ok()) return progress.status().WithContext(path.string());
  return progress;
}

}  // namespace fleet
