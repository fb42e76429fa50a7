// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/plan/backward.h"
#include "fleet/plan/mixed_precision.h"
#include "fleet/plan/prune.h"
#include "fleet/plan/recompute.h"
#include "fleet/program/dtype.h"
#include "fleet/program/text.h"

#include "program.h"
#include "program_handles.h"
#include "status.h"

namespace fleet::python {
namespace {

using program::DType;

void BindVariable(nb::module_& m) {
  nb::class_<Variable, Tensor>(m, "Variable", nb::dynamic_attr(),
                               nb::is_weak_referenceable(),
                               "A variable of a program. Its value is known "
                               "when an Executor runs the program.")
      .def_prop_ro("name", [](const Variable& v) { return v.name; })
      .def_prop_ro("shape", [](const Variable& v) { return v.get().type.dims; })
      .def_prop_ro("ndim",
                   [](const Variable& v) { return v.get().type.dims.size(); })
      .def_prop_ro("size",
                   [](const Variable& v) {
                     int64_t size = 1;
                     for (int64_t n : v.get().type.dims) {
                       size = n < 0 || size < 0 ? -1 : size * n;
                     }
                     return size;
                   })
      .def_prop_ro("dtype",
                   [](const Variable& v) { return v.get().type.dtype; })
      .def_prop_ro("lod_level",
                   [](const Variable& v) { return v.get().lod_level; })
      // The variable that says where its sequences begin; "" if it has none.
      .def_prop_ro("_lod", [](const Variable& v) { return v.get().lod; })
      .def_prop_ro(
          "_kind",
          [](const Variable& v) { return static_cast<int>(v.get().kind); })
      .def_prop_ro("is_data", [](const Variable& v) { return v.get().is_data; })
      .def_prop_ro("is_parameter",
                   [](const Variable& v) { return v.get().is_parameter; })
      .def_prop_ro("_device", [](const Variable&) { return "cpu"; })
      .def_prop_rw(
          "persistable", [](const Variable& v) { return v.get().persistable; },
          [](Variable& v, bool on) {
            v.get().persistable = on;
            v.program->graph->Touch();
          })
      .def_prop_rw(
          "stop_gradient",
          [](const Variable& v) { return v.get().stop_gradient; },
          [](Variable& v, bool on) {
            v.get().stop_gradient = on;
            v.program->graph->Touch();
          })
      .def_prop_rw(
          "trainable", [](const Variable& v) { return v.get().trainable; },
          [](Variable& v, bool on) {
            v.get().trainable = on;
            v.get().stop_gradient = !on;
            v.program->graph->Touch();
          })
      .def("_text",
           [](const Variable& v) { return program::ToString(v.get()); })
      .def("_set_type",
           [](Variable& v, std::vector<int64_t> shape, DType dtype) {
             v.get().type = {dtype, std::move(shape)};
             v.program->graph->Touch();
           })
      .def_prop_ro(
          "block",
          [](const Variable& v) { return StaticBlock{v.program, v.block}; })
      .def_prop_ro("_program", [](const Variable& v) { return v.program; });
  nb::class_<StaticParameter, Variable>(m, "StaticParameter",
                                        "A parameter of a program.");
}

void BindBuilding(nb::module_& m) {
  nb::class_<Building>(m, "Building")
      .def_rw("on", &Building::on)
      .def_prop_rw(
          "main", [](Building& b) { return b.main; },
          [](Building& b, ProgramRef program) { b.main = std::move(program); })
      .def_prop_rw(
          "startup", [](Building& b) { return b.startup; },
          [](Building& b, ProgramRef program) {
            b.startup = std::move(program);
          })
      .def_rw("role", &Building::role)
      .def_rw("device", &Building::device)
      .def_rw("scope", &Building::name_scope)
      .def_rw("owner", &Building::owner)
      .def_rw("outputs", &Building::outputs)
      .def_rw("generate", &Building::generate)
      .def_rw("package", &Building::package);
  m.attr("building") = nb::cast(&TheBuilding(), nb::rv_policy::reference);
  m.def("user_line", UserLine);
  m.def(
      "as_variable",
      [](nb::object object) {
        const at::Tensor* tensor = AsTensor(object);
        if (tensor == nullptr) {
          Fail(PyExc_TypeError, "expected a Tensor or a Variable, but got ",
               Py_TYPE(object.ptr())->tp_name);
        }
        if (!tensor->defined()) return object;
        const ProgramRef& program = TheBuilding().main;
        return WrapVariable(program, program->current_block,
                            AddConstant(*tensor));
      },
      "The variable itself, or one of the current block with the tensor's "
      "value.");
}

std::map<std::string, std::string> Backward(
    StaticProgram& program,
    const std::vector<std::pair<std::string, std::string>>& targets,
    const std::set<std::string>& no_grad) {
  std::vector<plan::BackwardTarget> list;
  for (const auto& [variable, gradient] : targets) {
    list.push_back({variable, gradient});
  }
  return ValueOrThrow(plan::AppendBackward(Library().definitions(),
                                           *program.graph, list, no_grad));
}

}  // namespace

void BindProgram(nb::module_& m) {
  nb::class_<StaticProgram>(m, "Program", nb::dynamic_attr(),
                            nb::is_weak_referenceable(),
                            "What a step computes, as data.")
      .def(nb::init<>())
      .def_prop_ro("num_blocks",
                   [](const StaticProgram& p) { return p.graph->num_blocks(); })
      .def_prop_ro("_version",
                   [](const StaticProgram& p) { return p.graph->version(); })
      .def_rw("current_block_idx", &StaticProgram::current_block)
      .def_prop_rw(
          "random_seed",
          [](const StaticProgram& p) { return p.graph->random_seed; },
          [](StaticProgram& p, int64_t seed) {
            p.graph->random_seed = seed;
            p.graph->Touch();
          })
      .def("_copy_from",
           [](StaticProgram& p, const StaticProgram& from) {
             p.graph = from.graph->Clone();
           })
      .def("_copy_for_test",
           [](StaticProgram& p, const StaticProgram& from) {
             p.graph = plan::CloneForTest(Library().definitions(), *from.graph);
           })
      .def("_text",
           [](const StaticProgram& p, bool lines) {
             return program::ToString(*p.graph, {.lines = lines});
           })
      .def("_add_block",
           [](StaticProgram& p, int parent) {
             return p.graph->AddBlock(parent).index();
           })
      .def("_same_graph", [](const StaticProgram& a, const StaticProgram& b) {
        return a.graph == b.graph;
      });
  BindBlock(m);
  BindVariable(m);
  BindOperator(m);
  BindBuilding(m);
  m.def("_block", [](ProgramRef program, int index) {
    StaticBlock block{std::move(program), index};
    block.get();
    return block;
  });
  m.def("append_backward", Backward);
  m.def(
      "recompute",
      [](StaticProgram& p, const std::vector<std::string>& checkpoints) {
        return ValueOrThrow(
            plan::Recompute(Library().definitions(), *p.graph, checkpoints));
      },
      nb::arg("program"), nb::arg("checkpoints"),
      "Backward computes what lies between checkpoints again; returns how many "
      "operations are repeated.");
  m.def(
      "use_mixed_precision",
      [](StaticProgram& p, program::DType dtype, program::AmpLevel level,
         const std::map<std::string, program::Precision>& custom, bool promote,
         std::set<std::string> black_variables, std::string scope,
         bool short_parameters) {
        plan::MixedPrecisionResult result =
            ValueOrThrow(plan::UseMixedPrecision(
                Library().definitions(), *p.graph,
                {.dtype = dtype,
                 .level = level,
                 .custom = {custom.begin(), custom.end()},
                 .promote = promote,
                 .black_variables = std::move(black_variables),
                 .scope = std::move(scope),
                 .short_parameters = short_parameters}));
        return std::pair(result.num_casts, std::move(result.parameters));
      },
      nb::arg("program"), nb::arg("dtype"), nb::arg("level"), nb::arg("custom"),
      nb::arg("promote"), nb::arg("black_variables"), nb::arg("scope"),
      nb::arg("short_parameters"),
      "Operations compute in a short type; returns how many casts that took, "
      "and the parameters that became short.");
}

}  // namespace fleet::python
