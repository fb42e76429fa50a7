// SPDX-License-Identifier: Apache-2.0

// Branches and loops of programs whose bodies are Python functions, by the
// builder's functions for them.

#include <nanobind/nanobind.h>

#include "python_builder.h"

namespace fleet::python {

namespace {

using program::Value;
using program::Values;

Values ValuesOf(PythonBuilder& b, nb::handle list) {
  Values values;
  for (nb::handle value : list) values.push_back(b.ValueOf(value));
  return values;
}

nb::list ListOf(PythonBuilder& b, const Values& values) {
  nb::list list;
  for (const Value& value : values) list.append(b.Wrap(value));
  return list;
}

// What function(*arguments) returns, a list; empty after a failure, which the
// builder then has.
Values Call(PythonBuilder& b, const nb::object& function,
            const Values& arguments) {
  Values values;
  const Status status = b.CallPython(
      [&] { values = ValuesOf(b, function(*ListOf(b, arguments))); });
  if (!status.ok()) b->Fail(status);
  return values;
}

nb::object If(nb::handle condition, nb::object body) {
  PythonBuilder b;
  nb::object made = nb::none();
  b->If(b.ValueOf(condition), [&] {
    const Status status = b.CallPython([&] { made = body(); });
    if (!status.ok()) b->Fail(status);
  });
  b.Check(OkStatus());
  return made;
}

nb::list Cond(nb::handle condition, nb::object then, nb::object otherwise) {
  PythonBuilder b;
  const auto branch = [&b](const nb::object& function) -> program::Branch {
    if (function.is_none()) return nullptr;
    return [&b, function] { return Call(b, function, {}); };
  };
  const Values selected =
      b->Cond(b.ValueOf(condition), branch(then), branch(otherwise));
  b.Check(OkStatus());
  return ListOf(b, selected);
}

nb::list While(nb::object condition, nb::object body, nb::list values,
               bool is_test) {
  PythonBuilder b;
  const Values carried = b->While(
      [&](const Values& now) {
        Value holds;
        const Status status = b.CallPython(
            [&] { holds = b.ValueOf(condition(*ListOf(b, now))); });
        if (!status.ok()) b->Fail(status);
        return holds;
      },
      [&](const Values& now) { return Call(b, body, now); },
      ValuesOf(b, values));
  b.Check(OkStatus());
  program::Block& block = b->block();
  block.op(block.num_ops() - 1).attrs["is_test"] = {program::AttrKind::kBool,
                                                    is_test};
  return ListOf(b, carried);
}

}  // namespace

void BindControl(nb::module_& m) {
  using nb::arg;
  m.def("append_if", If, arg("condition"), arg("body"),
        "Appends what body() appends, to run where `condition` holds; returns "
        "what it returns.");
  m.def("cond", Cond, arg("condition"), arg("then").none(),
        arg("otherwise").none(),
        "The variables that then() returns where `condition` holds, else those "
        "of otherwise().");
  m.def("while_loop", While, arg("condition"), arg("body"), arg("values"),
        arg("is_test"),
        "The variables after values = body(*values) as long as "
        "condition(*values) holds.");
}

}  // namespace fleet::python
