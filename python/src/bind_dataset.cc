// SPDX-License-Identifier: Apache-2.0

// Datasets of files, and training from them.

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "fleet/data/dataset.h"
#include "fleet/dataset_training.h"
#include "fleet/exec/trainer.h"
#include "fleet/parameter_server.h"
#include "fleet/sync/sample_exchange.h"

#include "array.h"
#include "collective_call.h"
#include "extensions.h"
#include "job.h"
#include "program.h"
#include "status.h"
#include "tensor.h"

namespace fleet::python {
namespace {

using data::BatchSource;
using data::InMemoryDataset;
using data::QueueDataset;
using Strings = std::vector<std::string>;

// Name, whether it holds floats, whether it is ragged, the sizes of a row.
using SlotTuple = std::tuple<std::string, bool, bool, std::vector<int64_t>>;

data::DatasetOptions OptionsOf(const std::vector<SlotTuple>& slots,
                               int num_threads, std::string pipe_command,
                               int num_texts, bool skip_bad_lines) {
  data::DatasetOptions options{.num_threads = num_threads,
                               .pipe_command = std::move(pipe_command),
                               .num_texts = num_texts,
                               .skip_bad_lines = skip_bad_lines};
  for (const auto& [name, is_float, ragged, dims] : slots) {
    options.slots.push_back(
        {name, is_float ? data::SlotType::kFloat32 : data::SlotType::kInt64,
         ragged, dims});
  }
  return options;
}

// Runs `call` without the GIL and throws its failure.
template <typename Call>
void RunFree(Call call) {
  const Status status = [&] {
    nb::gil_scoped_release release;
    return call();
  }();
  ThrowIfError(status);
}

nb::dict StatsOf(const InMemoryDataset& dataset) {
  const data::ReadStats stats = dataset.stats();
  nb::dict result;
  result["lines"] = stats.num_lines;
  result["samples"] = stats.num_samples;
  result["bytes"] = stats.num_bytes;
  result["skipped"] = stats.num_skipped;
  result["first_skipped"] = stats.first_skipped;
  return result;
}

void GlobalShuffle(InMemoryDataset& dataset, uint64_t seed, Group& group) {
  Run(group, true, [&](comm::Communicator& communicator, base::Deadline until) {
    sync::SampleExchange exchange(communicator);
    return dataset.GlobalShuffle(exchange, seed, until);
  });
}

// ---- batches

at::Tensor Copied(const void* memory, std::vector<int64_t> shape,
                  at::ScalarType type) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions(type));
  if (tensor.nbytes() > 0) {
    std::memcpy(tensor.mutable_data_ptr(), memory, tensor.nbytes());
  }
  return tensor;
}

// One pass, for a loop in Python.
struct Pass {
  std::shared_ptr<BatchSource> source;
  base::InterruptCheck interrupt = MakeSignalCheck();
  data::Batch batch;

  // A list of (name, values, offsets or None), or None at the end.
  nb::object Next() {
    Result<bool> more = [&] {
      nb::gil_scoped_release release;
      return base::WaitInterruptibly(
          base::Deadline::Infinite(), interrupt,
          [&](base::Deadline slice) { return source->Next(batch, slice); });
    }();
    if (!ValueOrThrow(std::move(more))) return nb::none();
    nb::list result;
    const std::vector<data::Slot>& slots = source->slots();
    for (size_t i = 0; i < slots.size(); ++i) {
      const data::Column& column = batch.columns()[i];
      std::vector<int64_t> shape = {
          slots[i].ragged ? column.offsets.back()
                          : static_cast<int64_t>(batch.num_samples())};
      shape.insert(shape.end(), slots[i].dims.begin(), slots[i].dims.end());
      const bool is_float = slots[i].type == data::SlotType::kFloat32;
      at::Tensor values = is_float
                              ? Copied(column.floats.data(), shape, at::kFloat)
                              : Copied(column.ints.data(), shape, at::kLong);
      nb::object offsets = nb::none();
      if (slots[i].ragged) {
        const auto count = static_cast<int64_t>(column.offsets.size());
        offsets =
            nb::cast(Tensor{Copied(column.offsets.data(), {count}, at::kLong)});
      }
      result.append(nb::make_tuple(slots[i].name,
                                   nb::cast(Tensor{std::move(values)}),
                                   std::move(offsets)));
    }
    return result;
  }
};

template <typename Dataset>
std::unique_ptr<Pass> BeginPass(const Dataset& dataset, size_t batch_size,
                                bool drop_last) {
  if (batch_size < 1) {
    ThrowIfError(InvalidArgument("dataset: batch_size must be at least 1"));
  }
  auto pass = std::make_unique<Pass>();
  pass->source = dataset.BeginPass({batch_size, drop_last});
  return pass;
}

// ---- training

class PyTrainer {
 public:
  explicit PyTrainer(const std::string& device)
      : device_(device),
        trainer_(
            [this] {
              nb::gil_scoped_acquire gil;
              auto executor = std::make_unique<exec::Executor>(
                  Library(),
                  ops::Context{device_, DefaultContext().default_dtype});
              AddExtensions(*executor, device_);
              return executor;
            },
            device_) {}
  PyTrainer(const PyTrainer&) = delete;
  PyTrainer& operator=(const PyTrainer&) = delete;

