// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/base/check.h"
#include "fleet/program/backward.h"
#include "fleet/program/control.h"
#include "fleet/program/dtype.h"
#include "fleet/program/lod.h"
#include "fleet/program/mixed_precision.h"
#include "fleet/program/prune.h"
#include "fleet/program/recompute.h"
#include "fleet/program/text.h"
#include "fleet/program/wire.h"

#include "program.h"
#include "status.h"

namespace fleet::python {
namespace {

using program::AttrDef;
using program::AttrKind;
using program::AttrType;
using program::AttrValue;
using program::DType;
using program::OpDef;

template <class... Parts>
[[noreturn]] void Fail(PyObject* type, const Parts&... parts) {
  PyErr_SetString(type, base::Concat(parts...).c_str());
  throw nb::python_error();
}

std::string Text(PyObject* object) {
  const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : "";
  if (text == nullptr) throw nb::python_error();
  return text;
}

// Calls `visit` with every name and value of a dict; None is an empty one.
template <class Visit>
void ForEach(nb::handle dict, Visit visit) {
  if (dict.is_none()) return;
  if (!PyDict_Check(dict.ptr())) {
    Fail(PyExc_TypeError, "expected a dict, but got ",
         Py_TYPE(dict.ptr())->tp_name);
  }
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict.ptr(), &position, &key, &value)) {
    visit(Text(key), nb::handle(value));
  }
}

// ---- handles

struct StaticBlock {
  ProgramRef program;
  int index;

  program::Block& get() const {
    if (static_cast<size_t>(index) >= program->graph->num_blocks()) {
      Fail(PyExc_IndexError, "the program has no block ", index);
    }
    return program->graph->block(index);
  }
};

struct StaticOperator {
  ProgramRef program;
  int block;
  int64_t id;

  size_t position() const {
    const program::Block& where = program->graph->block(block);
    for (size_t i = 0; i < where.num_ops(); ++i) {
      if (where.op(i).id == id) return i;
    }
    Fail(PyExc_KeyError, "the operator is no longer in the program");
  }
  program::Operation& get() const {
    return program->graph->block(block).op(position());
  }
};

// ---- attributes

bool IsSequence(nb::handle value) {
  return PyList_Check(value.ptr()) || PyTuple_Check(value.ptr()) ||
         nb::hasattr(value, "tolist");
}

template <class T>
std::vector<T> ToList(nb::handle value) {
  nb::object items = nb::borrow(value);
  if (nb::hasattr(value, "tolist")) items = value.attr("tolist")();
  std::vector<T> list;
  for (nb::handle item : items) list.push_back(nb::cast<T>(item));
  return list;
}

int64_t ToInt(nb::handle value) {
  if (nb::isinstance<DType>(value)) {
    return static_cast<int64_t>(nb::cast<DType>(value));
  }
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  return nb::cast<int64_t>(index);
}

// By the definition of the attribute.
AttrValue ToAttr(const AttrDef& def, nb::handle value) {
  switch (def.type) {
    case AttrType::kBool:
      return {AttrKind::kBool, PyObject_IsTrue(value.ptr()) == 1};
    case AttrType::kInt:
    case AttrType::kDType:
      return {AttrKind::kInt, ToInt(value)};
    case AttrType::kFloat:
      return {AttrKind::kFloat, nb::cast<double>(nb::float_(value))};
    case AttrType::kString:
      return {AttrKind::kString, nb::cast<std::string>(value)};
    case AttrType::kInts:
      if (!IsSequence(value)) {
        return {AttrKind::kInts, std::vector<int64_t>{ToInt(value)}};
      }
      return {AttrKind::kInts, ToList<int64_t>(value)};
    case AttrType::kFloats:
      if (!IsSequence(value)) {
        return {AttrKind::kFloats,
                std::vector<double>{nb::cast<double>(nb::float_(value))}};
      }
      return {AttrKind::kFloats, ToList<double>(value)};
  }
  return {};
}

