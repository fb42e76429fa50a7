# SPDX-License-Identifier: Apache-2.0
"""What models are made of: layers, losses, initializers."""

from .. import _names
from . import functional, initializer, utils
from .clip import ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue
from .layer.activation import *
from .layer.container import *
from .layer.conv import *
from .layer.distance import *
from .layer.dropout import *
from .layer.layers import Layer
from .layer.linear import *
from .layer.loss import *
from .layer.norm import *
from .layer.pooling import *
from .layer.rnn import *
from .layer.transformer import *
from .layer.vision import *

__all__ = _names.gathered(globals(), "functional initializer utils")
