# SPDX-License-Identifier: Apache-2.0
"""Readers: functions without arguments that return an iterable of samples.

What is here makes readers of readers. New code is better served by
`paddle.io.DataLoader`.
"""

from .. import _names
from .decorator import (
    ComposeNotAligned,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)

__all__ = _names.gathered(globals())
