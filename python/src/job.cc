// SPDX-License-Identifier: Apache-2.0
#include "job.h"

#include <pthread.h>

#include "fleet/base/no_destructor.h"

#include "status.h"

namespace fleet::python {
namespace {

namespace nb = nanobind;

// Python handles signals on its main thread only. Other threads do not ask: the
// communicator's own would wait for the GIL of an interpreter that is ending.
pthread_t PythonsMainThread() {
  nb::object thread = nb::module_::import_("threading").attr("main_thread")();
  return nb::cast<pthread_t>(thread.attr("ident"));
}

}  // namespace

ProcessJobs& TheJobs() {
  // Never destroyed: threads of a job may outlast what runs at exit.
  static base::NoDestructor<ProcessJobs> jobs(ProcessJobsOptions{
      .interrupt = MakeSignalCheck(), .end_with_process = true});
  return *jobs;
}

Group& GroupOf(nb::handle group) {
  if (group.is_none()) return *ValueOrThrow(TheJobs().FindGroup(0));
  if (nb::isinstance<Group>(group)) {
    Group* found = nb::inst_ptr<Group>(group);
    ThrowIfError(found->Check());
    return *found;
  }
  if (PyLong_Check(group.ptr())) {
    return *ValueOrThrow(TheJobs().FindGroup(nb::cast<int64_t>(group)));
  }
  PyErr_Format(PyExc_TypeError,
               "group must be None, a number or a Group, but is %s",
               Py_TYPE(group.ptr())->tp_name);
  throw nb::python_error();
}

base::InterruptCheck MakeSignalCheck() {
  return [main_thread = PythonsMainThread()]() -> Status {
    if (!pthread_equal(pthread_self(), main_thread)) return OkStatus();
    if (!Py_IsInitialized()) return OkStatus();
    nb::gil_scoped_acquire gil;
    // Once raised it stays: who takes the answer for a peer's failure and tries
    // again is told again.
    if (PyErr_Occurred() == nullptr && PyErr_CheckSignals() == 0) {
      return OkStatus();
    }
    return Unavailable("a signal came to this process while it waited");
  };
}

}  // namespace fleet::python
