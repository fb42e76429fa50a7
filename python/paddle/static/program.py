# SPDX-License-Identifier: Apache-2.0
"""Programs, their blocks and variables, and the ones that are being built."""

import contextlib

from .. import _core
from .._core import Block, DType, Operator, StaticParameter, Variable, building
from ..framework.dtype import convert
from ..utils import unique_name
from . import variable as _variable  # noqa: F401  gives Variable its methods

__all__ = [
    "Program",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "name_scope",
    "program_guard",
]


class OpRole:
    """What an operation is there for; Paddle's numbers."""

    Forward = 0
    Backward = 1
    Optimize = 2
    RPC = 4
    Dist = 8
    LRSched = 16
    Loss = 256


class Program(_core.Program):
    """What a step computes, as data: blocks of variables and operations. Block 0 is the
    main one.

    While a `with program_guard(program):` lasts, functions add to it.
    """

    # What Executor.run does instead of running it; for subclasses.
    _run_instead = None

    def __init__(self):
        super().__init__()
        # What a parameter has beside what the program keeps, by name.
        self._parameter_info = {}
        # (scheduler, name) of learning rates that are set before each run.
        self._schedulers = []
        # Loaders that feed the program by themselves.
        self._readers = []
        self._compiled = None  # what _graph holds

    @property
    def _graph(self):
        """What Executor.run runs for this program: a CompiledProgram, or None for the
        program itself. minimize() of paddle.distributed.fleet sets it in jobs without
        servers, with the settings of the strategy; clones have none."""
        return self._compiled

    @_graph.setter
    def _graph(self, compiled):
        from .compiled import CompiledProgram

        if compiled is not None and not isinstance(compiled, CompiledProgram):
            raise TypeError(
                "Program._graph takes a CompiledProgram or None, but got "
                f"{type(compiled).__name__}"
            )
        self._compiled = compiled

    # ---- blocks

    def global_block(self):
        """Block 0."""
        return _core._block(self, 0)

    def block(self, index):
        return _core._block(self, index)

    def current_block(self):
        """The block that operations are appended to."""
        return _core._block(self, self.current_block_idx)

    @property
    def blocks(self):
        return [_core._block(self, i) for i in range(self.num_blocks)]

    def _create_block(self, parent_idx=None):
        """A new block inside the current one, which becomes the current one."""
        parent = self.current_block_idx if parent_idx is None else parent_idx
        self.current_block_idx = self._add_block(parent)
        return self.current_block()

    def _rollback(self):
        """The block around the current one becomes the current one."""
        self.current_block_idx = self.current_block().parent_idx

    # ---- variables

    def list_vars(self):
        """All variables, block by block."""
        for block in self.blocks:
            yield from block.vars.values()

    def all_parameters(self):
        """The parameters of all blocks."""
        return [v for v in self.list_vars() if v.is_parameter]

    # ---- copies

    def clone(self, for_test=False):
        """A program of its own with the same content. With `for_test` without the
        operations of backward and optimizers, and with those that behave differently
        in evaluation (dropout, batch_norm) set to it."""
        twin = type(self)()
        if for_test:
            twin._copy_for_test(self)
        else:
            twin._copy_from(self)
            twin._schedulers = list(self._schedulers)
        twin._readers = list(self._readers)
        twin._parameter_info = {k: dict(v) for k, v in self._parameter_info.items()}
        return twin

    # ---- bytes

    @staticmethod
    def parse_from_string(binary_str):
        """The program in the bytes of a ProgramDesc message: of a file .pdmodel or
        __model__, of Paddle or of desc.serialize_to_string()."""
        program = Program()
        _core.parse_program(program, bytes(binary_str), "parse_from_string")
        return program

    @property
    def desc(self):
        """The program as a message."""
        return ProgramDesc(self)

    # ---- printing

    def to_string(self, throw_on_error=False, with_details=False):
        """The program as text; `with_details` adds the lines that made operations."""
        return self._text(with_details)

    def __str__(self):
        return self._text(False)

    def __repr__(self):
        return self._text(False)


class ProgramDesc:
    """A program as the message that files hold."""

    def __init__(self, program):
        self._program = program

    def serialize_to_string(self):
        """The bytes of the message."""
        return _core.serialize_program(self._program)

    def num_blocks(self):
        return self._program.num_blocks


def prepare():
    """Makes the default programs, once."""
    if building.main is None:
        building.main = Program()
    if building.startup is None:
        building.startup = Program()


