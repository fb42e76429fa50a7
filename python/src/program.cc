// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <cstring>
#include <unordered_map>
#include <utility>

#include <nanobind/stl/string.h>

#include "fleet/base/check.h"

#include "status.h"

namespace fleet::python {
namespace {

// The Python objects of variables, while they live; they are not owned.
using Handles = std::unordered_map<std::string, PyObject*>;
Handles& TheHandles() {
  static auto* handles = new Handles();
  return *handles;
}

std::string HandleKey(const StaticProgram* program, int block,
                      const std::string& name) {
  return base::Concat(reinterpret_cast<uintptr_t>(program), '/', block, '/',
                      name);
}

// The block at or above `block` that has the variable, or -1.
int BlockOf(const program::Program& graph, int block, const std::string& name) {
  for (; block >= 0; block = graph.block(block).parent()) {
    if (graph.block(block).FindHere(name) != nullptr) return block;
  }
  return -1;
}

}  // namespace

Variable::Variable(ProgramRef owner, int index, std::string variable_name)
    : program(std::move(owner)), block(index) {
  name = std::move(variable_name);
}

Variable::~Variable() {
  TheHandles().erase(HandleKey(program.get(), block, name));
}

program::Variable& Variable::get() const {
  program::Variable* found = program->graph->block(block).FindHere(name);
  if (found == nullptr) {
    std::string text = "the program no longer has the variable " + name;
    PyErr_SetString(PyExc_KeyError, text.c_str());
    throw nb::python_error();
  }
  return *found;
}

const ops::OpLibrary& Library() {
  static const ops::OpLibrary library;
  return library;
}

Building& TheBuilding() {
  static auto* building = new Building();
  return *building;
}

nb::object WrapVariable(const ProgramRef& program, int block,
                        const std::string& name) {
  const int owner = BlockOf(*program->graph, block, name);
  if (owner < 0) {
    std::string text = base::Concat("the program has no variable '", name, "'");
    PyErr_SetString(PyExc_KeyError, text.c_str());
    throw nb::python_error();
  }
  std::string key = HandleKey(program.get(), owner, name);
  auto found = TheHandles().find(key);
  if (found != TheHandles().end()) return nb::borrow(found->second);
  const bool parameter =
      program->graph->block(owner).FindHere(name)->is_parameter;
  nb::object handle = parameter
                          ? nb::cast(new StaticParameter(program, owner, name),
                                     nb::rv_policy::take_ownership)
                          : nb::cast(new Variable(program, owner, name),
                                     nb::rv_policy::take_ownership);
  TheHandles().emplace(std::move(key), handle.ptr());
  return handle;
}

const Variable* AsVariable(nb::handle object) {
  if (!nb::isinstance<Variable>(object)) return nullptr;
  return nb::inst_ptr<Variable>(object);
}

std::string UserLine() {
  const std::string& package = TheBuilding().package;
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame.is_valid()) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    nb::object code =
        nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    std::string file = nb::cast<std::string>(code.attr("co_filename"));
    if (!package.empty() && !file.starts_with(package) &&
        !file.starts_with("<frozen")) {
      const size_t slash = file.rfind('/');
      if (slash != std::string::npos) file.erase(0, slash + 1);
      return base::Concat(file, ':', PyFrame_GetLineNumber(raw));
    }
    frame = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return "";
}

std::string NewName(const std::string& key) {
  return nb::cast<std::string>(TheBuilding().generate(key));
}

program::AppendOptions Building::options() const {
  program::AppendOptions options = *this;
  options.made_at = UserLine();
  return options;
}

void AppendOperation(StaticProgram& program, int block,
                     program::Operation operation) {
  ThrowIfError(program::AppendOperation(
      Library().definitions(), program.graph->block(block),
      std::move(operation), TheBuilding().options()));
}

std::string AddConstant(const at::Tensor& tensor) {
  using program::AttrKind;
  const at::Tensor value = tensor.detach().cpu().contiguous();
  const program::DType dtype = ops::ToDType(value.scalar_type());
  std::vector<int64_t> shape = value.sizes().vec();
  if (shape.empty()) shape.push_back(1);
  StaticProgram& program = *TheBuilding().main;
  const std::vector<std::string>& given = TheBuilding().outputs;
  const std::string name =
      given.empty() ? NewName(NewName("constant") + ".tmp") : given[0];
  program::Operation op{
      .outputs = {{"Out", {name}}},
      .attrs = {{"shape", {AttrKind::kInts, shape}},
                {"dtype", {AttrKind::kInt, static_cast<int64_t>(dtype)}}}};
  const bool floating = program::IsFloating(dtype);
  if (value.numel() == 1) {
    op.type = "fill_constant";
    if (floating) {
      op.attrs["value"] = {AttrKind::kFloat, value.item().toDouble()};
    } else {
      op.attrs["str_value"] = {AttrKind::kString,
                               std::to_string(value.item().toLong())};
    }
  } else {
    op.type = "assign_value";
    const at::Tensor wide =
        value.to(floating ? at::kDouble : at::kLong).contiguous();
    if (floating) {
      const double* data = wide.const_data_ptr<double>();
      op.attrs["fp32_values"] = {
          AttrKind::kFloats, std::vector<double>(data, data + wide.numel())};
    } else {
      const int64_t* data = wide.const_data_ptr<int64_t>();
      const char* slot = dtype == program::DType::kBool    ? "bool_values"
                         : dtype == program::DType::kInt64 ? "int64_values"
                                                           : "int32_values";
      op.attrs[slot] = {AttrKind::kInts,
                        std::vector<int64_t>(data, data + wide.numel())};
    }
  }
  if (program.block().Find(name) == nullptr) {
    program.block().AddVariable(
        {.name = name, .type = {dtype, shape}, .stop_gradient = true});
  }
  AppendOperation(program, program.current_block, std::move(op));
  return name;
}

}  // namespace fleet::python
