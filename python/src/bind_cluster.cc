// SPDX-License-Identifier: Apache-2.0

// Who this process is, for the role makers of paddle.distributed.fleet.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "fleet/cluster/environment.h"
#include "fleet/cluster/role.h"

#include "status.h"

namespace fleet::python {
namespace {

namespace nb = nanobind;
using cluster::Endpoint;
using cluster::Role;
using cluster::RoleKind;

std::vector<std::string> Texts(const std::vector<Endpoint>& endpoints) {
  std::vector<std::string> texts;
  for (const Endpoint& endpoint : endpoints) {
    texts.push_back(ToString(endpoint));
  }
  return texts;
}

RoleKind KindOf(int number) {
  if (number >= static_cast<int>(RoleKind::kWorker) &&
      number <= static_cast<int>(RoleKind::kHeterWorker)) {
    return static_cast<RoleKind>(number);
  }
  ThrowIfError(InvalidArgument("role=", number,
                               ", which is none of Role.WORKER, Role.SERVER "
                               "and Role.HETER_WORKER"));
  return RoleKind::kWorker;
}

}  // namespace

void BindCluster(nb::module_& m) {
  nb::class_<Role>(m, "Role", "Who this process is in its job.")
      .def_prop_ro("kind",
                   [](const Role& self) { return static_cast<int>(self.kind); })
      .def_ro("index", &Role::index)
      .def_ro("worker_num", &Role::worker_num)
      .def_ro("server_num", &Role::server_num)
      .def_ro("heter_worker_num", &Role::heter_worker_num)
      .def_ro("node_num", &Role::node_num)
      .def_ro("local_rank", &Role::local_rank)
      .def_ro("local_size", &Role::local_size)
      .def_ro("is_collective", &Role::is_collective)
      .def_ro("non_distributed", &Role::non_distributed)
      .def_prop_ro(
          "worker_endpoints",
          [](const Role& self) { return Texts(self.worker_endpoints); })
      .def_prop_ro(
          "server_endpoints",
          [](const Role& self) { return Texts(self.server_endpoints); })
      .def_prop_ro(
          "heter_worker_endpoints",
          [](const Role& self) { return Texts(self.heter_worker_endpoints); })
      .def_prop_ro("current_endpoint",
                   [](const Role& self) -> std::optional<std::string> {
                     if (!self.current_endpoint) return std::nullopt;
                     return ToString(*self.current_endpoint);
                   })
      .def_prop_ro("source",
                   [](const Role& self) { return ToString(self.source); })
      .def("__repr__", [](const Role& self) { return ToString(self); })
      .def("__eq__",
           [](const Role& self, const Role& other) { return self == other; });

  m.def(
      "role_from_environment",
      [](bool is_collective) {
        return ValueOrThrow(cluster::RoleFromEnvironment(
            cluster::ReadEnvironment(), is_collective));
      },
      nb::arg("is_collective"),
      "The role that the launcher's variables give this process.");
  m.def(
      "make_user_role",
      [](bool is_collective, int kind, int current_id,
         std::optional<int> worker_num,
         std::vector<std::string> worker_endpoints,
         std::vector<std::string> server_endpoints,
         std::vector<std::string> heter_worker_endpoints) {
        return ValueOrThrow(cluster::MakeUserRole(
            {.is_collective = is_collective,
             .kind = KindOf(kind),
             .current_id = current_id,
             .worker_num = worker_num,
             .worker_endpoints = std::move(worker_endpoints),
             .server_endpoints = std::move(server_endpoints),
             .heter_worker_endpoints = std::move(heter_worker_endpoints)}));
      },
      nb::arg("is_collective"), nb::arg("kind"), nb::arg("current_id"),
      nb::arg("worker_num").none(), nb::arg("worker_endpoints"),
      nb::arg("server_endpoints"), nb::arg("heter_worker_endpoints"));
}

}  // namespace fleet::python
