// SPDX-License-Identifier: Apache-2.0

// Python's handle on the jobs of this process (fleet/process_jobs.h). The
// current one is behind paddle.distributed; a worker of a job with servers has
// one of its own, behind paddle.distributed.fleet.

#ifndef FLEET_PYTHON_SRC_JOB_H_
#define FLEET_PYTHON_SRC_JOB_H_

#include <nanobind/nanobind.h>

#include "fleet/base/interrupt.h"
#include "fleet/job.h"
#include "fleet/process_jobs.h"

namespace fleet::python {

// Its first call needs the GIL. What blocks is called without it.
ProcessJobs& TheJobs();

// The group that a Python argument means: None or 0 for all ranks of the
// current job, which begins if it has to; a number; or a Group. Throws, also
// for a group of a job that has ended. Needs the GIL.
Group& GroupOf(nanobind::handle group);

// Asks, on Python's main thread, whether a signal came whose handler raised;
// then the error is set in this thread, and ThrowIfError lets it through. Takes
// the GIL.
base::InterruptCheck MakeSignalCheck();

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_JOB_H_
