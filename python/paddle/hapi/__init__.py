# SPDX-License-Identifier: Apache-2.0
"""What can be said of a network: its layers, parameters and operations."""

from .flops import flops
from .summary import summary

__all__ = ["flops", "summary"]
