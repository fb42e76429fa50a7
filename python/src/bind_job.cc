// SPDX-License-Identifier: Apache-2.0

// The job of this process and its groups, for paddle.distributed.

#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/cluster/endpoint.h"
#include "fleet/comm/communicator.h"

#include "collective_call.h"
#include "job.h"
#include "status.h"

namespace fleet::python {
namespace {

namespace nb = nanobind;
using base::Deadline;
using comm::Communicator;

void BindJobs(nb::module_& m) {
  nb::class_<Job>(m, "Job")
      .def_static(
          "meet",
          [](int rank, int size, const std::string& endpoint) {
            cluster::Endpoint at = ValueOrThrow(
                cluster::ParseEndpoint(endpoint, "server_endpoint"));
            return &Job::Connect({.index = rank,
                                  .worker_num = size,
                                  .master = std::move(at),
                                  .is_collective = true,
                                  .source = cluster::RoleSource::kUser});
          },
          nb::rv_policy::reference, nb::arg("rank"), nb::arg("size"),
          nb::arg("endpoint"),
          "A job of its own whose ranks meet where rank 0 listens.")
      .def("barrier",
           [](Job& self) {
             Run(self.group(0), true, [](Communicator& c, Deadline deadline) {
               return c.Barrier(deadline);
             });
           })
      .def_prop_ro(
          "group", [](Job& self) { return &self.group(0); },
          nb::rv_policy::reference, "All ranks.")
      .def("finish", &Job::Finish, nb::call_guard<nb::gil_scoped_release>());

  m.def(
      "init_parallel",
      [](const cluster::Role& role) { return &BeginJob(role).group(0); },
      nb::rv_policy::reference, nb::arg("role"),
      "Begins the default job; returns the group of all ranks.");
  m.def(
      "is_parallel",
      [] { return CurrentJob() != nullptr && CurrentJob()->size() > 1; },
      "Whether the default job has met other ranks.");
  m.def("leave_parallel", LeaveJob, "Ends the default job well.");
  m.def("forget_parallel", ForgetJob,
        "Lets a forked process begin a job of its own.");
  m.def(
      "job_role",
      []() -> std::optional<cluster::Role> {
        if (CurrentJob() == nullptr) return std::nullopt;
        if (CurrentJob()->size() == 1) return std::nullopt;
        return CurrentJob()->fleet().role();
      },
      "The role in the default job; None before it begins.");
}

void BindGroup(nb::module_& m) {
  nb::class_<Group>(m, "Group", "Some ranks of a job.")
      .def_ro("id", &Group::id)
      .def_ro("rank", &Group::rank,
              "Of this process in the group; -1 outside of it.")
      .def_ro("ranks", &Group::ranks, "Of the job, in the group's order.")
      .def_prop_ro("nranks",
                   [](const Group& self) { return self.ranks.size(); })
      .def_prop_ro("world_size",
                   [](const Group& self) { return self.ranks.size(); })
      .def_prop_ro("name",
                   [](const Group& self) {
                     return "_default_pg" + std::to_string(self.id);
                   })
      .def_prop_ro("backend",
                   [](const Group& self) -> std::optional<std::string> {
                     if (self.communicator == nullptr) return std::nullopt;
                     return std::string(self.communicator->backend());
                   })
      .def("is_member", [](const Group& self) { return self.rank >= 0; })
      .def("get_group_rank", &Group::RankOf, nb::arg("rank"),
           "The rank in the group of a rank of the job; -1 outside.")
      .def("__repr__", [](const Group& self) {
        std::string ranks;
        for (int rank : self.ranks) {
          ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
        }
        return base::Concat("rank: ", self.rank,
                            ", nranks: ", self.ranks.size(), ", id: ", self.id,
                            ", ranks: ", ranks, "; name: _default_pg", self.id);
      });

  nb::class_<Task>(m, "Task", "A collective that was started.")
      .def("wait", &Task::Wait, nb::arg("timeout") = nb::none(),
           "Until it is done, or for `timeout` seconds; whether it is done.")
      .def("is_completed", &Task::IsCompleted)
      .def("is_sync", [](const Task&) { return false; })
      .def("synchronize", [](Task& self) { self.Wait(std::nullopt); });

  m.def("get_group", GroupOf, nb::rv_policy::reference,
        nb::arg("group").none());
  m.def("destroy_group",
        [](nb::handle group) { GroupOf(group).destroyed = true; });
  m.def(
      "new_group",
      [](std::optional<std::vector<int>> ranks, std::optional<double> timeout) {
        Group& world = GroupOf(nb::none());
        std::optional<std::chrono::milliseconds> own_timeout;
        if (timeout) {
          own_timeout = std::chrono::milliseconds(std::llround(1e3 * *timeout));
        }
        return &world.job->NewGroup(ranks ? *std::move(ranks) : world.ranks,
                                    own_timeout);
      },
      nb::rv_policy::reference, nb::arg("ranks").none(),
      nb::arg("timeout").none());
}

}  // namespace

void BindJob(nb::module_& m) {
  BindJobs(m);
  BindGroup(m);
}

}  // namespace fleet::python
