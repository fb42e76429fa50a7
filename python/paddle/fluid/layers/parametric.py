# SPDX-License-Identifier: Apache-2.0
"""Layers that make their parameters themselves, in programs."""

from ... import _names, _ops
from ...framework.parameter import create_parameter as _create_parameter
from ...static import nn as _nn
from ...static.global_variable import create_global_var
from ...static.layers import _table, begin, mark_remote
from ...static.nn import (
    batch_norm,
    bilinear_tensor_product,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    crf_decoding,
    data_norm,
    group_norm,
    instance_norm,
    layer_norm,
    nce,
    prelu,
    row_conv,
    spectral_norm,
)
from ...static.program import layer_guard
from ...static.tagging import linear_chain_crf


def fc(
    input,
    size,
    num_flatten_dims=1,
    param_attr=None,
    bias_attr=None,
    act=None,
    name=None,
):
    """A fully connected layer; see paddle.static.nn.fc."""
    return _nn.fc(input, size, num_flatten_dims, param_attr, bias_attr, act, name)


def embedding(
    input,
    size,
    is_sparse=False,
    is_distributed=False,
    padding_idx=None,
    param_attr=None,
    dtype="float32",
):
    """The rows of a new parameter that `input` names: ids of shape [N, 1] give [N, D],
    without the 1."""
    layer = begin("embedding", "embedding")
    with layer_guard(layer):
        weight = _table(layer, size, param_attr, dtype)
        rows = size[0]
        if padding_idx is None:
            padding = -1
        elif -rows <= padding_idx < rows:
            padding = padding_idx % rows
        else:
            raise ValueError(
                f"embedding: padding_idx {padding_idx} must lie in [{-rows}, {rows})"
            )
        old = len(input.shape) > 1 and input.shape[-1] == 1
        op = _ops.lookup_table if old else _ops.lookup_table_v2
        found = op(weight, input, padding, is_sparse or is_distributed)
    if is_distributed:
        mark_remote()
    return found


def create_parameter(
    shape, dtype, name=None, attr=None, is_bias=False, default_initializer=None
):
    return _create_parameter(shape, dtype, name, attr, is_bias, default_initializer)


__all__ = _names.gathered(globals(), hidden="begin layer_guard mark_remote")
