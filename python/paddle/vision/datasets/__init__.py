# SPDX-License-Identifier: Apache-2.0
"""Image datasets, read from the archives in Paddle's cache folder.

Nothing is downloaded and no checksum is asked for. Where a file is absent, the
error says which one to put where.
"""

from ... import _names
from .cifar import Cifar10, Cifar100
from .flowers import Flowers
from .folder import DatasetFolder, ImageFolder
from .mnist import MNIST, FashionMNIST
from .voc2012 import VOC2012

__all__ = _names.gathered(globals())
