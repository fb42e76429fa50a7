# SPDX-License-Identifier: Apache-2.0
"""Branches and loops: in programs operations with blocks of their own, in eager mode
Python's."""

import contextlib
import functools

from .. import _core, _ops
from .._core import DType, Tensor, Variable
from ..framework.mode import in_dynamic_mode
from ..tensor.creation import to_tensor
from ..utils import unique_name
from .program import default_main_program

__all__ = ["case", "cond", "switch_case", "while_loop"]


_ARRAY = 13  # the kind of a variable that is an array of tensors


# ---- nested lists and dicts


def _flatten(value):
    """The leaves of nested lists, tuples and dicts, in order."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _flatten(item)]
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in _flatten(value[key])]
    return [value]


def _pack_like(structure, leaves):
    """`leaves` in the form of `structure`."""
    leaves = iter(leaves)

    def pack(value):
        if isinstance(value, (list, tuple)):
            items = [pack(item) for item in value]
            if hasattr(value, "_fields"):
                return type(value)(*items)
            return type(value)(items)
        if isinstance(value, dict):
            packed = {key: pack(value[key]) for key in sorted(value)}
            return type(value)((key, packed[key]) for key in value)
        return next(leaves)

    return pack(structure)


def _form(value):
    """What two structures must have in common."""
    if isinstance(value, (list, tuple)):
        return [_form(item) for item in value]
    if isinstance(value, dict):
        return {key: _form(item) for key, item in value.items()}
    return None


# ---- bodies


@contextlib.contextmanager
def new_body():
    """Operations made inside go to a new block; gives it."""
    program = default_main_program()
    block = program._create_block()
    try:
        yield block
    finally:
        program._rollback()


def append_body(kind, block, inputs, attrs):
    """Appends the operation that runs `block`, behind the current ones."""
    op = (
        default_main_program()
        .current_block()
        .append_op(kind, inputs, {}, {"sub_block": block, **attrs})
    )
    op._fill_body_slots()
    return op


def append_conditional(condition, block):
    append_body(
        "conditional_block", block, {"Cond": condition}, {"is_scalar_condition": True}
    )


def new_variable(kind, like=None, block=None, dtype=None, shape=None, **flags):
    """A variable without a value, of the type of `like`."""
    block = default_main_program().current_block() if block is None else block
    return block.create_var(
        name=unique_name.generate(f"{unique_name.generate(kind)}.tmp"),
        shape=like.shape if like is not None else shape,
        dtype=like.dtype if like is not None else dtype,
        **flags,
    )


def write(value, variable):
    """Appends an operation that makes `variable` equal to `value`."""
    default_main_program().current_block().append_op(
        "assign", {"X": value}, {"Out": variable}
    )


def _check_predicate(function, argument, value):
    if not isinstance(value, Variable):
        raise TypeError(
            f"{function}: {argument} must be a Variable, but got {type(value).__name__}"
        )
    if value.dtype is not DType.bool:
        raise TypeError(
            f"{function}: {argument} must be of type bool, but {value.name} is "
            f"{value.dtype.name}"
        )
    if any(n not in (1, -1) for n in value.shape):
        raise ValueError(
            f"{function}: {argument} must have one element, but the shape of "
            f"{value.name} is {value.shape}"
        )


def _as_variable(value, function):
    """A leaf that a branch or body returned, as a Variable."""
    if isinstance(value, Variable):
        return value
    if isinstance(value, Tensor):
        return _core.as_variable(value)
    if isinstance(value, bool):
        return _ops.fill_constant(None, None, [1], float(value), "", DType.bool)
    if isinstance(value, (int, float)):
        kind = DType.int64 if isinstance(value, int) else DType.float32
        return _ops.fill_constant(None, None, [1], float(value), "", kind)
    raise TypeError(
        f"{function}: a branch must return Variables, numbers or None, but there is a "
        f"{type(value).__name__}"
    )


# ---- branches


def cond(pred, true_fn=None, false_fn=None, name=None, return_names=None):
    """What true_fn() returns if `pred` holds, else what false_fn() returns. Both must
    return the same structure of Variables, or None.

    pred: one bool.
    """
    for argument, function in (("true_fn", true_fn), ("false_fn", false_fn)):
        if function is not None and not callable(function):
            raise TypeError(
                f"cond: {argument} must be a function, but is a "
                f"{type(function).__name__}"
            )
    if in_dynamic_mode() and not isinstance(pred, Variable):
        if not isinstance(pred, Tensor):
            raise TypeError(
                f"cond: pred must be a Tensor, but got {type(pred).__name__}"
            )
        chosen = true_fn if pred.numpy().any() else false_fn
        return None if chosen is None else chosen()
    _check_predicate("cond", "pred", pred)
    made = [None, None]  # what each of them returned, and its leaves

    def branch(place, function):
        def run():
            returned = function()
            leaves = [] if returned is None else _flatten(returned)
            leaves = [_as_variable(leaf, "cond") for leaf in leaves]
            made[place] = returned, leaves
            if place == 1 or false_fn is None:
                _check_alike(made[0] or (None, []), made[1] or (None, []))
            return leaves

        return None if function is None else run

    selected = _core.cond(pred, branch(0, true_fn), branch(1, false_fn))
    form = None if made[0] is None else made[0][0]
    return None if form is None else _pack_like(form, selected)


def _check_alike(true_made, false_made):
    """Both branches must return the same structure and types."""
    (true_form, true_leaves), (false_form, false_leaves) = true_made, false_made
    if _form(true_form) != _form(false_form) or len(true_leaves) != len(false_leaves):
        raise ValueError(
            "cond: true_fn and false_fn must return the same structure, but return "
            f"{_describe(true_form)} and {_describe(false_form)}"
        )
    for true_value, false_value in zip(true_leaves, false_leaves):
        if true_value.dtype is not false_value.dtype:
            raise TypeError(
                "cond: true_fn and false_fn must return the same types, but return "
                f"{true_value.dtype.name} and {false_value.dtype.name}"
            )


def _describe(form):
    if form is None:
        return "None"
    return f"{type(form).__name__} with {len(_flatten(form))} values"


def _check_pairs(function, pairs):
    if not isinstance(pairs, (list, tuple)) or not pairs:
        raise TypeError(f"{function}: a list of pairs is needed, but got {pairs!r}")
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"{function}: {pair!r} is not a pair")
        if not callable(pair[1]):
            raise TypeError(f"{function}: {pair[1]!r} is not a function")


def case(pred_fn_pairs, default=None, name=None):
    """What the function returns whose predicate holds first, else default(); without
    `default` the last function."""
    _check_pairs("case", pred_fn_pairs)
    if default is not None and not callable(default):
        raise TypeError(f"case: default must be a function, but is {default!r}")
    pairs = list(pred_fn_pairs)
    otherwise = default
    if otherwise is None:
        otherwise = pairs.pop()[1]
        if not pairs:
            return otherwise()
    for pred, function in reversed(pairs):
        otherwise = functools.partial(cond, pred, function, otherwise)
    return otherwise()


def switch_case(branch_index, branch_fns, default=None, name=None):
    """What the function with number `branch_index` returns, else default(); without
    `default` the function with the largest number.

    branch_fns: functions, pairs of number and function, or a dict of them.
    """
    if not isinstance(branch_index, Tensor):
        raise TypeError(
            f"switch_case: branch_index must be a Variable, but got "
            f"{type(branch_index).__name__}"
        )
    if branch_index.dtype not in (DType.int32, DType.int64, DType.uint8):
        raise TypeError(
            "switch_case: branch_index must be an integer, but is "
            f"{branch_index.dtype.name}"
        )
    if isinstance(branch_fns, dict):
        branch_fns = list(branch_fns.items())
    elif isinstance(branch_fns, (list, tuple)) and all(map(callable, branch_fns)):
        branch_fns = list(enumerate(branch_fns))
    _check_pairs("switch_case", branch_fns)
    numbers = [number for number, _ in branch_fns]
    if any(not isinstance(n, int) for n in numbers):
        raise TypeError(f"switch_case: branches need integers, but have {numbers}")
    if len(set(numbers)) != len(numbers):
        raise ValueError(f"switch_case: numbers of branches are not unique: {numbers}")
    pairs = sorted(branch_fns, key=lambda pair: pair[0])
    if default is None:
        default = pairs[-1][1]
        pairs = pairs[:-1]
        if not pairs:
            return default()
    kind = branch_index.dtype

    def equals(number):
        return _ops.equal(branch_index, to_tensor([number], dtype=kind))

    return case([(equals(n), function) for n, function in pairs], default)


# ---- loops


def while_loop(cond, body, loop_vars, is_test=False, name=None):
    """loop_vars after `loop_vars = body(*loop_vars)` as long as cond(*loop_vars) holds.

    cond: takes loop_vars and returns one bool.
    body: takes loop_vars and returns as many, of the same structure and types.
    """
    if not callable(cond) or not callable(body):
        raise TypeError("while_loop: cond and body must be functions")
    if not isinstance(loop_vars, (list, tuple)):
        raise TypeError(
            f"while_loop: loop_vars must be a list, but got {type(loop_vars).__name__}"
        )
    if not loop_vars:
        raise ValueError("while_loop: loop_vars is empty")
    if in_dynamic_mode() and not any(
        isinstance(v, Variable) for v in _flatten(loop_vars)
    ):
        return _eager_loop(cond, body, loop_vars)
    carried = [_as_variable(leaf, "while_loop") for leaf in _flatten(loop_vars)]

    def holds(*leaves):
        condition = cond(*_pack_like(list(loop_vars), leaves))
        _check_predicate("while_loop", "what cond returns", condition)
        return condition

    def run(*leaves):
        variables = _pack_like(list(loop_vars), leaves)
        returned = body(*variables)
        returned = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        values = _flatten(returned)
        if _form(returned) != _form(variables) or len(values) != len(leaves):
            raise ValueError(
                f"while_loop: body must return {len(loop_vars)} values like loop_vars, "
                f"but returned {len(returned)}"
            )
        values = [_as_variable(leaf, "while_loop") for leaf in values]
        for variable, value in zip(leaves, values):
            _check_carried(variable, value)
        return values

    carried = _core.while_loop(holds, run, carried, bool(is_test))
    return _pack_like(list(loop_vars), carried)


def _check_carried(variable, value):
    if variable._kind == _ARRAY and value is not variable:
        raise ValueError(
            f"while_loop: body must return the array {variable.name} itself"
        )
    if value.dtype is not variable.dtype:
        raise TypeError(
            f"while_loop: body changes {variable.name} from {variable.dtype.name} to "
            f"{value.dtype.name}"
        )


def _eager_loop(cond, body, loop_vars):
    variables = list(loop_vars)
    while bool(cond(*variables).numpy().all()):
        returned = body(*variables)
        variables = (
            list(returned) if isinstance(returned, (list, tuple)) else [returned]
        )
        if len(variables) != len(loop_vars):
            raise ValueError(
                f"while_loop: body must return {len(loop_vars)} values, but returned "
                f"{len(variables)}"
            )
    return variables