  // `look(values)` gets arrays of the variables `watched`.
  std::pair<uint64_t, uint64_t> Run(const ProgramRef& program,
                                    const std::shared_ptr<exec::Scope>& scope,
                                    Pass& pass, const std::string& name,
                                    int num_threads, Strings fetches,
                                    Strings fetch_names, uint64_t print_period,
                                    bool debug, Strings watched, double period,
                                    nb::object look) {
    exec::TrainOptions options{.name = name,
                               .num_threads = num_threads,
                               .fetches = std::move(fetches),
                               .fetch_names = std::move(fetch_names),
                               .print_period = print_period,
                               .debug = debug};
    options.interrupt = pass.interrupt;
    if (!look.is_none()) {
      options.watch.names = std::move(watched);
      options.watch.period =
          std::chrono::milliseconds(static_cast<int64_t>(period * 1000));
      options.watch.look = [&](const std::vector<at::Tensor>& values) {
        return Look(look, values);
      };
    }
    AddThreadsOfWorker(*program->graph, options);
    Result<exec::TrainStats> stats = [&]() -> Result<exec::TrainStats> {
      nb::gil_scoped_release release;
      RETURN_IF_ERROR(TheJobs().Prepare(*program->graph));
      return trainer_.Run(*program->graph, *scope, *pass.source, options);
    }();
    const exec::TrainStats done = ValueOrThrow(std::move(stats));
    EndPass(*program->graph, *scope);
    return {done.num_batches, done.num_samples};
  }

 private:
  static Status Look(const nb::object& look,
                     const std::vector<at::Tensor>& values) {
    nb::gil_scoped_acquire gil;
    try {
      nb::list arrays;
      for (const at::Tensor& value : values) {
        arrays.append(ArrayFromTensor(value, false));
      }
      look(arrays);
      return OkStatus();
    } catch (nb::python_error& error) {
      // Left to ThrowIfError, on this thread.
      std::string text = error.what();
      error.restore();
      return InvalidArgument(std::move(text));
    }
  }

  // All workers end a pass together, whoever has more batches.
  static void EndPass(const program::Program& program, exec::Scope& scope) {
    Job* const job = TheJobs().served();
    if (!EndsAtServers(program) || job == nullptr) return;
    RunFree([&]() -> Status {
      RETURN_IF_ERROR(job->Connect());
      return job->servers().EndPass(scope).WithContext("the end of a pass");
    });
  }

  // In a job with servers, steps of threads belong together.
  static void AddThreadsOfWorker(const program::Program& program,
                                 exec::TrainOptions& options) {
    Job* const job = TheJobs().served();
    if (!EndsAtServers(program) || job == nullptr) return;
    // It is connected by then: Run prepares the program.
    options.on_threads = [job](int num_threads) {
      job->servers().BeginThreads(num_threads);
    };
    options.on_thread_end = [job] { job->servers().EndThread(); };
  }

  const at::Device device_;
  exec::Trainer trainer_;
};

}  // namespace

void BindDataset(nb::module_& m) {
  nb::class_<InMemoryDataset>(m, "InMemoryDataset",
                              "Samples of files, in memory.")
      .def_static(
          "make",
          [](const std::vector<SlotTuple>& slots, int num_threads,
             const std::string& pipe_command, int num_texts,
             bool skip_bad_lines) {
            return ValueOrThrow(InMemoryDataset::Make(OptionsOf(
                slots, num_threads, pipe_command, num_texts, skip_bad_lines)));
          })
      .def("set_files", &InMemoryDataset::SetFiles)
      .def("load",
           [](InMemoryDataset& self) {
             const base::InterruptCheck check = MakeSignalCheck();
             RunFree([&] { return self.Load(check); });
           })
      .def("preload",
           [](InMemoryDataset& self, int num_threads) {
             RunFree([&] { return self.Preload(num_threads); });
           })
      .def("wait_preloaded",
           [](InMemoryDataset& self) {
             const base::InterruptCheck check = MakeSignalCheck();
             RunFree([&] { return self.WaitPreloaded(check); });
           })
      .def("local_shuffle", &InMemoryDataset::LocalShuffle,
           nb::call_guard<nb::gil_scoped_release>())
      .def("global_shuffle", GlobalShuffle)
      .def("shuffle_slots",
           [](InMemoryDataset& self, const Strings& slots, uint64_t seed) {
             RunFree([&] { return self.ShuffleSlots(slots, seed); });
           })
      .def("release", &InMemoryDataset::Release,
           nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("num_samples", &InMemoryDataset::num_samples)
      .def_prop_ro("byte_size", &InMemoryDataset::byte_size)
      .def_prop_ro("stats", StatsOf)
      .def("begin_pass", BeginPass<InMemoryDataset>, nb::arg("batch_size"),
           nb::arg("drop_last"));
  nb::class_<QueueDataset>(m, "QueueDataset",
                           "Samples of files, read while they are used.")
      .def_static(
          "make",
          [](const std::vector<SlotTuple>& slots, int num_threads,
             const std::string& pipe_command, int num_texts,
             bool skip_bad_lines) {
            return ValueOrThrow(QueueDataset::Make(OptionsOf(
                slots, num_threads, pipe_command, num_texts, skip_bad_lines)));
          })
      .def("set_files", &QueueDataset::SetFiles)
      .def("begin_pass", BeginPass<QueueDataset>, nb::arg("batch_size"),
           nb::arg("drop_last"));
  nb::class_<Pass>(m, "DatasetPass", "Batches of one pass over a dataset.")
      .def("next", &Pass::Next);
  nb::class_<PyTrainer>(m, "Trainer", "Threads that train from a dataset.")
      .def(nb::init<const std::string&>(), nb::arg("device"))
      .def("run", &PyTrainer::Run, nb::arg("program"), nb::arg("scope"),
           nb::arg("batches"), nb::arg("name"), nb::arg("num_threads"),
           nb::arg("fetches"), nb::arg("fetch_names"), nb::arg("print_period"),
           nb::arg("debug"), nb::arg("watched"), nb::arg("period"),
           nb::arg("look").none());
}

}  // namespace fleet::python
