#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that includes point strictly down, and that a library has one door.

The table is the one of docs/architecture.md: what a folder of fleet/ may include of
other folders, and which third-party headers it may name.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# folder -> (folders it may include, third-party prefixes it may include)
LAYERS = {
    "base": ((), ("spdlog/", "hwy/")),
    "optim": (("base",), ()),
    "table": (("optim", "base"), ("rocksdb/",)),
    "program": (("base",), ("protozero/",)),
    "channel": (("base",), ("openssl/", "ucp/")),
    "cluster": (("channel", "base"), ()),
    "launch": (("cluster", "channel", "base"), ("CLI/",)),
    "plan": (("program", "table", "optim", "cluster", "base"), ()),
    "ps": (("table", "cluster", "channel", "base"), ()),
    "data": (("base",), ()),
    "comm": (("cluster", "channel", "base"), ("mpi.h", "nccl.h")),
    "saved": (("program", "table", "base"), ()),
    "served": (("ps", "plan", "table", "optim", "base"), ()),
    "ops": (("program", "optim", "base"), ("ATen/", "c10/", "torch/", "dnnl.hpp")),
    "exec": (
        ("ops", "plan", "saved", "optim", "program", "data", "base"),
        ("ATen/", "c10/"),
    ),
    "sync": (
        ("exec", "served", "ops", "comm", "plan", "data", "program", "base"),
        ("ATen/", "c10/", "torch/"),
    ),
    # For tests alone: everything may be included, and only tests include it.
    "testing": (
        (
            "",
            "sync",
            "served",
            "exec",
            "ops",
            "comm",
            "launch",
            "ps",
            "plan",
            "table",
            "optim",
            "data",
            "cluster",
            "channel",
            "program",
            "base",
        ),
        ("ATen/", "c10/", "torch/"),
    ),
    # The face: files in fleet/ itself.
    "": (
        (
            "sync",
            "exec",
            "served",
            "ops",
            "comm",
            "ps",
            "plan",
            "saved",
            "table",
            "optim",
            "data",
            "cluster",
            "channel",
            "program",
            "base",
        ),
        ("ATen/", "c10/", "torch/"),
    ),
}
# Found in any folder, these need no door.
EVERYWHERE = ("gtest/", "gmock/", "benchmark/")
# Kernels never pay for the header that includes everything.
FORBIDDEN = ("torch/torch.h", "torch/extension.h", "ATen/ATen.h", "ATen/Functions.h")

# Folders of the system's own headers.
SYSTEM = ("sys/", "arpa/", "linux/", "netinet/")

INCLUDE = re.compile(r'^\s*#include\s+([<"])([^>"]+)[>"]', re.M)


def third_party(path):
    """Whether `path` in angle brackets is neither the C++ library nor the system."""
    return ("/" in path and not path.startswith(SYSTEM)) or path.endswith(".hpp")


def is_test(path):
    """Whether `path` is a test or benchmark, or the suite of a contract."""
    return path.stem.endswith(("_test", "_benchmark")) or "_conformance" in path.stem


def check(path):
    parts = path.relative_to(ROOT / "fleet").parts
    folder = parts[0] if len(parts) > 1 else ""
    if folder not in LAYERS:
        yield f"{path}: folder {folder} is not in the table of tools/check_layers.py"
        return
    below, doors = LAYERS[folder]
    for quote, name in INCLUDE.findall(path.read_text(encoding="utf8")):
        if quote == '"':
            target = name.split("/")[1] if name.startswith("fleet/") else None
            target = "" if target is not None and name.count("/") == 1 else target
            if target is None:
                yield f'{path}: include "{name}" by its path from the root'
            elif target == "testing" and (folder == "testing" or is_test(path)):
                continue
            elif target != folder and target not in below:
                yield f"{path}: {folder} may not include {target}"
        elif name in FORBIDDEN:
            yield f"{path}: include the headers of single operators, not {name}"
        elif third_party(name) and not name.startswith(doors + EVERYWHERE):
            yield f"{path}: {folder} is no door to <{name}>"


def main():
    sources = sorted(
        p for p in (ROOT / "fleet").rglob("*") if p.suffix in (".h", ".cc")
    )
    problems = [problem for path in sources for problem in check(path)]
    for problem in problems:
        print(str(problem).replace(str(ROOT) + "/", ""), file=sys.stderr)
    print(f"layers: {len(sources)} files, {len(problems)} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
