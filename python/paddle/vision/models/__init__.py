# SPDX-License-Identifier: Apache-2.0
"""Image classifiers, with the parameter names of Paddle's."""

from ... import _names
from .lenet import LeNet
from .mobilenetv1 import MobileNetV1, mobilenet_v1
from .mobilenetv2 import MobileNetV2, mobilenet_v2
from .resnet import (
    ResNet,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
    wide_resnet50_2,
    wide_resnet101_2,
)
from .vgg import VGG, vgg11, vgg13, vgg16, vgg19

__all__ = _names.gathered(globals())