// By the type that the value has in Python.
AttrValue ToAttr(nb::handle value) {
  if (nb::isinstance<StaticBlock>(value)) {
    return {AttrKind::kBlock,
            static_cast<int64_t>(nb::cast<StaticBlock&>(value).index)};
  }
  if (PyBool_Check(value.ptr())) {
    return {AttrKind::kBool, value.ptr() == Py_True};
  }
  if (PyUnicode_Check(value.ptr())) {
    return {AttrKind::kString, nb::cast<std::string>(value)};
  }
  if (PyFloat_Check(value.ptr())) {
    return {AttrKind::kFloat, PyFloat_AS_DOUBLE(value.ptr())};
  }
  if (!IsSequence(value)) return {AttrKind::kInt, ToInt(value)};
  nb::object items = nb::borrow(value);
  if (nb::hasattr(value, "tolist")) items = value.attr("tolist")();
  nb::handle first;
  for (nb::handle item : items) {
    if (!first.is_valid() || PyFloat_Check(item.ptr())) first = item;
  }
  if (!first.is_valid()) return {AttrKind::kInts, std::vector<int64_t>{}};
  if (nb::isinstance<StaticBlock>(first)) {
    std::vector<int64_t> blocks;
    for (nb::handle item : items) {
      blocks.push_back(nb::cast<StaticBlock&>(item).index);
    }
    return {AttrKind::kBlocks, std::move(blocks)};
  }
  if (PyBool_Check(first.ptr())) {
    return {AttrKind::kBools, ToList<bool>(items)};
  }
  if (PyUnicode_Check(first.ptr())) {
    return {AttrKind::kStrings, ToList<std::string>(items)};
  }
  if (PyFloat_Check(first.ptr())) {
    return {AttrKind::kFloats, ToList<double>(items)};
  }
  return {AttrKind::kInts, ToList<int64_t>(items)};
}

AttrValue ToAttr(const std::string& op_type, const std::string& name,
                 nb::handle value) {
  const OpDef* def = Library().definitions().Find(op_type);
  if (def == nullptr && op_type.ends_with("_grad")) {
    def = Library().definitions().Find(op_type.substr(0, op_type.size() - 5));
  }
  const int index = def == nullptr ? -1 : def->AttrIndex(name);
  try {
    return index < 0 ? ToAttr(value) : ToAttr(def->attrs[index], value);
  } catch (const std::exception&) {
    PyErr_Clear();
    Fail(PyExc_TypeError, op_type, ": attribute '", name,
         "' cannot be of type ", Py_TYPE(value.ptr())->tp_name);
  }
}

nb::object FromAttr(const AttrValue& attr) {
  return std::visit([](const auto& value) { return nb::cast(value); },
                    attr.value);
}

// ---- operations

std::string NameOf(nb::handle object) {
  if (PyUnicode_Check(object.ptr())) return nb::cast<std::string>(object);
  if (const Variable* variable = AsVariable(object)) return variable->name;
  if (nb::hasattr(object, "name")) {
    return nb::cast<std::string>(object.attr("name"));
  }
  Fail(PyExc_TypeError, "expected a Variable or its name, but got ",
       Py_TYPE(object.ptr())->tp_name);
}

// {"X": [x], "Y": y} in the order of the definition.
program::Slots ToSlots(nb::handle slots,
                       const std::vector<program::SlotDef>* order) {
  program::Slots result;
  ForEach(slots, [&](std::string key, nb::handle value) {
    if (value.is_none()) return;
    program::Slot slot{std::move(key), {}};
    if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) {
      for (nb::handle item : value) slot.arguments.push_back(NameOf(item));
    } else {
      slot.arguments.push_back(NameOf(value));
    }
    result.push_back(std::move(slot));
  });
  if (order != nullptr) {
    auto place = [&](const program::Slot& slot) {
      for (size_t i = 0; i < order->size(); ++i) {
        if ((*order)[i].name == slot.name) return i;
      }
      return order->size();
    };
    std::stable_sort(
        result.begin(), result.end(),
        [&](const auto& a, const auto& b) { return place(a) < place(b); });
  }
  return result;
}

