#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints which names of the API are present and tested, present, put off, or absent.

    tools/surface.py [--all]

The names are those of tools/surface.txt. A name is tested when a test refers to it
in a file of python/tests that asserts something: directly (`paddle.add`,
`F.relu`), through a table of names and `getattr(paddle, name)`, or, for a member of a
class, by its name behind a dot. By default only what
is not "present and tested" is listed; --all lists everything. Exit status 1 if a
name with a star is absent or untested.
"""

import argparse
import ast
import importlib
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

CLASSES = (
    "paddle.Tensor",
    "paddle.nn.Layer",
    "paddle.optimizer.Optimizer",
    "paddle.io.DataLoader",
    "paddle.static.Executor",
    "paddle.static.Program",
    "paddle.static.Scope",
    "paddle.static.CompiledProgram",
    "paddle.static.InputSpec",
    "paddle.static.BuildStrategy",
    "paddle.static.ExecutionStrategy",
    "paddle.nn.SyncBatchNorm",
    "paddle.distributed.ParallelEnv",
    "paddle.distributed.ReduceOp",
    "paddle.distributed.fleet.DistributedStrategy",
    "paddle.distributed.fleet.base.role_maker.RoleMakerBase",
    "paddle.fluid.transpiler.DistributeTranspiler",
    "paddle.fluid.incubate.fleet.base.role_maker.RoleMakerBase",
    "paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.fleet",
)
# Members that a test uses without naming them.
SPELLINGS = {
    "__getitem__": ast.Subscript,
    "__setitem__": ast.Subscript,
    "__add__": ast.Add,
    "__sub__": ast.Sub,
    "__mul__": ast.Mult,
    "__truediv__": ast.Div,
    "__pow__": ast.Pow,
    "__matmul__": ast.MatMult,
    "__neg__": ast.USub,
    "__lt__": ast.Lt,
    "__eq__": ast.Eq,
    "__iter__": ast.For,
    "__call__": ast.Call,
}
CALLED = {"__len__": "len", "__repr__": "repr"}


def read_list():
    """(section, full name, starred, put off) for every name of the list."""
    section = None
    for line in (ROOT / "tools/surface.txt").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            prefix, _, names = line.partition(": ")
            for name in names.split():
                plain = name.strip("*~")
                yield section, f"{prefix}.{plain}", "*" in name, "~" in name


ABSENT = object()


def find(full_name):
    """The object of that name, or ABSENT."""
    parts = full_name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except (ImportError, NotImplementedError):
            continue
        try:
            for part in parts[n:]:
                found = getattr(found, part)
        except (AttributeError, NotImplementedError):
            return ABSENT
        return found
    return ABSENT


class Uses(ast.NodeVisitor):
    """The dotted names, member names and kinds of syntax that a file uses."""

    def __init__(self):
        self.aliases, self.names, self.members = {}, set(), set()
        self.kinds, self.calls, self.asserts = set(), set(), False
        self.objects = set()

    def visit_Import(self, node):
        for a in node.names:
            self.aliases[a.asname or a.name.split(".")[0]] = (
                a.name if a.asname else a.name.split(".")[0]
            )

    def visit_ImportFrom(self, node):
        for a in node.names:
            self.aliases[a.asname or a.name] = f"{node.module}.{a.name}"

    def dotted(self, node):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in self.aliases:
            return ".".join([self.aliases[node.id], *reversed(parts)])
        return None

    def visit_FunctionDef(self, node):
        """A test over names, `getattr(paddle, name)`, uses those of its table."""
        names = [
            n.value
            for decorator in node.decorator_list
            for n in ast.walk(decorator)
            if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
        for call in ast.walk(node):
            if (
                isinstance(call, ast.Call)
                and getattr(call.func, "id", "") == "getattr"
                and (owner := self.dotted(call.args[0]))
            ):
                self.names.update(f"{owner}.{name}" for name in names)
        self.generic_visit(node)

    def generic_visit(self, node):
        self.kinds.add(type(node))
        if isinstance(node, (ast.Attribute, ast.Name)):
            name = self.dotted(node)
            if name:
                self.names.add(name)
        if isinstance(node, ast.Attribute):
            self.members.add(node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            self.calls.add(node.func.id)
        text = getattr(getattr(node, "func", None), "attr", "")
        if isinstance(node, ast.Assert) or "assert" in text or text == "raises":
            self.asserts = True
        super().generic_visit(node)


def collect_uses():
    total = Uses()
    for path in (ROOT / "python/tests").glob("test_*.py"):
        uses = Uses()
        uses.visit(ast.parse(path.read_text(encoding="utf8")))
        if uses.asserts:
            for field in ("names", "members", "kinds", "calls"):
                getattr(total, field).update(getattr(uses, field))
    # One function has many names (paddle.reshape, paddle.tensor.reshape, ...).
    ours = (find(n) for n in total.names if n.split(".")[0] == "paddle")
    total.objects = {id(o) for o in ours if callable(o)}
    return total


def is_tested(full_name, uses):
    owner, _, member = full_name.rpartition(".")
    if owner in CLASSES:
        if member in SPELLINGS:
            return SPELLINGS[member] in uses.kinds
        if member in CALLED:
            return CALLED[member] in uses.calls
        return member in uses.members
    if id(find(full_name)) in uses.objects:
        return True
    return any(n == full_name or n.startswith(full_name + ".") for n in uses.names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="list every name")
    args = parser.parse_args()
    uses, counts, bad, last = collect_uses(), Counter(), 0, None
    for section, name, starred, put_off in read_list():
        if put_off:
            state = "put off"
        elif find(name) is ABSENT:
            state = "absent"
        else:
            state = "present and tested" if is_tested(name, uses) else "present"
        counts[state] += 1
        wrong = starred and state in ("absent", "present")
        bad += wrong
        if args.all or state != "present and tested":
            if section != last:
                print(f"[{section}]")
                last = section
            print(f"  {'!' if wrong else ' '} {name:55} {state}")
    print(", ".join(f"{n} {state}" for state, n in counts.most_common()))
    if bad:
        print(f"{bad} names that must be present and tested are not (marked !)")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
