// SPDX-License-Identifier: Apache-2.0

// Attributes of operations as values of Python.

#ifndef FLEET_PYTHON_SRC_ATTR_VALUES_H_
#define FLEET_PYTHON_SRC_ATTR_VALUES_H_

#include <cstdint>
#include <string>

#include <nanobind/nanobind.h>

#include "fleet/program/program.h"

namespace fleet::python {

namespace nb = nanobind;

// A whole number, or an element type as its number. TypeError for others.
int64_t ToInt(nb::handle value);

// By the definition of the op, where it has the attribute, else by the type
// that the value has in Python. TypeError names the op and the attribute.
program::AttrValue ToAttr(const std::string& op_type, const std::string& name,
                          nb::handle value);

nb::object FromAttr(const program::AttrValue& attr);

}  // namespace fleet::python

#endif  // FLEET_PYTHON_SRC_ATTR_VALUES_H_
