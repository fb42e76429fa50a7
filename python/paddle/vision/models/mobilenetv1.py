# SPDX-License-Identifier: Apache-2.0
"""MobileNet: each 3x3 convolution works on one channel, a 1x1 one mixes them."""

import paddle
from paddle import nn

from .weights import load_pretrained


class ConvBNLayer(nn.Layer):
    """Convolution, batch norm and ReLU."""

    def __init__(
        self, in_channels, out_channels, kernel_size, stride, padding, num_groups=1
    ):
        super().__init__()
        self._conv = nn.Conv2D(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            groups=num_groups,
            bias_attr=False,
        )
        self._norm_layer = nn.BatchNorm2D(out_channels)
        self._act = nn.ReLU()

    def forward(self, x):
        return self._act(self._norm_layer(self._conv(x)))


class DepthwiseSeparable(nn.Layer):
    """A 3x3 convolution of each channel, then a 1x1 one of all."""

    def __init__(self, in_channels, out_channels, stride):
        super().__init__()
        self._depthwise_conv = ConvBNLayer(
            in_channels, in_channels, 3, stride, 1, num_groups=in_channels
        )
        self._pointwise_conv = ConvBNLayer(in_channels, out_channels, 1, 1, 0)

    def forward(self, x):
        return self._pointwise_conv(self._depthwise_conv(x))


# Name, output channels and stride of each block.
_BLOCKS = [
    ("conv2_1", 64, 1),
    ("conv2_2", 128, 2),
    ("conv3_1", 128, 1),
    ("conv3_2", 256, 2),
    ("conv4_1", 256, 1),
    ("conv4_2", 512, 2),
    *((f"conv5_{i}", 512, 1) for i in range(1, 6)),
    ("conv5_6", 1024, 2),
    ("conv6", 1024, 1),
]


class MobileNetV1(nn.Layer):
    """MobileNet.

    Args:
        scale: multiplies all numbers of channels.
        num_classes: outputs; 0 leaves the last layer out.
        with_pool: whether to average over the places before the last layer.
    """

    def __init__(self, scale=1.0, num_classes=1000, with_pool=True):
        super().__init__()
        self.scale = scale
        self.num_classes = num_classes
        self.with_pool = with_pool
        channels = int(32 * scale)
        self.conv1 = ConvBNLayer(3, channels, 3, 2, 1)
        for name, width, stride in _BLOCKS:
            out_channels = int(width * scale)
            block = DepthwiseSeparable(channels, out_channels, stride)
            self.add_sublayer(name, block)
            channels = out_channels
        if with_pool:
            self.pool2d_avg = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self.fc = nn.Linear(channels, num_classes)

    def forward(self, x):
        x = self.conv1(x)
        for name, _, _ in _BLOCKS:
            x = getattr(self, name)(x)
        if self.with_pool:
            x = self.pool2d_avg(x)
        if self.num_classes > 0:
            x = self.fc(paddle.flatten(x, 1))
        return x


def mobilenet_v1(pretrained=False, scale=1.0, **kwargs):
    """MobileNet; `pretrained` loads weights from the cache folder."""
    model = MobileNetV1(scale=scale, **kwargs)
    if pretrained:
        load_pretrained(model, f"mobilenet_v1_x{scale}.pdparams")
    return model
