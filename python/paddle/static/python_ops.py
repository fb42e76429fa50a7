# SPDX-License-Identifier: Apache-2.0
"""Operations that Python carries out while a program runs."""

import sys

from .. import _core, _ops
from .._core import Variable, building
from ..framework.mode import require_static
from ..tensor.creation import to_tensor
from ..utils import unique_name
from .program import default_main_program

__all__ = ["Print", "py_func"]

# The functions of py_func by their numbers. A program names them so, and may live as
# long as the process does.
_FUNCTIONS = []


def _as_list(value):
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _number(function):
    _FUNCTIONS.append(function)
    return len(_FUNCTIONS) - 1


def py_func(func, x, out, backward_func=None, skip_vars_in_backward_input=None):
    """Calls `func` while the program runs, with the values of `x`, and gives `out` what
    it returns.

    func: takes a Tensor for each of x, and returns an array or Tensor for each of out.
    x: a variable or several. out: variables made by Block.create_var with shape and
    type, or None where func returns nothing.
    backward_func: takes x, out and the gradients of out, and returns gradients for x,
        None where there is none. Without it no gradient flows.
    skip_vars_in_backward_input: variables of x and out that it does not take.
    Returns out.
    """
    require_static("paddle.static.py_func")
    if not callable(func):
        raise TypeError(f"py_func: func must be a function, but is {func!r}")
    if backward_func is not None and not callable(backward_func):
        raise TypeError(
            f"py_func: backward_func must be a function, but is {backward_func!r}"
        )
    inputs, outputs = _as_list(x), _as_list(out)
    for variable in (*inputs, *outputs):
        if not isinstance(variable, Variable):
            raise TypeError(
                "py_func: x and out must be Variables, but there is a "
                f"{type(variable).__name__}"
            )
    skipped = {
        v if isinstance(v, str) else v.name
        for v in _as_list(skip_vars_in_backward_input)
    }
    names = {v.name for v in (*inputs, *outputs)}
    if not skipped <= names:
        raise ValueError(
            f"py_func: {sorted(skipped - names)} of skip_vars_in_backward_input are "
            "neither in x nor in out"
        )
    types = []
    for variable in outputs:
        shape = variable.shape
        types += [variable.dtype.value, len(shape), *shape]
        if backward_func is None:
            variable.stop_gradient = True
    backward = -1
    if backward_func is not None:
        backward = _number(_Backward(backward_func, inputs, outputs, skipped))
    default_main_program().current_block().append_op(
        "py_func",
        {"X": inputs},
        {"Out": outputs},
        {
            "forward_callable_id": _number(func),
            "backward_callable_id": backward,
            "out_types": types,
        },
    )
    return out


class _Backward:
    """A backward function, without the values that it does not want."""

    def __init__(self, function, inputs, outputs, skipped):
        self._function = function
        self._kept = [v.name not in skipped for v in (*inputs, *outputs)]

    def __call__(self, *values):
        count = len(self._kept)
        kept = [v for v, keep in zip(values, self._kept) if keep]
        return self._function(*kept, *values[count:])


def _types(flat):
    """[(type, dimensions)] of the attribute out_types."""
    types = []
    while flat:
        kind, rank = flat[0], flat[1]
        types.append((_core.DType(kind), flat[2 : 2 + rank]))
        flat = flat[2 + rank :]
    return types


def _values(results, wanted, what):
    """What a function returned, as Tensors of the wanted types."""
    results = _as_list(results)
    if len(results) != len(wanted):
        raise ValueError(
            f"py_func: {what} returned {len(results)} values, but {len(wanted)} are "
            "wanted"
        )
    return [
        None if value is None or kind is None else _typed(value, kind)
        for value, kind in zip(results, wanted)
    ]


def _typed(value, kind):
    value = to_tensor(value)
    return value if value.dtype is kind else _ops.cast(value, value.dtype, kind)


def _check(value, dims, name):
    shape = value.shape
    if len(shape) != len(dims) or any(d not in (-1, n) for d, n in zip(dims, shape)):
        raise ValueError(
            f"py_func: {name} has shape {dims}, but the function returned {shape}"
        )


