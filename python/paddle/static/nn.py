# SPDX-License-Identifier: Apache-2.0
"""Layers as functions that make their parameters themselves."""

from .. import _names
from ..framework.parameter import create_parameter
from ..tensor.math import mean
from .control_flow import case, cond, switch_case, while_loop
from .detection import deform_conv2d, multi_box_head
from .layers import (
    bilinear_tensor_product,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    cross_entropy,
    embedding,
    fc,
    nce,
    prelu,
    row_conv,
)
from .norm_layers import (
    batch_norm,
    data_norm,
    group_norm,
    instance_norm,
    layer_norm,
    spectral_norm,
)
from .python_ops import py_func
from .remote_embedding import sparse_embedding
from .tagging import crf_decoding

__all__ = _names.gathered(globals())
