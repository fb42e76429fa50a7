# SPDX-License-Identifier: Apache-2.0
"""Conditional random fields over chains of tags: the cost of the right tags, and the
best ones.

`input` scores each tag of each row: sequences [rows, tags] of data with lod_level 1, or
[sequences, longest, tags] with the number of rows of each sequence in `length`. The scores
of one tag after another are a parameter [tags + 2, tags], which linear_chain_crf makes and
crf_decoding finds by its name: row 0 is for the first tag of a sequence, row 1 for the
last, row i + 2 for those that follow tag i.
"""

from .. import _ops
from .._core import Variable
from ..framework.param_attr import ParamAttr
from ..framework.parameter import new_parameter
from .layers import begin
from .program import default_main_program, layer_guard

__all__ = ["crf_decoding", "linear_chain_crf"]


def _check(function, input, length):
    """The number of tags."""
    if not isinstance(input, Variable):
        raise TypeError(
            f"{function}(): input must be a Variable, but got {type(input).__name__}"
        )
    rank = 2 if length is None else 3
    wanted = "[rows, tags]" if length is None else "[sequences, longest, tags]"
    if len(input.shape) != rank or input.shape[-1] < 1:
        raise ValueError(
            f"{function}(): input must have shape {wanted} with a known number of tags, "
            f"but has {input.shape}"
        )
    return input.shape[-1]


def linear_chain_crf(input, label, param_attr=None, length=None):
    """For each sequence minus the logarithm of the probability of its labels, [N, 1]:
    a cost to minimize, with a new parameter for the transitions."""
    layer = begin("linear_chain_crf", "linear_chain_crf")
    tags = _check("linear_chain_crf", input, length)
    with layer_guard(layer):
        shape = [tags + 2, tags]
        weight = new_parameter(shape, param_attr, input.dtype, False, None, layer)
        return _ops.linear_chain_crf(input, weight, label, length)[-1]


def crf_decoding(input, param_attr, label=None, length=None):
    """The tags of the best way through each sequence, int64 [rows, 1] or, with `length`,
    [sequences, longest] with zeros in the padding. With `label`: 1 where the best tag is
    the label, 0 elsewhere.

    param_attr: ParamAttr with the name of the transitions that linear_chain_crf learns.
    """
    layer = begin("crf_decoding", "crf_decoding")
    _check("crf_decoding", input, length)
    attr = ParamAttr._to_attr(param_attr)
    name = attr.name if isinstance(attr, ParamAttr) else None
    block = default_main_program().global_block()
    if name is None or not block.has_var(name):
        raise ValueError(
            f"crf_decoding(): the program has no parameter {name!r}: name the one of "
            "linear_chain_crf, as ParamAttr(name='crfw') in both"
        )
    with layer_guard(layer):
        return _ops.crf_decoding(input, block.var(name), label, length)
