# SPDX-License-Identifier: Apache-2.0
"""Images: transforms, datasets and models.

The names of the three packages are here as well: `paddle.vision.resnet18`.
"""

from .. import _names
from . import datasets, models, ops, transforms
from .datasets import *  # noqa: F403
from .image import get_image_backend, image_load, set_image_backend
from .models import *  # noqa: F403
from .transforms import *  # noqa: F403

__all__ = _names.gathered(globals(), "datasets models ops transforms")
