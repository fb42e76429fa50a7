// SPDX-License-Identifier: Apache-2.0

// The jobs of this process and their groups, for paddle.distributed, and what a
// worker asks of its servers, for paddle.distributed.fleet.

#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/cluster/endpoint.h"
#include "fleet/comm/communicator.h"
#include "fleet/parameter_server.h"
#include "fleet/plan/parameter_server.h"

#include "collective_call.h"
#include "job.h"
#include "status.h"
#include "tensor.h"

namespace fleet::python {
namespace {

namespace nb = nanobind;

nb::dict StatsOf(const served::SynchronizerStats& stats) {
  nb::dict out;
  out["steps"] = stats.steps;
  out["staleness"] = stats.staleness;
  out["max_staleness"] = stats.max_staleness;
  out["queued"] = stats.queued;
  out["max_queued"] = stats.max_queued;
  out["waits"] = stats.waits;
  out["waited_seconds"] = stats.waited_seconds;
  out["pushes"] = stats.pushes;
  out["pushed"] = stats.pushed;
  out["pulls"] = stats.pulls;
  out["exchanges"] = stats.exchanges;
  out["lost_updates"] = stats.lost_updates;
  out["server_restarts"] = stats.server_restarts;
  return out;
}

nb::dict StatsOf(const table::SparseTableStats& stats) {
  nb::dict out;
  out["rows"] = stats.num_rows;
  out["byte_size"] = stats.byte_size;
  out["nonfinite"] = stats.num_nonfinite;
  out["expired"] = stats.num_expired;
  out["step"] = stats.step;
  return out;
}

// What `call` returns, which is made without the GIL. Throws its failure.
template <class Call>
auto Free(Call call) {
  auto result = [&] {
    nb::gil_scoped_release release;
    return call();
  }();
  if constexpr (std::is_same_v<decltype(result), Status>) {
    ThrowIfError(result);
  } else {
    return ValueOrThrow(std::move(result));
  }
}

// The same for a call to the servers of a job, which connects if it has to.
template <class Call>
auto WithServers(Job& job, Call call) {
  return Free([&]() -> decltype(call(std::declval<ParameterWorker&>())) {
    RETURN_IF_ERROR(job.Connect());
    return call(job.servers());
  });
}

// ---- jobs

Job* Meet(int rank, int size, const std::string& endpoint) {
  cluster::Endpoint at =
      ValueOrThrow(cluster::ParseEndpoint(endpoint, "server_endpoint"));
  JobOptions options;
  options.role = cluster::Role{.index = rank,
                               .worker_num = size,
                               .master = std::move(at),
                               .is_collective = true,
                               .source = cluster::RoleSource::kUser};
  options.interrupt = MakeSignalCheck();
  ProcessJobs& jobs = TheJobs();
  return Free([&] { return jobs.Meet(std::move(options)); });
}

Job* MakeWithServers(const cluster::Role& role, const std::string& mode,
                     std::optional<uint64_t> geo_steps,
                     std::optional<uint32_t> max_merge,
                     std::optional<uint32_t> queue_size) {
  WorkerOptions servers;
  servers.mode = ValueOrThrow(plan::ParsePsMode(mode));
  if (geo_steps) servers.geo_steps = *geo_steps;
  if (max_merge) servers.max_merge = *max_merge;
  if (queue_size) servers.queue_size = *queue_size;
  JobOptions options;
  options.role = role;
  options.servers = std::move(servers);
  options.interrupt = MakeSignalCheck();
  return &TheJobs().Add(ValueOrThrow(Job::Make(std::move(options))));
}

nb::list AllGather(Job& self, const nb::bytes& bytes) {
  const std::string_view mine(bytes.c_str(), bytes.size());
  nb::list all;
  for (const std::string& part :
       Free([&]() -> Result<std::vector<std::string>> {
         RETURN_IF_ERROR(self.Connect());
         return self.AllGather(mine);
       })) {
    all.append(nb::bytes(part.data(), part.size()));
  }
  return all;
}

nb::class_<Job> BindJobs(nb::module_& m) {
  nb::class_<Job> job(m, "Job", "This process as a worker of a job.");
  job.def_static("meet", Meet, nb::rv_policy::reference, nb::arg("rank"),
                 nb::arg("size"), nb::arg("endpoint"),
                 "A job of its own whose ranks meet where rank 0 listens.")
      .def_static(
          "with_servers", MakeWithServers, nb::rv_policy::reference,
          nb::arg("role"), nb::arg("mode"), nb::arg("geo_steps") = nb::none(),
          nb::arg("max_merge") = nb::none(), nb::arg("queue_size") = nb::none(),
          "A worker that connects to the servers of its role when it "
          "first needs them. Programs ask the one that was made last.")
      .def("connect", [](Job& self) { Free([&] { return self.Connect(); }); })
      .def_prop_ro("connected", &Job::connected)
      .def_prop_ro("finished", &Job::finished)
      .def("finish", [](Job& self) { Free([&] { return self.Finish(); }); })
      .def(
          "barrier",
          [](Job& self, const std::string& name) {
            Free([&]() -> Status {
              RETURN_IF_ERROR(self.Connect());
              return self.Barrier(name);
            });
          },
          nb::arg("name") = "barrier")
      .def("all_gather", AllGather, nb::arg("bytes"),
           "What every worker gave, by worker.")
      .def_prop_ro(
          "group", [](Job& self) { return &self.group(); },
          nb::rv_policy::reference, "All ranks, where there are no servers.");

  m.def(
      "init_parallel",
      [](const cluster::Role& role) {
        JobOptions options;
        options.role = role;
        options.interrupt = MakeSignalCheck();
        ProcessJobs& jobs = TheJobs();
        return &Free([&] { return jobs.Begin(std::move(options)); })->group();
      },
      nb::rv_policy::reference, nb::arg("role"),
      "Begins the current job; returns the group of all ranks.");
  m.def(
      "is_parallel",
      [] {
        const Job* const job = TheJobs().current();
        return job != nullptr && job->size() > 1;
      },
      "Whether the current job has met other ranks.");
  m.def(
      "leave_parallel",
      [] {
        ProcessJobs& jobs = TheJobs();
        Free([&] { return jobs.Leave(); });
      },
      "Ends the current job well.");
  m.def(
      "forget_parallel", [] { TheJobs().Forget(); },
      "Lets a forked process begin a job of its own.");
  m.def(
      "job_role",
      []() -> std::optional<cluster::Role> {
        const Job* const job = TheJobs().current();
        if (job == nullptr || job->size() == 1) return std::nullopt;
        return job->role();
      },
      "The role in the current job; None before it begins.");
  m.def(
      "served_job", [] { return TheJobs().served(); }, nb::rv_policy::reference,
      "The job with servers that was made last, or None.");
  return job;
}

// ---- what is on the servers

void BindServed(nb::class_<Job> job) {
  job.def("serve",
          [](Job& self, const std::vector<plan::ServedTable>& tables) {
            Free([&] { return self.Serve(tables); });
          })
      .def_prop_ro("tables", &Job::tables,
                   nb::call_guard<nb::gil_scoped_release>())
      .def("flush",
           [](Job& self) {
             WithServers(self, [](ParameterWorker& s) { return s.Flush(); });
           })
      .def(
          "save",
          [](Job& self, const std::string& folder, bool delta, bool text) {
            const ParameterWorker::SaveOptions options{
                .kind =
                    delta ? table::SaveKind::kDelta : table::SaveKind::kBase,
                .text = text};
            WithServers(self, [&](ParameterWorker& s) {
              return s.Save(folder, options);
            });
          },
          nb::arg("folder"), nb::arg("delta"), nb::arg("text"))
      .def("begin_cut",
           [](Job& self) {
             WithServers(self, [](ParameterWorker& s) { return s.BeginCut(); });
           })
      .def("end_cut",
           [](Job& self) {
             WithServers(self, [](ParameterWorker& s) { return s.EndCut(); });
           })
      .def(
          "load",
          [](Job& self, const std::string& folder) {
            WithServers(self,
                        [&](ParameterWorker& s) { return s.Load(folder); });
          },
          nb::arg("folder"))
      .def(
          "shrink",
          [](Job& self, std::optional<std::string> parameter, uint32_t days) {
            return WithServers(self,
                               [&](ParameterWorker& s) -> Result<uint64_t> {
                                 return parameter ? s.Shrink(*parameter, days)
                                                  : s.Shrink(days);
                               });
          },
          nb::arg("parameter").none(), nb::arg("days"))
      .def(
          "set_rate",
          [](Job& self, const std::string& name, double rate) {
            WithServers(self, [&](ParameterWorker& s) {
              return s.SetRate(name, rate);
            });
          },
          nb::arg("name"), nb::arg("rate"),
          "From now on, the rate of tables that LearningRate.told named so.")
      .def(
          "pull_dense",
          [](Job& self, const std::string& parameter) {
            return Tensor{WithServers(self,
                                      [&](ParameterWorker& s) {
                                        return s.PullDense(parameter);
                                      }),
                          parameter};
          },
          nb::arg("parameter"))
      .def(
          "pull_rows",
          [](Job& self, const std::string& parameter, int64_t begin,
             int64_t end) {
            std::vector<int64_t> ids;
            for (int64_t id = begin; id < end; ++id) ids.push_back(id);
            return Tensor{WithServers(self,
                                      [&](ParameterWorker& s) {
                                        return s.PullRows(parameter, ids);
                                      }),
                          parameter};
          },
          nb::arg("parameter"), nb::arg("begin"), nb::arg("end"),
          "The rows of ids from `begin` to before `end`.")
      .def(
          "assign_dense",
          [](Job& self, const std::string& parameter, const Tensor& values) {
            WithServers(self, [&](ParameterWorker& s) {
              return s.AssignDense(parameter, values.value);
            });
          },
          nb::arg("parameter"), nb::arg("values"))
      .def("stats",
           [](Job& self) {
             return StatsOf(WithServers(
                 self,
                 [](ParameterWorker& s) -> Result<served::SynchronizerStats> {
                   return s.stats();
                 }));
           })
      .def(
          "table_stats",
          [](Job& self, const std::string& parameter) {
            return StatsOf(WithServers(self, [&](ParameterWorker& s) {
              return s.TableStats(parameter);
            }));
          },
          nb::arg("parameter"));
}

// ---- groups

void BindGroup(nb::module_& m) {
  nb::class_<Group>(m, "Group", "Some ranks of a job.")
      .def_prop_ro("id", &Group::id)
      .def_prop_ro("rank", &Group::rank,
                   "Of this process in the group; -1 outside of it.")
      .def_prop_ro("ranks", &Group::ranks, "Of the job, in the group's order.")
      .def_prop_ro("nranks", &Group::size)
      .def_prop_ro("world_size", &Group::size)
      .def_prop_ro("name",
                   [](const Group& self) {
                     return "_default_pg" + std::to_string(self.id());
                   })
      .def_prop_ro("backend",
                   [](const Group& self) -> std::optional<std::string> {
                     if (self.communicator() == nullptr) return std::nullopt;
                     return std::string(self.communicator()->backend());
                   })
      .def("is_member", [](const Group& self) { return self.rank() >= 0; })
      .def("get_group_rank", &Group::RankOf, nb::arg("rank"),
           "The rank in the group of a rank of the job; -1 outside.")
      .def("__repr__", [](const Group& self) {
        std::string ranks;
        for (int rank : self.ranks()) {
          ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
        }
        return base::Concat("rank: ", self.rank(), ", nranks: ", self.size(),
                            ", id: ", self.id(), ", ranks: ", ranks,
                            "; name: _default_pg", self.id());
      });

  nb::class_<Task>(m, "Task", "A collective that was started.")
      .def("wait", &Task::Wait, nb::arg("timeout") = nb::none(),
           "Until it is done, or for `timeout` seconds; whether it is done.")
      .def("is_completed", &Task::IsCompleted)
      .def("is_sync", [](const Task&) { return false; })
      .def("synchronize", [](Task& self) { self.Wait(std::nullopt); });

  m.def("get_group", GroupOf, nb::rv_policy::reference,
        nb::arg("group").none());
  m.def("destroy_group", [](nb::handle group) { GroupOf(group).Destroy(); });
  m.def(
      "new_group",
      [](std::optional<std::vector<int>> ranks, std::optional<double> timeout) {
        Group& world = GroupOf(nb::none());
        std::optional<std::chrono::milliseconds> own_timeout;
        if (timeout) {
          own_timeout = std::chrono::milliseconds(std::llround(1e3 * *timeout));
        }
        return Free([&] {
          return world.job().NewGroup(ranks ? *std::move(ranks) : world.ranks(),
                                      own_timeout);
        });
      },
      nb::rv_policy::reference, nb::arg("ranks").none(),
      nb::arg("timeout").none());
}

}  // namespace

void BindJob(nb::module_& m) {
  BindServed(BindJobs(m));
  BindGroup(m);
}

}  // namespace fleet::python
