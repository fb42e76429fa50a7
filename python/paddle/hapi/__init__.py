# SPDX-License-Identifier: Apache-2.0
"""Models that are trained by one call, and what can be said of a network: its layers,
parameters and operations."""

from .. import _names
from . import callbacks
from .flops import flops
from .model import Model
from .summary import summary

__all__ = _names.gathered(globals(), "callbacks")