def default_main_program():
    """The program that functions add to."""
    prepare()
    return building.main


def default_startup_program():
    """The program that gives parameters their first values."""
    prepare()
    return building.startup


def switch_main_program(program):
    """Makes `program` the main program; returns the one so far."""
    old = default_main_program()
    building.main = program
    return old


def switch_startup_program(program):
    """Makes `program` the startup program; returns the one so far."""
    old = default_startup_program()
    building.startup = program
    return old


def _check_program(argument, program):
    if not isinstance(program, Program):
        raise TypeError(
            f"program_guard: {argument} must be a Program, but got "
            f"{type(program).__name__}"
        )


@contextlib.contextmanager
def program_guard(main_program, startup_program=None):
    """Inside the `with` block functions add to these programs."""
    _check_program("main_program", main_program)
    if startup_program is not None:
        _check_program("startup_program", startup_program)
    old_main = switch_main_program(main_program)
    old_startup = default_startup_program()
    if startup_program is not None:
        building.startup = startup_program
    try:
        yield
    finally:
        building.main = old_main
        building.startup = old_startup


@contextlib.contextmanager
def _setting(**values):
    """Inside the `with` block attributes of `building` have these values."""
    old = {name: getattr(building, name) for name in values}
    for name, value in values.items():
        setattr(building, name, value)
    try:
        yield
    finally:
        for name, value in old.items():
            setattr(building, name, value)


def role_guard(role):
    """Operations made inside are there for `role`, one of OpRole."""
    return _setting(role=role)


def layer_guard(name):
    """Outputs of operations made inside are named after the layer: fc_0.tmp_0."""
    return _setting(owner=name)


def eager_guard():
    """Functions called inside compute at once."""
    return _setting(on=False)


@contextlib.contextmanager
def appending_to(program, outputs=()):
    """Operations made inside go to block 0 of `program`; the outputs of the first have
    the names `outputs`."""
    current, program.current_block_idx = program.current_block_idx, 0
    try:
        with _setting(main=program, outputs=list(outputs), on=True):
            yield
    finally:
        program.current_block_idx = current


_NAME_SCOPES = [{}]


@contextlib.contextmanager
def name_scope(prefix=None):
    """Operations made inside carry the path of name scopes, for those who look at the
    program: `/encoder/`, `/encoder_1/`."""
    if not isinstance(prefix, str) or prefix == "" or "/" in prefix:
        raise ValueError(
            f"name_scope: prefix must be a name without '/', but is {prefix!r}"
        )
    used = _NAME_SCOPES[-1].setdefault(prefix, 0)
    _NAME_SCOPES[-1][prefix] += 1
    name = prefix if used == 0 else f"{prefix}_{used}"
    _NAME_SCOPES.append({})
    try:
        with _setting(scope=f"{building.scope or '/'}{name}/"):
            yield
    finally:
        _NAME_SCOPES.pop()


_DEVICES = ("cpu", "gpu", "npu", "xpu", "")


@contextlib.contextmanager
def device_guard(device=None):
    """Operations made inside are meant for `device`: 'cpu', 'gpu', 'gpu:1' or None."""
    name, _, index = (device or "").partition(":")
    if name not in _DEVICES or (index and not index.isdigit()):
        raise ValueError(
            "device_guard: device must be 'cpu', 'gpu', 'gpu:1' or None, but is "
            f"{device!r}"
        )
    if name == "cpu" and index:
        raise ValueError("device_guard: there is one 'cpu', without a number")
    with _setting(device=device or ""):
        yield


# ---- blocks and operations as Paddle shows them


def _vars(self):
    return {name: self._var(name) for name in self._variable_names()}


def _var(self, name):
    """The variable of this block with that name; ValueError if there is none."""
    if not isinstance(name, str):
        raise TypeError(f"var: the name must be a string, not {type(name).__name__}")
    if not self.has_var(name):
        raise ValueError(f"var {name} not in this block")
    return self._var(name)


def _find_var(self, name):
    if not self._has_var_recursive(name):
        raise ValueError(f"var {name} is not in this block, nor in one around it")
    return self._var(name)


def _find_var_or_none(self, name):
    return self._var(name) if self._has_var_recursive(name) else None


_KINDS = {"LOD_TENSOR": 7, "SELECTED_ROWS": 8, "LOD_TENSOR_ARRAY": 13, "RAW": 17}


