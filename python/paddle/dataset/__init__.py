# SPDX-License-Identifier: Apache-2.0
"""Readers over well-known datasets, from archives in Paddle's cache folder.

Nothing is downloaded: where a file is absent, the error says which file to put
where. New code is better served by `paddle.vision.datasets`.
"""

from .. import _names
from . import cifar, common, flowers, image, imdb, mnist, uci_housing

__all__ = _names.gathered(
    globals(), "cifar common flowers image imdb mnist uci_housing"
)