def _call_forward(attrs, inputs, outputs):
    function = _FUNCTIONS[attrs["forward_callable_id"]]
    types = _types(attrs["out_types"])

    def run(values):
        with _computing():
            results = function(*[_ops.assign(v) for v in values])
            if not outputs:
                return []
            made = _values(results, [kind for kind, _ in types], "the function")
        for value, (_, dims), name in zip(made, types, outputs):
            if value is None:
                raise ValueError(f"py_func: the function returned None for {name}")
            _check(value, dims, name)
        return made

    return run


def _call_backward(attrs, inputs, outputs):
    number = attrs["backward_callable_id"]
    function = _FUNCTIONS[number]
    count = len(outputs)

    def run(values):
        kinds = [
            None if name == "@EMPTY@" else value.dtype
            for name, value in zip(outputs, values)
        ]
        with _computing():
            results = function(*[v if v is None else _ops.assign(v) for v in values])
            made = _values(results, kinds, "backward_func")
            return [
                _ops.fill_zeros_like(values[i])
                if made[i] is None and kinds[i] is not None
                else made[i]
                for i in range(count)
            ]

    return run


class _computing:
    """Inside, functions compute at once: a program is running, none is being built."""

    def __enter__(self):
        self._on, building.on = building.on, False

    def __exit__(self, *exception):
        building.on = self._on


# ---- printing

_PHASES = ("forward", "backward", "both")


def Print(
    input,
    first_n=-1,
    message=None,
    summarize=20,
    print_tensor_name=True,
    print_tensor_type=True,
    print_tensor_shape=True,
    print_tensor_layout=True,
    print_tensor_lod=True,
    print_phase="both",
):
    """Prints the value of `input` whenever the program runs, and hands it on: use what
    it returns.

    first_n: only so many times; -1: always.
    summarize: so many elements, -1 for all.
    print_phase: 'forward', 'backward' for the gradient, or 'both'.
    """
    require_static("paddle.static.Print")
    if not isinstance(input, Variable):
        raise TypeError(
            f"Print: input must be a Variable, but got {type(input).__name__}"
        )
    if print_phase not in _PHASES:
        raise ValueError(
            f"Print: print_phase must be one of {_PHASES}, but is {print_phase!r}"
        )
    block = default_main_program().current_block()
    out = block.create_var(
        name=unique_name.generate(f"{unique_name.generate('print')}.tmp"),
        shape=input.shape,
        dtype=input.dtype,
        lod_level=input.lod_level,
        stop_gradient=input.stop_gradient,
    )
    block.append_op(
        "print",
        {"In": input},
        {"Out": out},
        {
            "first_n": first_n,
            "message": message or "",
            "summarize": summarize,
            "print_tensor_name": print_tensor_name,
            "print_tensor_type": print_tensor_type,
            "print_tensor_shape": print_tensor_shape,
            "print_tensor_layout": print_tensor_layout,
            "print_tensor_lod": print_tensor_lod,
            "print_phase": print_phase.upper(),
        },
    )
    return out


def _printing(backward):
    def prepare(attrs, inputs, outputs):
        phase = attrs.get("print_phase", "BOTH")
        silent = phase == ("FORWARD" if backward else "BACKWARD")
        left = attrs.get("first_n", -1)

        def run(values):
            nonlocal left
            if not silent and left != 0:
                left -= 1
                print(_text(values[0], inputs[0], attrs), flush=True)
            return values

        return run

    return prepare


def _text(value, name, attrs):
    import numpy as np

    parts = [attrs["message"]] if attrs.get("message") else []
    if attrs.get("print_tensor_name", True):
        parts.append(f"Variable: {name}")
    if attrs.get("print_tensor_shape", True):
        parts.append(f"  - shape: {value.shape}")
    if attrs.get("print_tensor_type", True):
        parts.append(f"  - dtype: {value.dtype.name}")
    array = value.numpy().reshape(-1)
    count = attrs.get("summarize", 20)
    shown = array if count < 0 else array[:count]
    text = np.array2string(shown, separator=" ", threshold=sys.maxsize)
    if len(shown) < len(array):
        text = text[:-1] + " ...]"
    parts.append(f"  - data: {text}")
    return "\n".join(parts)


_core.add_python_op("py_func", _call_forward)
_core.add_python_op("py_func_grad", _call_backward)
_core.add_python_op("print", _printing(False))
_core.add_python_op("print_grad", _printing(True))
