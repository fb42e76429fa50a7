// SPDX-License-Identifier: Apache-2.0

// torch::nn models whose parameters are on servers.
//
//   ASSIGN_OR_RETURN(auto job,
//                    fleet::Job::Init({.servers = fleet::WorkerOptions{}}));
//   fleet::RemoteEmbedding embedding(
//       *job, fleet::RemoteEmbeddingOptions{.name = "emb", .dim = 16});
//   Net net;                                             // torch::nn
//   fleet::RemoteParameters parameters(*job, net->named_parameters(), sgd);
//   for (auto& batch : *loader) {
//     net->zero_grad();
//     torch::Tensor rows = embedding(batch.ids);   // from the servers
//     Loss(net(rows), batch.y).backward();         // gradients of rows leave
//     parameters.EndStep();                        // in place of step()
//   }
//   RETURN_IF_ERROR(job->Finish());
//
// All workers make the same tables in the same order. As in LibTorch, failures
// are exceptions here: sync::ExchangeError.

#ifndef FLEET_REMOTE_EMBEDDING_H_
#define FLEET_REMOTE_EMBEDDING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "fleet/parameter_server.h"
#include "fleet/sync/reducer.h"
#include "fleet/sync/state.h"
#include "fleet/table/options.h"

namespace fleet {

struct RemoteEmbeddingOptions {
  std::string name;
  int64_t dim = 0;
  // Ids are less than this. Unset: any 64 bits.
  std::optional<int64_t> num_embeddings;
  // The row of this id is zero, and never learns. -1: none.
  int64_t padding_idx = -1;
  table::Initializer initializer = table::UniformInit{-0.05f, 0.05f};
  uint64_t seed = 0;
  // The rule of the servers, and in geo mode of the worker.
  table::UpdateOptions update;
  // Which ids get rows, how long they live, where they lie.
  plan::SparseExtras extras;
};

// Rows of a table, with a history: their gradients are given to the worker's
// synchronizer when backward reaches them. Each forward is followed by at most
// one backward.
at::Tensor LookUp(ParameterWorker& worker, table::TableId table,
                  const at::Tensor& ids, const served::LookupOptions& options);

// torch::nn::Embedding whose weight is on the servers of `job`, which is
// connected and outlives it and the graphs of its outputs.
class RemoteEmbeddingImpl : public torch::nn::Module {
 public:
  RemoteEmbeddingImpl(Job& job, RemoteEmbeddingOptions options);

  // [...] of int64 or int32 becomes [..., dim]. In eval mode nothing changes
  // on the servers.
  at::Tensor forward(const at::Tensor& ids) {
    return LookUp(worker_, table_, ids,
                  {.training = is_training(), .padding = options_.padding_idx});
  }

  const RemoteEmbeddingOptions& options() const { return options_; }

 private:
  ParameterWorker& worker_;
  const RemoteEmbeddingOptions options_;
  table::TableId table_;
};
TORCH_MODULE(RemoteEmbedding);

// Parameters of float32 that the servers update; every worker has a copy. They
// begin as worker 0 has them, unless the servers have values.
class RemoteParameters final {
 public:
  // Called by all workers, who wait for each other. In geo mode `update` is not
  // used: the worker's optimizer makes the changes, before EndStep.
  RemoteParameters(Job& job, std::vector<sync::NamedTensor> parameters,
                   const table::UpdateOptions& update);
  // net->named_parameters()
  template <class Dict>
  RemoteParameters(Job& job, const Dict& parameters,
                   const table::UpdateOptions& update)
      : RemoteParameters(job, ListOf(parameters), update) {}

  // Ends a step of this worker: gradients go, and parameters are the newest in
  // place. One that has no gradient counts as zero. Stands where an optimizer's
  // step() would; gradients stay.
  void EndStep();

 private:
  template <class Dict>
  static std::vector<sync::NamedTensor> ListOf(const Dict& parameters) {
    std::vector<sync::NamedTensor> list;
    for (const auto& item : parameters) {
      list.push_back({item.key(), item.value()});
    }
    return list;
  }
  std::vector<served::DenseValues> Values();
  void TakeBack();

  ParameterWorker& worker_;
  std::vector<table::TableId> tables_;
  std::vector<at::Tensor> parameters_;
  // The parameters themselves, or their copies in the host's memory.
  std::vector<at::Tensor> values_;
  served::HeldValues held_;
};

}  // namespace fleet

#endif  // FLEET_REMOTE_EMBEDDING_H_
