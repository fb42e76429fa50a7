# SPDX-License-Identifier: Apache-2.0
"""How tensors print."""

import math

from .._core import DType
from .manipulation import cast


class _Options:
    precision = 8
    threshold = 1000  # print at most so many elements in full
    edgeitems = 3  # of a longer one, so many at each end of a dimension
    sci_mode = False
    linewidth = 80


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


def _format_number(value):
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "nan"
    if _options.sci_mode:
        return f"{value:.{_options.precision}e}"
    if math.isinf(value) or value == math.floor(value):
        return f"{value:.0f}."
    return f"{value:.{_options.precision}f}"


class _Style:
    """What the numbers of one tensor have in common: their width, and whether a
    column for the sign is needed. They stand to the left of their column."""

    def __init__(self, values):
        self.width = max((len(_format_number(value)) for value in values), default=0)
        self.signed = any(
            not isinstance(value, complex) and value < 0 for value in values
        )

    def __call__(self, value):
        text = _format_number(value)
        if self.signed and len(text) < self.width and not value < 0:
            text = " " + text
        return text.ljust(self.width)


def _summary(values):
    """The elements at the ends of every dimension, of which alone is printed."""
    edge = _options.edgeitems
    for axis, size in enumerate(values.shape):
        if size > 2 * edge:
            picks = [*range(edge), *range(size - edge, size)]
            values = values.take(picks, axis=axis)
    return values


def _with_dots(texts, full_size):
    """`texts` with dots in the middle where elements were left out."""
    if len(texts) < full_size:
        texts.insert(_options.edgeitems, "...")
    return texts


def _format_row(values, full_size, indent, style):
    parts = _with_dots([style(value) for value in values], full_size)
    per_line = max(1, (_options.linewidth - indent) // max(1, style.width + 2))
    lines = [parts[i : i + per_line] for i in range(0, len(parts), per_line)]
    separator = ",\n" + " " * (indent + 1)
    return "[" + separator.join(", ".join(line) for line in lines) + "]"


def _format_array(values, full_shape, indent, style):
    """`values` are nested lists, `full_shape` what they were before _summary()."""
    ndim = len(full_shape)
    if ndim == 0:
        return style(values)
    if ndim == 1:
        return _format_row(values, full_shape[0], indent, style)
    texts = [_format_array(row, full_shape[1:], indent + 1, style) for row in values]
    separator = "," + "\n" * (ndim - 1) + " " * (indent + 1)
    return "[" + separator.join(_with_dots(texts, full_shape[0])) + "]"


def _values(x):
    """The elements as an array of numbers that Python can format."""
    x = x.detach()
    if x.dtype is DType.bfloat16:
        x = cast(x, DType.float32)
    return x._numpy_view()


def _data_to_string(x, indent):
    data = _values(x)
    if data.size == 0:
        return "[]"
    shown = _summary(data) if data.size > _options.threshold else data
    style = _Style(shown.ravel().tolist())
    return _format_array(shown.tolist(), data.shape, indent, style)


def tensor_to_string(x, prefix="Tensor"):
    """`Tensor(shape=[2], dtype=float32, place=CPUPlace, stop_gradient=True, ...)`."""
    indent = len(prefix) + 1
    return (
        f"{prefix}(shape={x.shape}, dtype={x.dtype.name}, place={x.place}, "
        f"stop_gradient={x.stop_gradient},\n"
        f"{' ' * indent}{_data_to_string(x, indent)})"
    )