def _create_var(
    self,
    name=None,
    shape=None,
    dtype=None,
    lod_level=None,
    persistable=None,
    stop_gradient=False,
    is_data=False,
    type=None,
    initializer=None,
    **others,
):
    """A variable of this block; the one that is there if the name is taken.

    initializer: appends the operation that fills it to this block.
    """
    _check_known("Block.create_var", others, _OF_VARIABLES)
    if name is None:
        name = unique_name.generate("_generated_var")
    elif self.has_var(name):
        return self._var(name)
    flags = {
        "lod_level": lod_level or 0,
        "persistable": bool(persistable),
        "stop_gradient": bool(stop_gradient),
        "is_data": bool(is_data),
    }
    if isinstance(type, str):
        if type not in _KINDS:
            raise ValueError(
                f"Block.create_var: type must be one of {list(_KINDS)}, not '{type}'"
            )
        flags["kind"] = _KINDS[type]
    elif type is not None:
        flags["kind"] = type
    kind = convert(dtype)
    kind = DType.float32 if kind is DType.none else kind
    dims = [-1 if n is None else int(n) for n in shape or ()]
    variable = self._add_variable(name, dims, kind, flags)
    if initializer is not None:
        initializer(variable, self)
    return variable


# What Paddle's eager mode and its memory would look at.
_OF_VARIABLES = ("belong_to_optimizer", "capacity", "is_leaf", "need_check_feed")
_OF_OPERATIONS = ("stop_gradient",)


def _check_known(function, given, known):
    for name in given:
        if name not in known:
            raise TypeError(f"{function} has no argument '{name}'")


def _append_op(self, type=None, inputs=None, outputs=None, attrs=None, **others):
    """Appends an operation; slots hold variables or names. Types of its outputs are
    worked out if the op is known."""
    _check_known("Block.append_op", others, _OF_OPERATIONS)
    return self._insert(-1, type, inputs, outputs, attrs)


def _prepend_op(self, type=None, inputs=None, outputs=None, attrs=None, **others):
    _check_known("Block._prepend_op", others, _OF_OPERATIONS)
    return self._insert(0, type, inputs, outputs, attrs)


def _insert_op(self, index, type=None, inputs=None, outputs=None, attrs=None, **others):
    _check_known("Block._insert_op", others, _OF_OPERATIONS)
    return self._insert(index, type, inputs, outputs, attrs)


def _create_parameter(
    self, name=None, shape=None, dtype="float32", initializer=None, **attributes
):
    from ..framework.param_attr import ParamAttr
    from ..framework.parameter import new_parameter

    of_attr = ("do_model_average", "need_clip", "regularizer", "trainable")
    # A parameter always outlives a run; where its rows lie is decided by its look-ups.
    fixed = ("is_distributed", "persistable", "stop_gradient", "optimize_attr")
    _check_known("Block.create_parameter", attributes, (*of_attr, *fixed))
    known = {k: attributes[k] for k in of_attr if k in attributes}
    if "stop_gradient" in attributes:
        known.setdefault("trainable", not attributes["stop_gradient"])
    factor = (attributes.get("optimize_attr") or {}).get("learning_rate", 1.0)
    attr = ParamAttr(name, initializer, factor, **known)
    with program_guard(self.program), _setting(on=True):
        return new_parameter(shape, attr, dtype, False, None, "param")


def _block_parameters(self):
    return [v for v in self.vars.values() if v.is_parameter]


def _attach():
    members = {
        "vars": property(_vars),
        "var": _var,
        "_find_var_recursive": _find_var_or_none,
        "_var_recursive": _find_var,
        "create_var": _create_var,
        "create_parameter": _create_parameter,
        "all_parameters": _block_parameters,
        "append_op": _append_op,
        "_prepend_op": _prepend_op,
        "_insert_op": _insert_op,
        "to_string": lambda self, *args: self._text(bool(args and args[-1])),
        "__str__": lambda self: self._text(False),
        "__repr__": lambda self: self._text(False),
    }
    for name, member in members.items():
        setattr(Block, name, member)
    Operator.__str__ = Operator.__repr__ = lambda self: self._text()
    Operator.to_string = lambda self, throw_on_error=False: self._text()
    for kind in (Block, Operator, Variable, StaticParameter):
        kind.__module__ = "paddle.static"


_attach()
building.generate = unique_name.generate
