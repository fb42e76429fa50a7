# SPDX-License-Identifier: Apache-2.0
"""The stubs that a wheel holds: every name and parameter that the package has."""

import ast
import importlib
import importlib.util
import inspect
import pathlib
import pkgutil
import types

import paddle
import pytest

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "make_stubs.py"
MODULES = ["paddle"] + [
    info.name
    for info in pkgutil.walk_packages(paddle.__path__, "paddle.")
    if not any(part.startswith("_") for part in info.name.split("."))
]


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """The folder that the program wrote."""
    spec = importlib.util.spec_from_file_location("make_stubs", PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    folder = tmp_path_factory.mktemp("stubs")
    program.write_stubs(folder)
    return folder


def entries(stubs, module):
    """What the stub of a module says of each name: the node that defines or imports
    it."""
    file = stubs.joinpath(*module.split("."))
    file = file / "__init__.pyi" if file.is_dir() else file.with_suffix(".pyi")
    found = {}
    for node in ast.parse(file.read_text(encoding="utf8")).body:
        if isinstance(node, ast.ImportFrom):
            found.update({alias.asname or alias.name: node for alias in node.names})
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = node
        elif isinstance(node, ast.Assign):
            found[node.targets[0].id] = node
        else:
            found[node.name] = node
    return found


def parameters(node):
    """Names of the parameters of a function in a stub, with whether each may be absent."""
    args = node.args
    plain = [*args.posonlyargs, *args.args]
    needed = len(plain) - len(args.defaults)
    pairs = [(arg.arg, i >= needed) for i, arg in enumerate(plain)]
    pairs += [(args.vararg.arg, None)] if args.vararg else []
    pairs += [
        (arg.arg, default is not None)
        for arg, default in zip(args.kwonlyargs, args.kw_defaults)
    ]
    return pairs + ([(args.kwarg.arg, None)] if args.kwarg else [])


def expected(function):
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        (p.name, None if p.kind in variable else p.default is not p.empty)
        for p in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_has_every_name_with_its_parameters(stubs, name):
    module, stub = importlib.import_module(name), entries(stubs, name)
    assert set(getattr(module, "__all__", ())) - set(stub) == set()
    for key, node in stub.items():
        if key == "Any" or key.startswith("_"):
            continue
        thing = getattr(module, key)
        if isinstance(node, ast.ImportFrom) and not isinstance(thing, types.ModuleType):
            home = importlib.import_module(node.module)
            (origin,) = [a.name for a in node.names if (a.asname or a.name) == key]
            assert thing in (getattr(home, origin), paddle.Tensor)
        elif isinstance(node, ast.FunctionDef) and inspect.isfunction(thing):
            assert parameters(node) == expected(thing)
        elif isinstance(node, ast.ClassDef):
            check_members(node, thing)


def check_members(node, kind):
    defined = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
    for name, value in vars(kind).items():
        shown = name == "__init__" or not name.startswith("_")
        if name == "__init__" and "__signature__" in vars(kind):
            assert parameters(defined[name]) == [("self", False), *expected(kind)]
        elif inspect.isfunction(value) and shown:
            assert parameters(defined[name]) == expected(value)


def test_the_stub_of_a_tensor_has_all_its_members(stubs):
    node = entries(stubs, "paddle._core")["Tensor"]
    defined = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
    members = [name for name in dir(paddle.Tensor) if not name.startswith("_")]
    assert len(members) > 200
    assert set(members) - set(defined) == set()
    assert parameters(defined["add_"]) == [("x", False), ("y", False), ("name", True)]
    assert {"__add__", "__getitem__", "__len__", "numpy", "shape"} <= set(defined)


def test_names_that_are_loaded_later_are_in_the_stubs(stubs):
    later = {"nn", "optimizer", "save", "Model", "DataParallel", "Tensor"}
    assert later <= set(entries(stubs, "paddle"))
    assert {"spawn", "fleet"} <= set(entries(stubs, "paddle.distributed"))


def test_attributes_that_methods_set_are_in_the_stubs(stubs):
    node = entries(stubs, "paddle.nn.layer.linear")["Linear"]
    held = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
    assert {"weight", "bias"} <= held
    assert [base.id for base in node.bases] == ["_Layer"]


def test_the_package_says_that_it_is_typed():
    assert (pathlib.Path(paddle.__file__).parent / "py.typed").exists()
