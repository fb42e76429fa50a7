# SPDX-License-Identifier: Apache-2.0
"""Layers that are often used together."""

from . import layers


def simple_img_conv_pool(
    input,
    num_filters,
    filter_size,
    pool_size,
    pool_stride,
    pool_padding=0,
    pool_type="max",
    global_pooling=False,
    conv_stride=1,
    conv_padding=0,
    conv_dilation=1,
    conv_groups=1,
    param_attr=None,
    bias_attr=None,
    act=None,
    use_cudnn=True,
):
    """A convolution with an activation, and a pool."""
    convolved = layers.conv2d(
        input,
        num_filters,
        filter_size,
        conv_stride,
        conv_padding,
        conv_dilation,
        conv_groups,
        param_attr,
        bias_attr,
        act=act,
    )
    return layers.pool2d(
        convolved, pool_size, pool_type, pool_stride, pool_padding, global_pooling
    )


def img_conv_group(
    input,
    conv_num_filter,
    pool_size,
    conv_padding=1,
    conv_filter_size=3,
    conv_act=None,
    param_attr=None,
    conv_with_batchnorm=False,
    conv_batchnorm_drop_rate=0.0,
    pool_stride=1,
    pool_type="max",
    use_cudnn=True,
):
    """Several convolutions, each with batch norm and dropout where wanted, and a pool."""
    count = len(conv_num_filter)

    def each(value):
        values = list(value) if isinstance(value, (list, tuple)) else [value] * count
        if len(values) != count:
            raise ValueError(
                f"img_conv_group: there are {count} convolutions, but {len(values)} "
                "values"
            )
        return values

    paddings, sizes, attrs = (
        each(v) for v in (conv_padding, conv_filter_size, param_attr)
    )
    with_norm, drops = each(conv_with_batchnorm), each(conv_batchnorm_drop_rate)
    out = input
    for i in range(count):
        out = layers.conv2d(
            out,
            conv_num_filter[i],
            sizes[i],
            padding=paddings[i],
            param_attr=attrs[i],
            act=None if with_norm[i] else conv_act,
        )
        if with_norm[i]:
            out = layers.batch_norm(out, act=conv_act)
            if abs(drops[i]) > 1e-5:
                out = layers.dropout(out, drops[i])
    return layers.pool2d(out, pool_size, pool_type, pool_stride)


def glu(input, dim=-1):
    """The first half of `input` along `dim`, times the sigmoid of the second."""
    first, second = layers.split(input, 2, dim)
    return layers.elementwise_mul(first, layers.sigmoid(second))
