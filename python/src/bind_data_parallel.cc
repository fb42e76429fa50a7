// SPDX-License-Identifier: Apache-2.0

// Data parallel training, for paddle.DataParallel and SyncBatchNorm.

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "fleet/sync/reducer.h"
#include "fleet/sync/sync_batch_norm.h"

#include "job.h"
#include "status.h"
#include "tensor.h"

namespace fleet::python {
namespace {

// A name, a tensor, and whether its gradients are rows.
using Named = std::tuple<std::string, Tensor*, bool>;

std::vector<sync::NamedTensor> NamedTensors(const std::vector<Named>& list) {
  std::vector<sync::NamedTensor> tensors;
  for (const auto& [name, tensor, sparse] : list) {
    tensors.push_back({name, tensor->value, sparse});
  }
  return tensors;
}

void RequireMember(const Group& group, const char* what) {
  if (group.communicator() != nullptr) return;
  ThrowIfError(InvalidArgument(what, ": rank ", group.job().rank(),
                               " is not in group ", group.id()));
}

std::unique_ptr<sync::Reducer> MakeReducer(const std::vector<Named>& parameters,
                                           const std::vector<Named>& buffers,
                                           nb::handle group,
                                           size_t bucket_bytes,
                                           size_t last_bucket_bytes) {
  Group& g = GroupOf(group);
  RequireMember(g, "DataParallel");
  sync::ReducerOptions options{
      .bucket_bytes = bucket_bytes,
      .last_bucket_bytes = last_bucket_bytes,
      .ranks_on_host = g.job().role().local_size.value_or(0),
      .timeout = g.timeout(),
      .interrupt = g.job().interrupt()};
  std::vector<sync::NamedTensor> named_parameters = NamedTensors(parameters);
  std::vector<sync::NamedTensor> named_buffers = NamedTensors(buffers);
  Result<std::unique_ptr<sync::Reducer>> made = [&] {
    nb::gil_scoped_release release;
    return g.Run([&](comm::Communicator& communicator, base::Deadline) {
      return sync::Reducer::Make(communicator, std::move(named_parameters),
                                 std::move(named_buffers), options);
    });
  }();
  return ValueOrThrow(std::move(made));
}

Tensor SyncBatchNorm(const Tensor& input, std::optional<Tensor> weight,
                     std::optional<Tensor> bias, std::optional<Tensor> mean,
                     std::optional<Tensor> variance, nb::handle group,
                     int64_t channel_axis, double momentum, double epsilon) {
  Group& g = GroupOf(group);
  auto value = [](const std::optional<Tensor>& t) {
    return t ? t->value : at::Tensor();
  };
  RequireMember(g, "SyncBatchNorm");
  sync::SyncBatchNormOptions options{.channel_axis = channel_axis,
                                     .epsilon = epsilon,
                                     .momentum = momentum,
                                     .timeout = g.timeout()};
  Result<at::Tensor> normalized = [&] {
    nb::gil_scoped_release release;
    return g.Run([&](comm::Communicator& communicator,
                     base::Deadline) -> Result<at::Tensor> {
      return sync::SyncBatchNorm(communicator, input.value, value(weight),
                                 value(bias), value(mean), value(variance),
                                 options);
    });
  }();
  return Tensor{ValueOrThrow(std::move(normalized))};
}

// What an exchange in the middle of backward throws.
void TranslateExchangeError(const std::exception_ptr& exception, void*) {
  try {
    std::rethrow_exception(exception);
  } catch (const sync::ExchangeError& error) {
    try {
      ThrowIfError(error.status());
    } catch (nb::python_error& raised) {
      raised.restore();
    }
  }
}

}  // namespace

void BindDataParallel(nb::module_& m) {
  const auto group = nb::arg("group").none();
  nb::register_exception_translator(TranslateExchangeError);
  nb::class_<sync::Reducer>(m, "Reducer", "Averages gradients over ranks.")
      .def_static("make", MakeReducer, nb::arg("parameters"),
                  nb::arg("buffers"), group, nb::arg("bucket_bytes"),
                  nb::arg("last_bucket_bytes"))
      .def_prop_rw("sync", &sync::Reducer::sync, &sync::Reducer::set_sync)
      .def("join",
           [](sync::Reducer& self) {
             Status status;
             {
               nb::gil_scoped_release release;
               status = self.Join();
             }
             ThrowIfError(status);
           })
      .def("stats", [](const sync::Reducer& self) {
        const sync::Reducer::Stats stats = self.stats();
        nb::dict result;
        result["num_buckets"] = stats.num_buckets;
        result["rounds"] = stats.rounds;
        result["copied"] = stats.copied;
        result["in_place"] = stats.in_place;
        return result;
      });
  m.def("sync_batch_norm", SyncBatchNorm, nb::arg("input"),
        nb::arg("weight").none(), nb::arg("bias").none(),
        nb::arg("mean").none(), nb::arg("variance").none(), group,
        nb::arg("channel_axis"), nb::arg("momentum"), nb::arg("epsilon"));
}

}  // namespace fleet::python
