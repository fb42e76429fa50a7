// SPDX-License-Identifier: Apache-2.0

// Programs of several ranks: how they are rewritten, and over whom their
// collective operations run.

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/base/no_destructor.h"
#include "fleet/cluster/role.h"
#include "fleet/plan/plan.h"
#include "fleet/sync/overlap.h"
#include "fleet/sync/static_collectives.h"

#include "collectives.h"
#include "job.h"
#include "program.h"
#include "status.h"

namespace fleet::python {
namespace {

Result<sync::CollectiveGroup> FindGroup(int64_t ring) {
  nb::gil_scoped_acquire gil;
  try {
    Group& group = GroupOf(ring == 0 ? nb::object(nb::none())
                                     : nb::object(nb::int_(ring)));
    if (group.communicator == nullptr) {
      return InvalidArgument("rank ", group.job->fleet().rank(),
                             " is not in group ", group.id);
    }
    return sync::CollectiveGroup{
        .communicator = group.communicator,
        .ranks_on_host = group.job->fleet().role().local_size.value_or(0),
        .timeout = group.timeout(),
        .interrupt = group.job->interrupt()};
  } catch (const std::exception& error) {
    return FailedPrecondition(error.what());
  }
}

// One for all executors, which share its buckets. Never destroyed: a schedule
// may hold a bucket when the process ends.
sync::StaticCollectives& TheCollectives() {
  static base::NoDestructor<std::shared_ptr<sync::StaticCollectives>>
      collectives(std::make_shared<sync::StaticCollectives>(FindGroup));
  return **collectives;
}

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

void AddCollectives(exec::Executor& executor) {
  TheCollectives().AddTo(executor);
}

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
