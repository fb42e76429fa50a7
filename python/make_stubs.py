# SPDX-License-Identifier: Apache-2.0
"""Writes the stubs of paddle, which editors and type checkers read: they see through
neither a derived `__all__`, nor what is loaded at first use, nor the engine.

    make_stubs.py SOURCES ENGINE FOLDER

SOURCES is python/paddle, ENGINE the folder with _core, FOLDER gets paddle/**/*.pyi: one
for each module, of the names and parameters that it has when it runs. The types are
those that functions say, else any. The engine's stub holds Tensor with all its members.
"""

import ast
import importlib
import inspect
import keyword
import os
import pkgutil
import sys
import tempfile
import textwrap
import types
from pathlib import Path

HEADER = """# SPDX-License-Identifier: Apache-2.0
# Generated from the package.
from typing import Any

"""
_PLAIN = (bool, int, float, str, type(None))
_SPECIAL = (
    "abs add array bool call complex contains deepcopy enter eq exit float floordiv "
    "format ge getattr getitem gt index init int invert iter le len lt matmul mod mul "
    "ne neg next pos pow radd rand repr rfloordiv rmatmul rmod rmul ror rpow rsub "
    "rtruediv rxor setitem str sub truediv and or xor hash"
)
SPECIAL = {f"__{name}__" for name in _SPECIAL.split()}


def is_public(name):
    return not name.startswith("_") and not keyword.iskeyword(name)


def public_names(module):
    """The names that users may take from a module."""
    listed = getattr(module, "__all__", ())
    return sorted(name for name in {*dir(module), *listed} if is_public(name))


def found(module, name):
    """The thing of that name; None where only a reason comes why it is not there."""
    try:
        return getattr(module, name)
    except (AttributeError, ImportError, NotImplementedError):
        return None


def home_of(thing, name):
    """The module of the package that defines `thing` under this name, or None."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    if module is None or not module.__name__.startswith("paddle"):
        return None
    return module.__name__ if vars(module).get(name) is thing else None


# ---- definitions


def annotated(annotation):
    return annotation if isinstance(annotation, str) else "Any"


def parameters_of(signature):
    """The text of the parameters, in the order and with the defaults of a signature."""
    texts, starred = [], False
    for parameter in signature.parameters.values():
        text = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            text, starred = f"*{text}", True
        elif parameter.kind is parameter.VAR_KEYWORD:
            text = f"**{text}"
        elif parameter.kind is parameter.KEYWORD_ONLY and not starred:
            texts.append("*")
            starred = True
        if not (parameter.name == "self" and not texts):
            text += f": {annotated(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            plain = isinstance(parameter.default, _PLAIN)
            finite = repr(parameter.default) not in ("inf", "-inf", "nan")
            text += f" = {repr(parameter.default) if plain and finite else '...'}"
        texts.append(text)
    return ", ".join(texts)


def function(name, value, indent=""):
    try:
        signature = inspect.signature(value)
        parameters = parameters_of(signature)
        result = annotated(signature.return_annotation)
    except (TypeError, ValueError):
        parameters = ("self, " if indent else "") + "*args: Any, **kwargs: Any"
        result = "Any"
    return f"{indent}def {name}({parameters}) -> {result}: ...\n"


def member(name, value):
    """A member of a class, in a stub."""
    indent = "    "
    if isinstance(value, (staticmethod, classmethod)):
        mark = "staticmethod" if isinstance(value, staticmethod) else "classmethod"
        text = function(name, value.__func__, indent)
        return f"{indent}@{mark}\n{text}"
    if isinstance(value, property) or inspect.isdatadescriptor(value):
        read = f"{indent}@property\n{indent}def {name}(self) -> Any: ...\n"
        if getattr(value, "fset", True) is None:
            return read
        return f"{read}{indent}@{name}.setter\n{indent}def {name}(self, value: Any) -> None: ...\n"
    if callable(value) and not isinstance(value, type):
        return function(name, value, indent)
    return f"{indent}{name}: Any\n"


def attributes(kind):
    """The names that the methods of a class give to `self`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):
        return set()
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and is_public(node.attr)
    }


def shown(kind):
    """The members of a class that a stub shows, in their order by name."""
    members = vars(kind)
    names = [name for name in members if is_public(name)]
    names += [name for name in members if name in SPECIAL and members[name] is not None]
    seen = {name: members[name] for name in sorted(names)}
    if isinstance(members.get("__signature__"), inspect.Signature):
        seen["__init__"] = initializer(kind.__signature__)
    return seen


