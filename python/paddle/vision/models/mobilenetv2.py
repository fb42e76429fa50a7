# SPDX-License-Identifier: Apache-2.0
"""MobileNetV2: residual blocks that are wide inside and narrow between."""

import paddle
from paddle import nn

from .weights import load_pretrained


def round_channels(value, divisor=8):
    """The multiple of `divisor` nearest to `value`, but not below 0.9 of it."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * value else rounded + divisor


class ConvBNReLU(nn.Sequential):
    """Convolution, batch norm and ReLU6."""

    def __init__(
        self,
        in_planes,
        out_planes,
        kernel_size=3,
        stride=1,
        groups=1,
        norm_layer=nn.BatchNorm2D,
    ):
        super().__init__(
            nn.Conv2D(
                in_planes,
                out_planes,
                kernel_size,
                stride,
                (kernel_size - 1) // 2,
                groups=groups,
                bias_attr=False,
            ),
            norm_layer(out_planes),
            nn.ReLU6(),
        )


class InvertedResidual(nn.Layer):
    """1x1 to `expand_ratio` times the channels, 3x3 on each, 1x1 back."""

    def __init__(self, inp, oup, stride, expand_ratio, norm_layer=nn.BatchNorm2D):
        super().__init__()
        hidden = round(inp * expand_ratio)
        self.stride = stride
        self.use_res_connect = stride == 1 and inp == oup
        layers = []
        if expand_ratio != 1:
            layers.append(ConvBNReLU(inp, hidden, 1, norm_layer=norm_layer))
        layers += [
            ConvBNReLU(hidden, hidden, 3, stride, hidden, norm_layer),
            nn.Conv2D(hidden, oup, 1, 1, 0, bias_attr=False),
            norm_layer(oup),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


# Expansion, output channels, number of blocks, stride of the first.
_BLOCKS = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]


class MobileNetV2(nn.Layer):
    """MobileNetV2.

    Args:
        scale: multiplies the numbers of channels, which stay multiples of 8.
        num_classes: outputs; 0 leaves the last layer out.
        with_pool: whether to average over the places before the last layer.
    """

    def __init__(self, scale=1.0, num_classes=1000, with_pool=True):
        super().__init__()
        self.num_classes = num_classes
        self.with_pool = with_pool
        self.last_channel = round_channels(1280 * max(1.0, scale))
        channels = round_channels(32 * scale)
        features = [ConvBNReLU(3, channels, stride=2)]
        for expansion, width, count, first_stride in _BLOCKS:
            width = round_channels(width * scale)
            for i in range(count):
                stride = first_stride if i == 0 else 1
                features.append(InvertedResidual(channels, width, stride, expansion))
                channels = width
        features.append(ConvBNReLU(channels, self.last_channel, kernel_size=1))
        self.features = nn.Sequential(*features)
        if with_pool:
            self.pool2d_avg = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self.classifier = nn.Sequential(
                nn.Dropout(0.2), nn.Linear(self.last_channel, num_classes)
            )

    def forward(self, x):
        x = self.features(x)
        if self.with_pool:
            x = self.pool2d_avg(x)
        if self.num_classes > 0:
            x = self.classifier(paddle.flatten(x, 1))
        return x


def mobilenet_v2(pretrained=False, scale=1.0, **kwargs):
    """MobileNetV2; `pretrained` loads weights from the cache folder."""
    model = MobileNetV2(scale=scale, **kwargs)
    if pretrained:
        load_pretrained(model, f"mobilenet_v2_x{scale}.pdparams")
    return model
