// SPDX-License-Identifier: Apache-2.0
#include "fleet/remote_embedding.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "fleet/ops/host_memory.h"

namespace fleet {
namespace {

using at::Tensor;
using ops::FloatsOf;
using ops::IdsOf;
using ops::MutableFloatsOf;
using ops::OnHost;
using served::DenseValues;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

void Check(Status status) {
  if (!status.ok()) throw sync::ExchangeError(std::move(status));
}

// `anchor` asks for a gradient, so that backward comes here; ids cannot.
class LookUpFunction : public torch::autograd::Function<LookUpFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& /*anchor*/,
                        const Tensor& ids, served::Synchronizer* synchronizer,
                        int64_t table, int64_t dim,
                        const served::LookupOptions* options) {
    const Tensor keys = OnHost(ids.detach(), at::kLong);
    std::vector<int64_t> sizes = ids.sizes().vec();
    sizes.push_back(dim);
    Tensor rows = at::empty(sizes, at::kFloat);
    const served::RowsOfIds lookup{IdsOf(keys), MutableFloatsOf(rows)};
    Check(synchronizer->Fetch(static_cast<table::TableId>(table), {&lookup, 1},
                              *options));
    context->save_for_backward({keys});
    context->saved_data["synchronizer"] =
        static_cast<int64_t>(reinterpret_cast<intptr_t>(synchronizer));
    context->saved_data["table"] = table;
    context->saved_data["padding"] = options->padding;
    return rows.to(ids.device());
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const Tensor keys = context->get_saved_variables()[0];
    auto* const synchronizer = reinterpret_cast<served::Synchronizer*>(
        static_cast<intptr_t>(context->saved_data["synchronizer"].toInt()));
    served::LookupOptions options;
    options.padding = context->saved_data["padding"].toInt();
    const Tensor gradient = OnHost(gradients[0].detach(), at::kFloat);
    const served::GradientsOfIds given{IdsOf(keys), FloatsOf(gradient)};
    Check(synchronizer->Offer(
        static_cast<table::TableId>(context->saved_data["table"].toInt()),
        {&given, 1}, options));
    return tensor_list(6);
  }
};

plan::ServedTable TableOf(const RemoteEmbeddingOptions& options,
                          const ParameterWorker& worker) {
  table::SparseTableOptions table;
  table.name = options.name;
  table.dim = static_cast<size_t>(options.dim);
  table.initializer = options.initializer;
  table.seed = options.seed;
  table.update = options.update;
  table.entry = options.extras.entry.value_or(table::AdmitAll());
  table.show_click = options.extras.show_click;
  table.count_unseen_days = options.extras.count_unseen_days;
  table.time_to_live = options.extras.time_to_live;
  table.max_byte_size = options.extras.max_byte_size;
  table.disk = options.extras.disk;
  table.num_shards = options.extras.num_shards;
  if (worker.options().mode == plan::PsMode::kGeo) {
    table.num_geo_workers = worker.role().worker_num;
  }
  plan::ServedTable served;
  served.spec = {worker.next_table_id(), table};
  served.parameter = options.name;
  served.shape = {options.num_embeddings.value_or(0), options.dim};
  served.sparse = true;
  served.bounded = options.num_embeddings.has_value();
  return served;
}

}  // namespace

Tensor LookUp(ParameterWorker& worker, table::TableId table, const Tensor& ids,
              const served::LookupOptions& options) {
  served::Synchronizer& synchronizer = worker.synchronizer();
  const plan::ServedTable* const served = synchronizer.table(table);
  if (served == nullptr || !served->sparse) {
    Check(InvalidArgument("table ", static_cast<uint32_t>(table),
                          " is not served as a sparse one"));
  }
  Tensor anchor = at::empty({0}, at::kFloat);
  if (options.training) anchor.requires_grad_();
  return LookUpFunction::apply(anchor, ids, &synchronizer,
                               static_cast<int64_t>(table),
                               served->shape.back(), &options);
}

RemoteEmbeddingImpl::RemoteEmbeddingImpl(Job& job,
                                         RemoteEmbeddingOptions options)
    : worker_(job.servers()), options_(std::move(options)) {
  plan::ServedTable table = TableOf(options_, worker_);
  table_ = table.spec.id;
  Check(job.Serve({std::move(table)}));
}

RemoteParameters::RemoteParameters(Job& job,
                                   std::vector<sync::NamedTensor> parameters,
                                   const table::UpdateOptions& update)
    : worker_(job.servers()) {
  std::vector<plan::ServedTable> tables;
  auto next = static_cast<uint32_t>(worker_.next_table_id());
  for (const sync::NamedTensor& parameter : parameters) {
    if (parameter.tensor.scalar_type() != at::kFloat) {
      Check(Unimplemented("parameter ", parameter.name, " is of ",
                          c10::toString(parameter.tensor.scalar_type()),
                          ", and servers have float32"));
    }
    table::DenseSpec spec;
    spec.name = parameter.name;
    spec.size = static_cast<uint64_t>(parameter.tensor.numel());
    spec.update = update;
    plan::ServedTable served;
    served.spec = {static_cast<table::TableId>(next++), spec};
    served.parameter = parameter.name;
    served.shape = parameter.tensor.sizes().vec();
    tables_.push_back(served.spec.id);
    tables.push_back(std::move(served));
    parameters_.push_back(parameter.tensor);
    values_.push_back(OnHost(parameter.tensor.detach(), at::kFloat));
  }
  Check(job.Serve(tables));
  Check(worker_.synchronizer().Initialize(Values()));
  TakeBack();
  for (size_t i = 0; i < tables_.size(); ++i) {
    worker_.homes().Set(tables_[i], values_[i]);
  }
}

std::vector<DenseValues> RemoteParameters::Values() {
  std::vector<DenseValues> values;
  for (size_t i = 0; i < tables_.size(); ++i) {
    values.push_back({tables_[i], MutableFloatsOf(values_[i])});
  }
  return values;
}

void RemoteParameters::TakeBack() {
  const at::NoGradGuard no_history;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (values_[i].data_ptr() != parameters_[i].data_ptr()) {
      parameters_[i].copy_(values_[i]);
    }
  }
}

void RemoteParameters::EndStep() {
  served::Synchronizer& synchronizer = worker_.synchronizer();
  if (worker_.options().mode == plan::PsMode::kGeo) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (values_[i].data_ptr() != parameters_[i].data_ptr()) {
        values_[i].copy_(parameters_[i].detach());
      }
    }
  } else {
    std::vector<Tensor> held;
    std::vector<served::DenseGradient> gradients;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& gradient = parameters_[i].grad();
      held.push_back(gradient.defined()
                         ? OnHost(gradient.detach(), at::kFloat)
                         : at::zeros(parameters_[i].sizes(), at::kFloat));
      gradients.push_back({tables_[i], FloatsOf(held.back())});
    }
    Check(synchronizer.OfferDense(gradients));
  }
  Check(synchronizer.EndStep(Values(), &held_));
  TakeBack();
}

}  // namespace fleet