def initializer(signature):
    """A function with the parameters that a class says it takes."""

    def __init__(self): ...

    own = inspect.signature(__init__).parameters["self"]
    __init__.__signature__ = signature.replace(
        parameters=[own, *signature.parameters.values()]
    )
    return __init__


def class_(name, base, members, held=()):
    """A class of these members whose objects also hold what `held` names."""
    text = f"class {name}{f'({base})' if base else ''}:\n"
    body = "".join(member(key, value) for key, value in members.items())
    body += "".join(f"    {key}: Any\n" for key in sorted({*held} - {*members}))
    return text + (body or "    ...\n")


def visible(kind):
    """What a stub writes of a class: its bases that users know, and the members and
    attributes of itself and of its bases that they do not."""
    bases, members, held = [], {}, set()
    for base in kind.__bases__:
        home = home_of(base, base.__name__)
        if base in (Exception, list, dict) or home and is_public(base.__name__):
            bases.append(base)
        elif home:
            more, inherited, also = visible(base)
            bases += more
            members.update(inherited)
            held |= also
    return bases, {**members, **shown(kind)}, held | attributes(kind)


def engine_stub(core):
    """The engine: Tensor, of which a value and a variable of a program are kinds, and
    what else there is, by name only."""
    text = HEADER + class_(
        "Tensor", "", {**shown(core.EagerTensor), **shown(core.Tensor)}
    )
    text += "\nEagerTensor = Tensor\n\n"
    text += class_("Variable", "Tensor", shown(core.Variable))
    for name in public_names(core):
        value = getattr(core, name)
        if name in ("Tensor", "EagerTensor", "Variable"):
            continue
        if isinstance(value, type):
            base = "Exception" if issubclass(value, Exception) else ""
            text += "\n" + class_(name, base, shown(value))
        elif callable(value):
            text += function(name, value)
        else:
            text += f"{name}: Any\n"
    return text


# ---- modules


class Stub:
    """The stub of one module: where each name comes from, or what it is."""

    def __init__(self, module):
        self._here = module.__name__
        self._imports, self._defined = set(), []
        for name in public_names(module):
            value = found(module, name)
            if value is not None or name in vars(module):
                self._add(name, value)

    def text(self):
        lines = "\n".join(sorted(self._imports))
        return f"{HEADER}{lines}\n\n" + "\n".join(self._defined)

    def _take(self, home, name, known):
        self._imports.add(f"from {home} import {name} as {known}")

    def _add(self, name, value):
        home = home_of(value, name)
        if isinstance(value, types.ModuleType):
            parent, _, last = value.__name__.rpartition(".")
            if parent.startswith("paddle") and is_public(last):
                self._take(parent, last, name)
        elif value is sys.modules["paddle._core"].EagerTensor:
            self._take("paddle._core", "Tensor", name)
        elif home not in (None, self._here):
            self._take(home, name, name)
        elif home is None and self._is_named_elsewhere(value):
            self._take(value.__module__, value.__name__, name)
        elif isinstance(value, type) and home == self._here:
            self._define_class(name, value)
        elif inspect.isroutine(value):
            self._defined.append(function(name, value))
        else:
            self._defined.append(f"{name}: Any\n")

    @staticmethod
    def _is_named_elsewhere(value):
        other = getattr(value, "__name__", None)
        return isinstance(other, str) and home_of(value, other) is not None

    def _define_class(self, name, value):
        bases, members, held = visible(value)
        texts = []
        for base in bases:
            home = home_of(base, base.__name__)
            if home in (None, self._here):
                texts.append(base.__name__)
            else:
                self._take(home, base.__name__, f"_{base.__name__}")
                texts.append(f"_{base.__name__}")
        self._defined.append(class_(name, ", ".join(texts), members, held))


def modules_of(package):
    yield package
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            yield importlib.import_module(info.name)


def write(folder, module, text):
    parts = module.__name__.split(".")
    is_package = hasattr(module, "__path__")
    file = (
        folder.joinpath(*parts, "__init__") if is_package else folder.joinpath(*parts)
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".pyi").write_text(text, encoding="utf8")


def write_stubs(folder):
    import paddle

    write(folder, paddle._core, engine_stub(paddle._core))
    for module in modules_of(paddle):
        write(folder, module, Stub(module).text())


def main():
    sources, engine, folder = (Path(arg).resolve() for arg in sys.argv[1:])
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as place:
        package = Path(place, "paddle")
        package.mkdir()
        for entry in sources.iterdir():
            if entry.name != "_lib":
                os.symlink(entry, package / entry.name)
        os.symlink(engine, package / "_lib")
        sys.path.insert(0, place)
        write_stubs(folder)


if __name__ == "__main__":
    main()
