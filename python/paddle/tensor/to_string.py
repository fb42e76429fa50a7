# SPDX-License-Identifier: Apache-2.0
"""How tensors print."""

import dataclasses

import numpy as np

from .._core import DType

__all__ = ["set_printoptions", "tensor_to_string"]


@dataclasses.dataclass
class _Options:
    precision: int = 8
    threshold: int = 1000  # print at most so many elements in full
    edgeitems: int = 3  # of a longer one, so many at each end of a dimension
    sci_mode: bool = False
    linewidth: int = 80


_options = _Options()


def set_printoptions(
    precision=None, threshold=None, edgeitems=None, sci_mode=None, linewidth=None
):
    """Sets how tensors print: digits after the point, elements printed in full,
    elements kept at each end of longer ones, scientific notation, line width."""
    for field in ("precision", "threshold", "edgeitems", "linewidth"):
        value = locals()[field]
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise TypeError(f"set_printoptions(): {field} must be a positive int")
        setattr(_options, field, value)
    if sci_mode is not None:
        if not isinstance(sci_mode, bool):
            raise TypeError("set_printoptions(): sci_mode must be a bool")
        _options.sci_mode = sci_mode


def _format_number(value, width, decimals, signed):
    if value.dtype == np.bool_:
        text = str(bool(value))
    elif np.issubdtype(value.dtype, np.integer):
        text = str(int(value))
    elif np.issubdtype(value.dtype, np.complexfloating):
        sign = "" if np.signbit(value.imag) else "+"
        real = _format_number(value.real, 0, decimals, signed)
        imaginary = _format_number(value.imag, 0, decimals, False)
        text = f"({real}{sign}{imaginary}j)"
    elif not np.isfinite(value):
        text = str(float(value))
    elif _options.sci_mode:
        text = f"{float(value):.{_options.precision}e}"
    elif decimals == 0:
        text = f"{float(value):.0f}."
    else:
        text = f"{float(value):.{decimals}f}"
    if signed and not text.startswith("-") and text != "nan":
        text = " " + text
    return text.rjust(width)


def _is_whole(values):
    """Whether every printed number is an integer, which then prints as `1.`."""
    finite = values[np.isfinite(values)]
    return bool((finite == np.trunc(finite)).all())


class _Style:
    """What the numbers of one tensor have in common: sign column, digits, width."""

    def __init__(self, values):
        values = values.ravel()
        kind = values.dtype
        self.signed = kind != np.bool_ and bool(np.signbit(values.real).any())
        self.decimals = _options.precision
        if np.issubdtype(kind, np.inexact) and _is_whole(values):
            self.decimals = 0
        self.width = 0
        self.width = max((len(self(value)) for value in values), default=0)

    def __call__(self, value):
        return _format_number(value, self.width, self.decimals, self.signed)


def _shown(values, summarise):
    """The elements that will be printed."""
    if not summarise:
        return values
    edge = _options.edgeitems
    for axis in range(values.ndim):
        size = values.shape[axis]
        if size > 2 * edge:
            picks = [*range(edge), *range(size - edge, size)]
            values = np.take(values, picks, axis=axis)
    return values


def _with_gap(items, size, summarise):
    """`items` with dots in the middle where elements are left out."""
    edge = _options.edgeitems
    if summarise and size > 2 * edge:
        return [*items[:edge], None, *items[-edge:]]
    return items


def _format_row(values, summarise, indent, style):
    parts = [style(value) for value in _shown(values, summarise)]
    parts = _with_gap(parts, values.shape[0], summarise)
    parts = ["..." if part is None else part for part in parts]
    width = _options.linewidth - indent
    per_line = max(1, width // (style.width + 2)) if style.width else 1
    lines = [parts[i : i + per_line] for i in range(0, len(parts), per_line)]
    text = (",\n" + " " * (indent + 1)).join(", ".join(line) for line in lines)
    return "[" + text + "]"


def _format_array(values, summarise, indent, style):
    if values.ndim == 0:
        return style(values[()])
    if values.ndim == 1:
        return _format_row(values, summarise, indent, style)
    edge = _options.edgeitems
    size = values.shape[0]
    if summarise and size > 2 * edge:
        rows = [*values[:edge], *values[-edge:]]
    else:
        rows = list(values)
    texts = [_format_array(row, summarise, indent + 1, style) for row in rows]
    texts = ["..." if t is None else t for t in _with_gap(texts, size, summarise)]
    gap = "," + "\n" * (values.ndim - 1) + " " * (indent + 1)
    return "[" + gap.join(texts) + "]"


def _values(x):
    """The elements as numbers that Python can format."""
    data = x.detach()._numpy_view()
    if x.dtype is DType.bfloat16:
        data = (data.astype(np.uint32) << 16).view(np.float32)
    return data


def tensor_to_string(x, prefix="Tensor"):
    """`Tensor(shape=[2], dtype=float32, place=CPUPlace, stop_gradient=True, ...)`."""
    head = (
        f"{prefix}(shape={x.shape}, dtype={x.dtype.name}, place={x.place}, "
        f"stop_gradient={x.stop_gradient},\n"
    )
    indent = len(prefix) + 1
    data = _values(x)
    summarise = data.size > _options.threshold
    style = _Style(_shown(data, summarise))
    text = _format_array(data, summarise, indent, style)
    return head + " " * indent + text + ")"