StaticOperator InsertOp(const StaticBlock& block, int64_t at,
                        const std::string& type, nb::handle inputs,
                        nb::handle outputs, nb::handle attrs) {
  const OpDef* def = Library().definitions().Find(type);
  program::Operation op{
      .type = type,
      .inputs = ToSlots(inputs, def == nullptr ? nullptr : &def->inputs),
      .outputs = ToSlots(outputs, def == nullptr ? nullptr : &def->outputs)};
  ForEach(attrs, [&](const std::string& name, nb::handle value) {
    if (!value.is_none()) op.attrs[name] = ToAttr(type, name, value);
  });
  program::Block& where = block.get();
  const size_t end = where.num_ops();
  AppendOperation(*block.program, block.index, std::move(op));
  size_t position = at < 0 ? end : static_cast<size_t>(at);
  if (position < end) {
    program::Operation moved = where.op(end);
    where.Remove(end, end + 1);
    where.Insert(position, std::move(moved));
  } else {
    position = end;
  }
  return {block.program, block.index, where.op(position).id};
}

program::Variable MakeVariable(const std::string& name,
                               const std::vector<int64_t>& shape, DType dtype,
                               nb::handle flags) {
  program::Variable variable{.name = name, .type = {dtype, shape}};
  ForEach(flags, [&](const std::string& flag, nb::handle value) {
    if (flag == "lod_level") {
      variable.lod_level = static_cast<int>(ToInt(value));
      return;
    }
    if (flag == "kind") {
      variable.kind = static_cast<program::VariableKind>(ToInt(value));
      return;
    }
    const bool on = PyObject_IsTrue(value.ptr()) == 1;
    if (flag == "persistable") variable.persistable = on;
    if (flag == "is_parameter") variable.is_parameter = on;
    if (flag == "trainable") variable.trainable = on;
    if (flag == "stop_gradient") variable.stop_gradient = on;
    if (flag == "is_data") variable.is_data = on;
  });
  return variable;
}

nb::list ListOfOps(const StaticBlock& block) {
  nb::list ops;
  const program::Block& where = block.get();
  for (size_t i = 0; i < where.num_ops(); ++i) {
    ops.append(
        nb::cast(StaticOperator{block.program, block.index, where.op(i).id}));
  }
  return ops;
}

std::vector<std::string> SlotNames(const program::Slots& slots) {
  std::vector<std::string> names;
  for (const program::Slot& slot : slots) names.push_back(slot.name);
  return names;
}

std::vector<std::string> Arguments(const program::Slots& slots) {
  std::vector<std::string> names;
  for (const program::Slot& slot : slots) {
    names.insert(names.end(), slot.arguments.begin(), slot.arguments.end());
  }
  return names;
}

void Rename(program::Slots& slots, const std::string& from,
            const std::string& to) {
  for (program::Slot& slot : slots) {
    for (std::string& name : slot.arguments) {
      if (name == from) name = to;
    }
  }
}

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
      .def_prop_ro("block",
                   [](const Variable& v) {
                     return StaticBlock{v.program, v.block};
                   })
      .def_prop_ro("_program", [](const Variable& v) { return v.program; });
  nb::class_<StaticParameter, Variable>(m, "StaticParameter",
                                        "A parameter of a program.");
}

