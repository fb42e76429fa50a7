# SPDX-License-Identifier: Apache-2.0
"""VGG networks with 11 to 19 layers."""

import paddle
from paddle import nn

from .weights import load_pretrained


class VGG(nn.Layer):
    """Convolutions, then three linear layers.

    Args:
        features: the convolutions, with 512 output channels.
        num_classes: outputs; 0 leaves the linear layers out.
        with_pool: whether to average to 7x7 places before the linear layers.
    """

    def __init__(self, features, num_classes=1000, with_pool=True):
        super().__init__()
        self.features = features
        self.num_classes = num_classes
        self.with_pool = with_pool
        if with_pool:
            self.avgpool = nn.AdaptiveAvgPool2D((7, 7))
        if num_classes > 0:
            self.classifier = nn.Sequential(
                nn.Linear(512 * 7 * 7, 4096),
                nn.ReLU(),
                nn.Dropout(),
                nn.Linear(4096, 4096),
                nn.ReLU(),
                nn.Dropout(),
                nn.Linear(4096, num_classes),
            )

    def forward(self, x):
        x = self.features(x)
        if self.with_pool:
            x = self.avgpool(x)
        if self.num_classes > 0:
            x = self.classifier(paddle.flatten(x, 1))
        return x


# Channels of the convolutions; the image is halved after each group.
_CHANNELS = {
    11: [[64], [128], [256] * 2, [512] * 2, [512] * 2],
    13: [[64] * 2, [128] * 2, [256] * 2, [512] * 2, [512] * 2],
    16: [[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3],
    19: [[64] * 2, [128] * 2, [256] * 4, [512] * 4, [512] * 4],
}


def make_layers(groups, batch_norm=False):
    """The convolutions, for lists of output channels."""
    layers = []
    channels = 3
    for group in groups:
        for width in group:
            layers.append(nn.Conv2D(channels, width, kernel_size=3, padding=1))
            if batch_norm:
                layers.append(nn.BatchNorm2D(width))
            layers.append(nn.ReLU())
            channels = width
        layers.append(nn.MaxPool2D(kernel_size=2, stride=2))
    return nn.Sequential(*layers)


def _vgg(depth, pretrained, batch_norm, **kwargs):
    model = VGG(make_layers(_CHANNELS[depth], batch_norm), **kwargs)
    if pretrained:
        suffix = "_bn" if batch_norm else ""
        load_pretrained(model, f"vgg{depth}{suffix}.pdparams")
    return model


def vgg11(pretrained=False, batch_norm=False, **kwargs):
    """VGG with 11 layers; `pretrained` loads weights from the cache folder."""
    return _vgg(11, pretrained, batch_norm, **kwargs)


def vgg13(pretrained=False, batch_norm=False, **kwargs):
    """VGG with 13 layers; `pretrained` loads weights from the cache folder."""
    return _vgg(13, pretrained, batch_norm, **kwargs)


def vgg16(pretrained=False, batch_norm=False, **kwargs):
    """VGG with 16 layers; `pretrained` loads weights from the cache folder."""
    return _vgg(16, pretrained, batch_norm, **kwargs)


def vgg19(pretrained=False, batch_norm=False, **kwargs):
    """VGG with 19 layers; `pretrained` loads weights from the cache folder."""
    return _vgg(19, pretrained, batch_norm, **kwargs)
