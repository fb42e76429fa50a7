// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>

#include "fleet/base/heap.h"

namespace fleet::python {
void BindStatus(nanobind::module_& m);
void BindFile(nanobind::module_& m);
void BindTensor(nanobind::module_& m);
void BindOps(nanobind::module_& m);
void BindAutoCast(nanobind::module_& m);
void BindProgram(nanobind::module_& m);
void BindExecutor(nanobind::module_& m);
void BindPlan(nanobind::module_& m);
void BindPyFunc(nanobind::module_& m);
void BindSaved(nanobind::module_& m);
void BindContainer(nanobind::module_& m);
void BindAutograd(nanobind::module_& m);
void BindPyLayer(nanobind::module_& m);
void BindOptim(nanobind::module_& m);
void BindControl(nanobind::module_& m);
void BindTraining(nanobind::module_& m);
void BindData(nanobind::module_& m);
void BindBatchBuffers(nanobind::module_& m);
void BindDataset(nanobind::module_& m);
void BindCluster(nanobind::module_& m);
void BindJob(nanobind::module_& m);
void BindDistributed(nanobind::module_& m);
void BindDataParallel(nanobind::module_& m);
void BindParameterServer(nanobind::module_& m);
}  // namespace fleet::python

NB_MODULE(_core, m) {
  nanobind::set_leak_warnings(false);
  fleet::base::KeepFreedMemory();
  fleet::python::BindStatus(m);
  fleet::python::BindFile(m);
  fleet::python::BindTensor(m);
  fleet::python::BindOps(m);
  fleet::python::BindAutoCast(m);
  fleet::python::BindProgram(m);
  fleet::python::BindExecutor(m);
  fleet::python::BindPlan(m);
  fleet::python::BindPyFunc(m);
  fleet::python::BindSaved(m);
  fleet::python::BindContainer(m);
  fleet::python::BindAutograd(m);
  fleet::python::BindPyLayer(m);
  fleet::python::BindOptim(m);
  fleet::python::BindControl(m);
  fleet::python::BindTraining(m);
  fleet::python::BindData(m);
  fleet::python::BindBatchBuffers(m);
  fleet::python::BindDataset(m);
  fleet::python::BindCluster(m);
  fleet::python::BindJob(m);
  fleet::python::BindDistributed(m);
  fleet::python::BindDataParallel(m);
  fleet::python::BindParameterServer(m);
}