void BindBlock(nb::module_& m) {
  nb::class_<StaticBlock>(m, "Block", "A block of a program.")
      .def_ro("idx", &StaticBlock::index)
      .def_prop_ro("program", [](const StaticBlock& b) { return b.program; })
      .def_prop_ro("parent_idx",
                   [](const StaticBlock& b) { return b.get().parent(); })
      .def_prop_rw(
          "forward_block_idx",
          [](const StaticBlock& b) { return b.get().forward_block(); },
          [](StaticBlock& b, int index) { b.get().set_forward_block(index); })
      .def("__eq__",
           [](const StaticBlock& a, const StaticBlock& b) {
             return a.program == b.program && a.index == b.index;
           })
      .def("__hash__",
           [](const StaticBlock& b) {
             return reinterpret_cast<uintptr_t>(b.program.get()) ^ b.index;
           })
      .def_prop_ro("ops", ListOfOps)
      .def("_text",
           [](const StaticBlock& b, bool lines) {
             return program::ToString(b.get(), {.lines = lines});
           })
      .def("_num_ops", [](const StaticBlock& b) { return b.get().num_ops(); })
      .def("_variable_names",
           [](const StaticBlock& b) {
             std::vector<std::string> names;
             for (const program::Variable* v : b.get().variables()) {
               names.push_back(v->name);
             }
             return names;
           })
      .def("has_var",
           [](const StaticBlock& b, const std::string& name) {
             return b.get().FindHere(name) != nullptr;
           })
      .def("_has_var_recursive",
           [](const StaticBlock& b, const std::string& name) {
             return b.get().Find(name) != nullptr;
           })
      .def("_var",
           [](const StaticBlock& b, const std::string& name) {
             return WrapVariable(b.program, b.index, name);
           })
      .def("_add_variable",
           [](const StaticBlock& b, const std::string& name,
              const std::vector<int64_t>& shape, DType dtype, nb::dict flags) {
             const program::Variable& added =
                 b.get().AddVariable(MakeVariable(name, shape, dtype, flags));
             if (added.is_data && added.lod_level > 0) {
               program::MakeSequence(b.get(), name);
             }
             return WrapVariable(b.program, b.index, name);
           })
      .def("_remove_var",
           [](const StaticBlock& b, const std::string& name) {
             b.get().RemoveVariable(name);
           })
      .def("_rename_var",
           [](const StaticBlock& b, const std::string& from,
              const std::string& to) {
             program::Block& block = b.get();
             const program::Variable* found = block.FindHere(from);
             if (found == nullptr) {
               Fail(PyExc_ValueError, "the block has no variable ", from);
             }
             program::Variable renamed = *found;
             renamed.name = to;
             block.RemoveVariable(from);
             block.AddVariable(std::move(renamed));
             for (size_t i = 0; i < block.num_ops(); ++i) {
               Rename(block.op(i).inputs, from, to);
               Rename(block.op(i).outputs, from, to);
             }
             return WrapVariable(b.program, b.index, to);
           })
      .def("_insert", InsertOp, nb::arg("at"), nb::arg("type"),
           nb::arg("inputs").none(), nb::arg("outputs").none(),
           nb::arg("attrs").none())
      .def("_remove_op", [](const StaticBlock& b,
                            size_t index) { b.get().Remove(index, index + 1); })
      .def("_remove_ops", [](const StaticBlock& b, size_t begin, size_t end) {
        b.get().Remove(begin, end);
      });
}

