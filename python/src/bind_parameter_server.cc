// SPDX-License-Identifier: Apache-2.0

// Training with parameter servers: programs whose parameters are on servers,
// and a server's life. A worker's is in bind_job.cc.

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/parameter_server.h"
#include "fleet/plan/parameter_server.h"
#include "fleet/table/learning_rate.h"
#include "fleet/table/options.h"

#include "job.h"
#include "program.h"
#include "status.h"

namespace fleet::python {
namespace {

using plan::ParameterServerPlan;
using plan::ServedTable;
using plan::SparseExtras;
using table::LearningRate;

// ---- what tables are

void BindLearningRate(nb::module_& m) {
  const auto make = [](double base, table::RateSchedule schedule) {
    LearningRate rate{.base = base, .schedule = std::move(schedule)};
    ThrowIfError(table::CheckLearningRate(rate));
    return rate;
  };
  nb::class_<LearningRate>(m, "LearningRate",
                           "A rate that servers work out step by step.")
      .def_static(
          "constant",
          [make](double base) { return make(base, table::ConstantRate{}); })
      .def_static("exponential",
                  [make](double base, double rate, double steps, bool stairs) {
                    return make(base,
                                table::ExponentialDecay{rate, steps, stairs});
                  })
      .def_static("natural_exp",
                  [make](double base, double rate, double steps, bool stairs) {
                    return make(base,
                                table::NaturalExpDecay{rate, steps, stairs});
                  })
      .def_static("inverse_time",
                  [make](double base, double rate, double steps, bool stairs) {
                    return make(base,
                                table::InverseTimeDecay{rate, steps, stairs});
                  })
      .def_static("noam",
                  [make](double base, double d_model, double warmup_steps) {
                    return make(base, table::NoamDecay{d_model, warmup_steps});
                  })
      .def_static("polynomial",
                  [make](double base, double steps, double end, double power,
                         bool cycle) {
                    return make(
                        base, table::PolynomialDecay{steps, end, power, cycle});
                  })
      .def_static("cosine",
                  [make](double base, double length, double end, double steps,
                         double growth) {
                    return make(base, table::CosineDecay{length, end, steps,
                                                         true, growth});
                  })
      .def_static("cyclic",
                  [make](double base, double max, double up, double down,
                         double per_cycle, double per_period, double steps) {
                    return make(base,
                                table::CyclicRate{max, up, down, per_cycle,
                                                  per_period, steps, true});
                  })
      .def_static(
          "piecewise",
          [make](std::vector<uint64_t> boundaries, std::vector<double> values) {
            const double base = values.empty() ? 0.0 : values[0];
            return make(base, table::PiecewiseDecay{std::move(boundaries),
                                                    std::move(values)});
          })
      .def_static(
          "told",
          [make](std::string name, double base) {
            return make(base, table::ToldRate{.name = std::move(name)});
          },
          nb::arg("name"), nb::arg("base"),
          "`base`, until Job.set_rate says another one.")
      .def(
          "warm_up",
          [](LearningRate& self, uint64_t steps, double start, double end,
             uint64_t stair) {
            self.warmup = {.steps = steps,
                           .start = start,
                           .end = end,
                           .stair = stair,
                           .begin = steps};
            ThrowIfError(table::CheckLearningRate(self));
          },
          "A line from `start` to `end` in so many steps, then the schedule.")
      .def_rw("first_step", &LearningRate::first_step)
      .def("of_step", table::RateOfStep, nb::arg("step"));
}

void BindExtras(nb::module_& m) {
  using table::ShowClickOptions;
  nb::class_<ShowClickOptions>(m, "ShowClickOptions")
      .def(nb::init<>())
      .def_rw("nonclick_coefficient", &ShowClickOptions::nonclick_coefficient)
      .def_rw("click_coefficient", &ShowClickOptions::click_coefficient)
      .def_rw("extended_from", &ShowClickOptions::extended_from)
      .def_rw("extend_threshold", &ShowClickOptions::extend_threshold)
      .def_rw("fade", &ShowClickOptions::fade)
      .def_rw("delete_threshold", &ShowClickOptions::delete_threshold)
      .def_rw("delete_after_unseen_days",
              &ShowClickOptions::delete_after_unseen_days)
      .def_rw("base_threshold", &ShowClickOptions::base_threshold)
      .def_rw("delta_threshold", &ShowClickOptions::delta_threshold)
      .def_rw("delta_keep_days", &ShowClickOptions::delta_keep_days);
  nb::class_<SparseExtras>(m, "SparseExtras",
                           "What a program does not say of a sparse table.")
      .def(nb::init<>())
      .def_rw("count_unseen_days", &SparseExtras::count_unseen_days)
      .def_rw("show_click", &SparseExtras::show_click)
      .def_rw("max_byte_size", &SparseExtras::max_byte_size)
      .def_prop_rw(
          "time_to_live",
          [](const SparseExtras& e) { return e.time_to_live.count(); },
          [](SparseExtras& e, int64_t seconds) {
            e.time_to_live = std::chrono::seconds(seconds);
          })
      .def(
          "set_disk",
          [](SparseExtras& e, std::string folder, uint64_t memory_byte_size) {
            e.disk = {.folder = std::move(folder),
                      .memory_byte_size = memory_byte_size};
          },
          nb::arg("folder"), nb::arg("memory_byte_size"),
          "Rows beyond so much memory go to a folder of each server.");
}

void BindTables(nb::module_& m) {
  nb::class_<ServedTable>(m, "ServedTable", "A parameter that servers have.")
      .def_ro("parameter", &ServedTable::parameter)
      .def_ro("gradient", &ServedTable::gradient)
      .def_ro("shape", &ServedTable::shape)
      .def_ro("sparse", &ServedTable::sparse)
      .def_ro("bounded", &ServedTable::bounded)
      .def_prop_ro(
          "id",
          [](const ServedTable& t) { return static_cast<uint32_t>(t.spec.id); })
      .def("__repr__", [](const ServedTable& t) {
        return base::Concat("ServedTable(", t.parameter,
                            ", id=", static_cast<uint32_t>(t.spec.id),
                            t.sparse ? ", sparse" : ", dense", ")");
      });
  nb::class_<ParameterServerPlan>(m, "ParameterServerPlan")
      .def_ro("tables", &ParameterServerPlan::tables)
      .def_ro("passes", &ParameterServerPlan::passes);
}

// ---- programs

void BindServedPrograms(nb::module_& m) {
  m.def(
      "serve_parameters",
      [](const ProgramRef& main, const ProgramRef& startup,
         const cluster::Role& role, const std::string& mode, uint64_t seed,
         std::vector<ServedTable> served,
         std::map<std::string, LearningRate> schedules,
         std::map<std::string, SparseExtras> extras, bool drop_nonfinite) {
        const plan::ParameterServerStrategy strategy{
            .mode = ValueOrThrow(plan::ParsePsMode(mode)),
            .seed = seed,
            .served = std::move(served),
            .schedules = std::move(schedules),
            .extras = std::move(extras),
            .drop_nonfinite = drop_nonfinite};
        return ValueOrThrow(plan::ServeParameters(*main->graph, *startup->graph,
                                                  strategy, role));
      },
      nb::arg("main"), nb::arg("startup"), nb::arg("role"), nb::arg("mode"),
      nb::arg("seed"), nb::arg("served"), nb::arg("schedules"),
      nb::arg("extras"), nb::arg("drop_nonfinite"),
      "Rewrites programs for a job with servers, in place.");
  m.def(
      "serve_lookups",
      [](const ProgramRef& program, const std::vector<ServedTable>& tables,
         bool is_test) {
        return ValueOrThrow(
            plan::ServeLookups(*program->graph, tables, is_test));
      },
      nb::arg("program"), nb::arg("tables"), nb::arg("is_test"),
      "Has look-ups of served parameters ask servers; returns how many.");
  m.def(
      "restore_lookups",
      [](const ProgramRef& program, const std::vector<ServedTable>& tables) {
        ThrowIfError(plan::RestoreLookups(*program->graph, tables));
      },
      nb::arg("program"), nb::arg("tables"));
}

// ---- a server

void RunServer(const cluster::Role& role, const std::string& load_folder,
               std::vector<std::string> load_only,
               const std::optional<std::string>& durability) {
  ServerOptions options;
  options.load_folder = load_folder;
  options.load_only = std::move(load_only);
  if (durability.has_value()) {
    options.durability = ValueOrThrow(ps::ParseDurability(*durability));
  }
  options.interrupt = MakeSignalCheck();
  const Status served = [&]() -> Status {
    nb::gil_scoped_release release;
    ASSIGN_OR_RETURN(std::unique_ptr<ParameterServer> server,
                     ParameterServer::Start(role, options));
    return server->Run();
  }();
  ThrowIfError(served);
}

}  // namespace

void BindParameterServer(nb::module_& m) {
  BindLearningRate(m);
  BindExtras(m);
  BindTables(m);
  BindServedPrograms(m);
  m.def("run_server", RunServer, nb::arg("role"), nb::arg("load_folder"),
        nb::arg("load_only"), nb::arg("durability") = nb::none(),
        "Serves until every worker of the job has stopped.");
}

}  // namespace fleet::python
