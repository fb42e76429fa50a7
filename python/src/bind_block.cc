// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/program/control.h"
#include "fleet/program/dtype.h"
#include "fleet/program/lod.h"
#include "fleet/program/text.h"

#include "attr_values.h"
#include "program.h"
#include "program_handles.h"

namespace fleet::python {

using program::AttrValue;
using program::DType;
using program::OpDef;

namespace {

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

}  // namespace

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
      // Gives an operation the variables that its body reads and writes.
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

}  // namespace fleet::python
