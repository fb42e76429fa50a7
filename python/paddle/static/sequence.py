# SPDX-License-Identifier: Apache-2.0
"""Functions of rows that belong to sequences of different lengths, in programs. Where
the sequences begin goes with the rows: data with lod_level 1 has it, and what is computed
row by row keeps it."""

from .. import _names
from .._core import Variable
from ..framework.dtype import convert
from ..framework.mode import require_static
from ..framework.parameter import new_parameter
from ..utils import unique_name
from .layers import activate, begin
from .program import default_main_program, layer_guard


def _append(kind, inputs, attrs=None, outputs=("Out",)):
    """Appends an operation on sequences; gives its outputs."""
    require_static(kind)
    for value in inputs.values():
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, Variable):
                raise TypeError(
                    f"{kind}: sequences are Variables of a program, but got a "
                    f"{type(one).__name__}"
                )
    layer = unique_name.generate(kind)
    names = {slot: unique_name.generate(f"{layer}.tmp") for slot in outputs}
    block = default_main_program().current_block()
    block.append_op(kind, inputs, names, attrs)
    made = [block._var(name) for name in names.values()]
    return made[0] if len(made) == 1 else made


_POOLS = ("sum", "average", "sqrt", "max", "last", "first")


def sequence_pool(input, pool_type, is_test=False, pad_value=0.0):
    """One row for each sequence: the 'sum', 'average', 'sqrt' (sum over the root of the
    length), 'max', 'last' or 'first' of its rows; pad_value for an empty one."""
    kind = str(pool_type).lower()
    if kind not in _POOLS:
        raise ValueError(
            f"sequence_pool: pool_type must be one of {_POOLS}, but is {pool_type!r}"
        )
    attrs = {"pooltype": kind.upper(), "pad_value": float(pad_value)}
    outputs = ("Out", "MaxIndex")
    return _append("sequence_pool", {"X": input}, attrs, outputs)[0]


def sequence_first_step(input):
    return sequence_pool(input, "first")


def sequence_last_step(input):
    return sequence_pool(input, "last")


def sequence_softmax(input, use_cudnn=False, name=None):
    """The softmax over the rows of each sequence; rows of one number."""
    return _append("sequence_softmax", {"X": input})


def sequence_reverse(x, name=None):
    """The rows of each sequence from the last to the first."""
    return _append("sequence_reverse", {"X": x}, outputs=("Y",))


def sequence_expand(x, y, ref_level=-1, name=None):
    """Sequence i of x, or row i, as often as sequence i of y has rows."""
    return _append("sequence_expand", {"X": x, "Y": y}, {"ref_level": ref_level})


def sequence_expand_as(x, y, name=None):
    """Row i of x as often as sequence i of y has rows."""
    return _append("sequence_expand_as", {"X": x, "Y": y})


def sequence_concat(input, name=None):
    """Sequence i of all inputs behind each other."""
    return _append("sequence_concat", {"X": list(input)})


def sequence_pad(x, pad_value, maxlen=None, name=None):
    """Sequences filled up with `pad_value` to `maxlen` rows, or to the longest; and
    their lengths."""
    attrs = {"padded_length": -1 if maxlen is None else int(maxlen)}
    inputs = {"X": x, "PadValue": pad_value}
    return tuple(_append("sequence_pad", inputs, attrs, ("Out", "Length")))


def sequence_unpad(x, length, name=None):
    """The first length[i] rows of x[i], as sequence i."""
    return _append("sequence_unpad", {"X": x, "Length": length})


def sequence_reshape(input, new_dim):
    """Rows of `new_dim` numbers."""
    return _append("sequence_reshape", {"X": input}, {"new_dim": int(new_dim)})


def sequence_slice(input, offset, length, name=None):
    """length[i] rows of sequence i, from offset[i] on."""
    inputs = {"X": input, "Offset": offset, "Length": length}
    return _append("sequence_slice", inputs)


def sequence_enumerate(input, win_size, pad_value=0, name=None):
    """For each row the numbers of `win_size` rows from it on."""
    attrs = {"win_size": int(win_size), "pad_value": int(pad_value)}
    return _append("sequence_enumerate", {"X": input}, attrs)


def lod_reset(x, y=None, target_lod=None):
    """x cut into other sequences: as y is, at the numbers in y, or at target_lod."""
    if y is None and target_lod is None:
        raise ValueError("lod_reset: y or target_lod must say where to cut")
    inputs = {"X": x} if y is None else {"X": x, "Y": y}
    attrs = {} if y is not None else {"target_lod": [int(n) for n in target_lod]}
    return _append("lod_reset", inputs, attrs)


def sequence_conv(
    input,
    num_filters,
    filter_size=3,
    filter_stride=1,
    padding=True,
    padding_start=None,
    bias_attr=None,
    param_attr=None,
    act=None,
    name=None,
):
    """Each row with its neighbours in the sequence times new filters.

    padding_start: where the neighbours begin, by default so that the row is in the
    middle; outside of the sequence there are zeros.
    """
    layer = begin("sequence_conv", "sequence_conv", name)
    with layer_guard(layer):
        shape = [filter_size * input.shape[1], num_filters]
        dtype = convert(input.dtype)
        weight = new_parameter(shape, param_attr, dtype, False, None, layer)
        first = -int(filter_size // 2) if padding_start is None else padding_start
        attrs = {
            "contextLength": int(filter_size),
            "contextStart": int(first),
            "contextStride": int(filter_stride),
        }
        out = _append("sequence_conv", {"X": input, "Filter": weight}, attrs)
        bias = new_parameter([num_filters], bias_attr, dtype, True, None, layer)
        return activate(out if bias is None else out + bias, act)


__all__ = _names.own(globals())
