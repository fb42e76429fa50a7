# SPDX-License-Identifier: Apache-2.0
"""Layers with their old arguments, of which `act` is the most telling."""

from ... import nn as _nn
from ...nn import BatchNorm
from ..layers.activate import activate


class Linear(_nn.Linear):
    def __init__(
        self,
        input_dim,
        output_dim,
        param_attr=None,
        bias_attr=None,
        act=None,
        dtype="float32",
    ):
        _check_dtype("Linear", dtype)
        super().__init__(input_dim, output_dim, param_attr, bias_attr)
        self._act = act

    def forward(self, input):
        return activate(super().forward(input), self._act)


class Conv2D(_nn.Conv2D):
    def __init__(
        self,
        num_channels,
        num_filters,
        filter_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=None,
        param_attr=None,
        bias_attr=None,
        use_cudnn=True,
        act=None,
        dtype="float32",
    ):
        _check_dtype("Conv2D", dtype)
        super().__init__(
            num_channels,
            num_filters,
            filter_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups or 1,
            weight_attr=param_attr,
            bias_attr=bias_attr,
        )
        self._act = act

    def forward(self, input):
        return activate(super().forward(input), self._act)


class Pool2D(_nn.Layer):
    def __init__(
        self,
        pool_size=-1,
        pool_type="max",
        pool_stride=1,
        pool_padding=0,
        global_pooling=False,
        use_cudnn=True,
        ceil_mode=False,
        exclusive=True,
        data_format="NCHW",
    ):
        super().__init__()
        self._arguments = (
            pool_size,
            pool_type,
            pool_stride,
            pool_padding,
            global_pooling,
            use_cudnn,
            ceil_mode,
            None,
            exclusive,
            data_format,
        )

    def forward(self, input):
        from ..layers import pool2d

        return pool2d(input, *self._arguments)


class Embedding(_nn.Embedding):
    def __init__(
        self,
        size,
        is_sparse=False,
        is_distributed=False,
        padding_idx=None,
        param_attr=None,
        dtype="float32",
    ):
        _check_dtype("Embedding", dtype)
        if padding_idx == -1:
            padding_idx = None  # as the old op read it: no padding
        super().__init__(
            size[0],
            size[1],
            padding_idx=padding_idx,
            sparse=is_sparse,
            weight_attr=param_attr,
        )


class LayerNorm(_nn.LayerNorm):
    def __init__(
        self,
        normalized_shape,
        scale=True,
        shift=True,
        epsilon=1e-05,
        param_attr=None,
        bias_attr=None,
        act=None,
        dtype="float32",
    ):
        _check_dtype("LayerNorm", dtype)
        super().__init__(
            normalized_shape,
            epsilon,
            param_attr if scale else False,
            bias_attr if shift else False,
        )
        self._act = act

    def forward(self, input):
        return activate(super().forward(input), self._act)


class Dropout(_nn.Layer):
    def __init__(
        self,
        p=0.5,
        seed=None,
        dropout_implementation="downgrade_in_infer",
        is_test=False,
    ):
        from ..layers.nn import refuse_seed

        super().__init__()
        refuse_seed("Dropout", seed)
        self._p = p
        self._implementation = dropout_implementation
        self._is_test = is_test

    def forward(self, input):
        from ..layers import dropout

        is_test = self._is_test or not self.training
        return dropout(input, self._p, is_test, None, None, self._implementation)


def _check_dtype(what, dtype):
    if dtype not in ("float32", _nn.Layer()._dtype):
        raise ValueError(
            f"{what}: dtype {dtype} is not supported here; call "
            "paddle.set_default_dtype first"
        )
