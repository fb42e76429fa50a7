# SPDX-License-Identifier: Apache-2.0
"""Rows that belong to sequences of different lengths."""

from ...static import sequence as _sequence
from ...static.sequence import *  # noqa: F403

__all__ = [*_sequence.__all__]
