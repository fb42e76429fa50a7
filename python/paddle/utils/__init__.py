# SPDX-License-Identifier: Apache-2.0
"""Tools around training scripts."""

from . import unique_name

__all__ = ["unique_name"]
