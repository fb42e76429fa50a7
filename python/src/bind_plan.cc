// SPDX-License-Identifier: Apache-2.0

// Programs of several ranks: how they are rewritten.

#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/cluster/role.h"
#include "fleet/plan/plan.h"
#include "fleet/sync/overlap.h"

#include "program.h"
#include "status.h"

namespace fleet::python {
namespace {

std::vector<std::string> ApplyPlan(
    const ProgramRef& main, const ProgramRef& startup,
    const cluster::Role& role, size_t bucket_bytes, size_t last_bucket_bytes,
    bool average, bool sync_batch_norm, std::optional<bool> overlap) {
  const int ranks_on_host = role.local_size.value_or(role.worker_num);
  plan::Strategy strategy{
      .allreduce = {.bucket_bytes = bucket_bytes,
                    .last_bucket_bytes = last_bucket_bytes,
                    .average = average,
                    .overlap =
                        overlap.value_or(sync::HasCoresToSpare(ranks_on_host))},
      .sync_batch_norm = sync_batch_norm};
  return ValueOrThrow(
      plan::ApplyPlan(*main->graph, *startup->graph, strategy, role));
}

}  // namespace

void BindPlan(nb::module_& m) {
  m.def("apply_plan", ApplyPlan, nb::arg("main"), nb::arg("startup"),
        nb::arg("role"), nb::arg("bucket_bytes"), nb::arg("last_bucket_bytes"),
        nb::arg("average"), nb::arg("sync_batch_norm"),
        nb::arg("overlap") = nb::none(),
        "Rewrites programs for a role in a job, in place; returns what was "
        "done. Without `overlap`, gradients travel beside backward where cores "
        "are to spare.");
}

}  // namespace fleet::python
