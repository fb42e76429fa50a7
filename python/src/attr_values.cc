// SPDX-License-Identifier: Apache-2.0
#include "attr_values.h"

#include <exception>
#include <utility>
#include <variant>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fleet/program/dtype.h"
#include "fleet/program/op_def.h"

#include "program.h"
#include "program_handles.h"

namespace fleet::python {

using program::AttrDef;
using program::AttrKind;
using program::AttrType;
using program::AttrValue;
using program::DType;
using program::OpDef;

namespace {

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

}  // namespace

int64_t ToInt(nb::handle value) {
  if (nb::isinstance<DType>(value)) {
    return static_cast<int64_t>(nb::cast<DType>(value));
  }
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  return nb::cast<int64_t>(index);
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

}  // namespace fleet::python