void BindOperator(nb::module_& m) {
  nb::class_<StaticOperator>(m, "Operator", "An operation of a program.")
      .def_prop_ro("type", [](const StaticOperator& o) { return o.get().type; })
      .def_prop_ro("idx", [](const StaticOperator& o) { return o.position(); })
      .def("_text",
           [](const StaticOperator& o) { return program::ToString(o.get()); })
      .def_ro("_id", &StaticOperator::id)
      .def_prop_ro("made_at",
                   [](const StaticOperator& o) { return o.get().made_at; })
      .def_prop_ro("block",
                   [](const StaticOperator& o) {
                     return StaticBlock{o.program, o.block};
                   })
      .def("__eq__",
           [](const StaticOperator& a, const StaticOperator& b) {
             return a.program == b.program && a.id == b.id;
           })
      .def("__hash__", [](const StaticOperator& o) { return o.id; })
      .def("input", [](const StaticOperator& o,
                       const std::string& slot) { return o.get().input(slot); })
      .def("output",
           [](const StaticOperator& o, const std::string& slot) {
             return o.get().output(slot);
           })
      .def_prop_ro(
          "input_names",
          [](const StaticOperator& o) { return SlotNames(o.get().inputs); })
      .def_prop_ro(
          "output_names",
          [](const StaticOperator& o) { return SlotNames(o.get().outputs); })
      .def_prop_ro(
          "input_arg_names",
          [](const StaticOperator& o) { return Arguments(o.get().inputs); })
      .def_prop_ro(
          "output_arg_names",
          [](const StaticOperator& o) { return Arguments(o.get().outputs); })
      .def_prop_ro("attr_names",
                   [](const StaticOperator& o) {
                     std::vector<std::string> names;
                     for (const auto& [name, value] : o.get().attrs) {
                       names.push_back(name);
                     }
                     return names;
                   })
      .def("has_attr",
           [](const StaticOperator& o, const std::string& name) {
             return o.get().attr(name) != nullptr;
           })
      .def("attr",
           [](const StaticOperator& o, const std::string& name) {
             const AttrValue* value = o.get().attr(name);
             if (value == nullptr) {
               Fail(PyExc_KeyError, o.get().type, " has no attribute ", name);
             }
             return FromAttr(*value);
           })
      .def("all_attrs",
           [](const StaticOperator& o) {
             nb::dict attrs;
             for (const auto& [name, value] : o.get().attrs) {
               attrs[name.c_str()] = FromAttr(value);
             }
             return attrs;
           })
      .def("_set_attr",
           [](const StaticOperator& o, const std::string& name,
              nb::handle value) {
             o.get().attrs[name] = ToAttr(o.get().type, name, value);
             o.program->graph->Touch();
           })
      // Of an operation with a body: the variables that this reads and writes.
      .def("_fill_body_slots",
           [](const StaticOperator& o) {
             program::FillBodySlots(*o.program->graph, o.get());
           })
      .def("_rename_input",
           [](const StaticOperator& o, const std::string& from,
              const std::string& to) {
             Rename(o.get().inputs, from, to);
             o.program->graph->Touch();
           })
      .def("_rename_output",
           [](const StaticOperator& o, const std::string& from,
              const std::string& to) {
             Rename(o.get().outputs, from, to);
             o.program->graph->Touch();
           });
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
      .def_rw("scope", &Building::scope)
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
  std::vector<program::BackwardTarget> list;
  for (const auto& [variable, gradient] : targets) {
    list.push_back({variable, gradient});
  }
  return ValueOrThrow(program::AppendBackward(Library().definitions(),
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
             p.graph =
                 program::CloneForTest(Library().definitions(), *from.graph);
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
            program::Recompute(Library().definitions(), *p.graph, checkpoints));
      },
      nb::arg("program"), nb::arg("checkpoints"),
      "Backward computes what lies between checkpoints again; returns how many "
      "operations are repeated.");
  m.def(
      "use_mixed_precision",
      [](StaticProgram& p, program::DType dtype, std::set<std::string> white,
         std::set<std::string> gray, std::set<std::string> black_variables,
         std::string scope, bool short_parameters) {
        program::MixedPrecisionResult result =
            ValueOrThrow(program::UseMixedPrecision(
                Library().definitions(), *p.graph,
                {.dtype = dtype,
                 .white = std::move(white),
                 .gray = std::move(gray),
                 .black_variables = std::move(black_variables),
                 .scope = std::move(scope),
                 .short_parameters = short_parameters}));
        return std::pair(result.num_casts, std::move(result.parameters));
      },
      nb::arg("program"), nb::arg("dtype"), nb::arg("white"), nb::arg("gray"),
      nb::arg("black_variables"), nb::arg("scope"), nb::arg("short_parameters"),
      "Operations compute in a short type; returns how many casts that took, "
      "and the parameters that became short.");
}

}  // namespace fleet::python
