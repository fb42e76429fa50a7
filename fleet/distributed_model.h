// SPDX-License-Identifier: Apache-2.0

// torch::nn models and torch::optim optimizers on all ranks of a job. What they
// do on the way is said in sync/reducer.h.
//
//   fleet::DistributedModel model(*job, Net());
//   fleet::DistributedOptimizer optimizer(
//       *job, torch::optim::Adam(model->parameters(), 1e-3));
//   torch::Tensor loss = Loss(model(x), y);   // of this rank's part of a batch
//   optimizer.zero_grad();
//   loss.backward();                          // gradients of all ranks
//   optimizer.step();
//
// As in LibTorch, failures are exceptions here: sync::ExchangeError.

#ifndef FLEET_DISTRIBUTED_MODEL_H_
#define FLEET_DISTRIBUTED_MODEL_H_

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

#include "fleet/job.h"
#include "fleet/save.h"
#include "fleet/sync/reducer.h"
#include "fleet/sync/sync_batch_norm.h"

namespace fleet {

// A model of which every rank of `job` has a copy. Made on all ranks, it makes
// their parameters and buffers equal to those of rank 0. `job` outlives it and
// the graphs of its outputs.
template <class Module>
class DistributedModel final {
 public:
  DistributedModel(Job& job, std::shared_ptr<Module> module,
                   sync::ReducerOptions options = {});
  // `Net` of TORCH_MODULE(Net).
  DistributedModel(Job& job, const torch::nn::ModuleHolder<Module>& holder,
                   sync::ReducerOptions options = {})
      : DistributedModel(job, holder.ptr(), std::move(options)) {}

  Module* operator->() const { return module_.get(); }
  Module& operator*() const { return *module_; }
  const std::shared_ptr<Module>& ptr() const { return module_; }

  template <class... Args>
  auto operator()(Args&&... args) const {
    return module_->forward(std::forward<Args>(args)...);
  }

  // Runs `f` with gradients that stay on this rank and add up; the next
  // backward outside exchanges them, or DistributedOptimizer::step.
  template <class F>
  auto NoSync(F f) const {
    struct Guard {
      explicit Guard(sync::Reducer& r) : reducer(r) { r.set_sync(false); }
      ~Guard() { reducer.set_sync(true); }
      sync::Reducer& reducer;
    } guard(*reducer_);
    return f();
  }

  // This rank has no batch left; see Reducer::Join.
  void Join() const {
    Status status = reducer_->Join();
    if (!status.ok()) throw sync::ExchangeError(std::move(status));
  }

  sync::Reducer& reducer() const { return *reducer_; }

 private:
  std::shared_ptr<Module> module_;
  std::unique_ptr<sync::Reducer> reducer_;
};

template <class Holder>
DistributedModel(Job&, Holder)
    -> DistributedModel<typename Holder::ContainedType>;
template <class Module>
DistributedModel(Job&, std::shared_ptr<Module>) -> DistributedModel<Module>;

// An optimizer of a DistributedModel's parameters: a step is the same on all
// ranks. Owns the optimizer.
template <class Optimizer>
class DistributedOptimizer final {
 public:
  DistributedOptimizer(Job&, Optimizer optimizer)
      : optimizer_(std::make_unique<Optimizer>(std::move(optimizer))) {}

  Optimizer* operator->() const { return optimizer_.get(); }
  Optimizer& operator*() const { return *optimizer_; }

  // Gradients that DistributedModel::NoSync left on this rank are exchanged
  // first. Throws sync::ExchangeError, before anything changed.
  auto step() const {
    for (const auto& group : optimizer_->param_groups()) {
      Status joined = sync::Reducer::JoinGradients(group.params());
      if (!joined.ok()) throw sync::ExchangeError(std::move(joined));
    }
    return optimizer_->step();
  }
  void zero_grad(bool set_to_none = true) const {
    optimizer_->zero_grad(set_to_none);
  }

  double get_lr() const {
    return optimizer_->param_groups().at(0).options().get_lr();
  }
  void set_lr(double rate) const {
    for (auto& group : optimizer_->param_groups()) {
      group.options().set_lr(rate);
    }
  }

 private:
  std::unique_ptr<Optimizer> optimizer_;
};

// torch::nn::BatchNorm over the batches of all ranks, for any number of axes.
class SyncBatchNormImpl : public torch::nn::Module {
 public:
  // `momentum` is LibTorch's: the weight of the batch in running values.
  SyncBatchNormImpl(Job& job, int64_t num_features, double eps = 1e-5,
                    double momentum = 0.1)
      : job_(job), eps_(eps), momentum_(momentum) {
    weight = register_parameter("weight", torch::ones({num_features}));
    bias = register_parameter("bias", torch::zeros({num_features}));
    running_mean =
        register_buffer("running_mean", torch::zeros({num_features}));
    running_var = register_buffer("running_var", torch::ones({num_features}));
  }

  torch::Tensor forward(const torch::Tensor& input) {
    if (!is_training()) {
      return torch::batch_norm(input, weight, bias, running_mean, running_var,
                               false, momentum_, eps_, false);
    }
    sync::SyncBatchNormOptions options;
    options.epsilon = eps_;
    options.momentum = 1 - momentum_;
    options.unbiased = true;
    options.timeout = job_.timeout();
    return sync::SyncBatchNorm(job_.communicator(), input, weight, bias,
                               running_mean, running_var, options);
  }

  torch::Tensor weight, bias, running_mean, running_var;

 private:
  Job& job_;
  const double eps_, momentum_;
};
TORCH_MODULE(SyncBatchNorm);

template <class Module>
DistributedModel<Module>::DistributedModel(Job& job,
                                           std::shared_ptr<Module> module,
                                           sync::ReducerOptions options)
    : module_(std::move(module)) {
  // Weights whose gradients have only the rows that were looked up.
  std::vector<c10::TensorImpl*> sparse;
  for (const auto& part : module_->modules()) {
    if (auto* embedding = part->template as<torch::nn::Embedding>();
        embedding != nullptr && embedding->options.sparse()) {
      sparse.push_back(embedding->weight.unsafeGetTensorImpl());
    }
    if (auto* bag = part->template as<torch::nn::EmbeddingBag>();
        bag != nullptr && bag->options.sparse()) {
      sparse.push_back(bag->weight.unsafeGetTensorImpl());
    }
  }
  std::vector<sync::NamedTensor> parameters, buffers;
  for (const auto& item : module_->named_parameters()) {
    const bool is_sparse =
        std::find(sparse.begin(), sparse.end(),
                  item.value().unsafeGetTensorImpl()) != sparse.end();
    parameters.push_back({item.key(), item.value(), is_sparse});
  }
  for (const auto& item : module_->named_buffers()) {
    buffers.push_back({item.key(), item.value()});
  }
  if (!options.timeout.has_value()) options.timeout = job.timeout();
  if (options.ranks_on_host == 0) {
    options.ranks_on_host = job.role().local_size.value_or(0);
  }
  auto made = sync::Reducer::Make(job.communicator(), std::move(parameters),
                                  std::move(buffers), std::move(options));
  if (!made.ok()) throw sync::ExchangeError(made.status());
  reducer_ = std::move(made).value();
}

}  // namespace fleet

#endif  // FLEET_DISTRIBUTED_MODEL_H_
