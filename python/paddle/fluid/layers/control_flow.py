# SPDX-License-Identifier: Apache-2.0
"""Loops, branches and arrays of tensors in programs."""

import contextlib

import paddle

from ... import _names, _ops
from ..._core import DType, Variable
from ...static.control_flow import (
    _check_predicate,
    append_body,
    append_conditional,
    case,
    cond,
    new_body,
    new_variable,
    switch_case,
    while_loop,
    write,
)
from ...static.program import _KINDS, default_main_program
from ...static.python_ops import Print, py_func


class While:
    """A loop over the operations of its block, for as long as `cond`, which the block
    must write, is true.

        loop = While(cond=less_than(i, n))
        with loop.block():
            ...
            increment(i)
            less_than(i, n, cond=cond)
    """

    def __init__(self, cond, is_test=False, name=None):
        _check_predicate("While", "cond", cond)
        self._condition = cond
        self._is_test = is_test

    @contextlib.contextmanager
    def block(self):
        with new_body() as made:
            yield
        append_body(
            "while", made, {"Condition": self._condition}, {"is_test": self._is_test}
        )


class Switch:
    """Runs the operations of the first case that holds, or those of the default.

    with Switch() as switch:
        with switch.case(cond):
            assign(a, out)
        with switch.default():
            assign(b, out)
    """

    def __init__(self, name=None):
        self._none_so_far = None  # holds if no case did
        self._inside = False

    def __enter__(self):
        self._inside = True
        return self

    def __exit__(self, *exception):
        self._inside = False
        return False

    def case(self, condition):
        """The operations made inside run if `condition` holds, and no case before."""
        if not self._inside:
            raise ValueError("Switch: case() belongs inside of `with Switch()`")
        _check_predicate("Switch", "condition", condition)
        negated = _ops.logical_not(condition)
        if self._none_so_far is None:
            self._none_so_far = negated
            return self._branch(condition)
        chosen = _ops.logical_and(self._none_so_far, condition)
        self._none_so_far = _ops.logical_and(self._none_so_far, negated)
        return self._branch(chosen)

    def default(self):
        """The operations made inside run if no case held."""
        if self._none_so_far is None:
            raise ValueError("Switch: default() needs a case before it")
        return self._branch(self._none_so_far)

    @contextlib.contextmanager
    def _branch(self, condition):
        with new_body() as made:
            yield
        append_conditional(condition, made)


# ---- comparisons that may write a variable which is there


def _comparison(function):
    def compare(x, y, force_cpu=None, cond=None, name=None):
        """Element by element; into `cond` if that is given."""
        if isinstance(force_cpu, Variable):
            force_cpu, cond = None, force_cpu
        result = function(x, y)
        if cond is None:
            return result
        if isinstance(cond, Variable):
            write(result, cond)
            return cond
        return paddle.assign(result, cond)

    compare.__name__ = compare.__qualname__ = function.__name__
    return compare


equal = _comparison(paddle.equal)
not_equal = _comparison(paddle.not_equal)
less_than = _comparison(paddle.less_than)
less_equal = _comparison(paddle.less_equal)
greater_than = _comparison(paddle.greater_than)
greater_equal = _comparison(paddle.greater_equal)


def increment(x, value=1.0, in_place=True):
    """x + value; in x itself, unless in_place is False."""
    if not isinstance(x, Variable):
        return paddle.increment(x, value) if in_place else x + value
    if not in_place:
        return _ops.increment(x, float(value))
    default_main_program().current_block().append_op(
        "increment", {"X": x}, {"Out": x}, {"step": float(value)}
    )
    return x


def is_empty(x, name=None):
    """Whether x has no elements."""
    size = paddle.numel(x)
    return paddle.equal(size, paddle.zeros_like(size))


# ---- arrays of tensors


def create_array(dtype):
    """An array of tensors, empty at the start of every run."""
    return new_variable("array", dtype=dtype, shape=[], type=_KINDS["LOD_TENSOR_ARRAY"])


def array_write(x, i, array=None):
    """Puts x at place `i` of the array, which grows as needed, and returns the array."""
    _check_place("array_write", i)
    if array is None:
        array = create_array(x.dtype)
    default_main_program().current_block().append_op(
        "write_to_array", {"X": x, "I": i}, {"Out": array}
    )
    return array


def array_read(array, i):
    """What is at place `i` of the array."""
    _check_place("array_read", i)
    out = new_variable("array_read", array)
    default_main_program().current_block().append_op(
        "read_from_array", {"X": array, "I": i}, {"Out": out}
    )
    return out


def array_length(array):
    """The number of tensors in the array, int64 [1]."""
    out = new_variable("array_length", dtype="int64", shape=[1])
    out.stop_gradient = True
    default_main_program().current_block().append_op(
        "lod_array_length", {"X": array}, {"Out": out}
    )
    return out


def _check_place(function, i):
    if not isinstance(i, Variable) or i.dtype is not DType.int64:
        raise TypeError(f"{function}: i must be an int64 Variable of shape [1]")


__all__ = _names.gathered(
    globals(),
    hidden="DType Variable append_body append_conditional default_main_program "
    "new_body new_variable write",
)
