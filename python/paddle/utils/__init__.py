# SPDX-License-Identifier: Apache-2.0
"""Tools around training scripts."""

from .. import _names
from . import dlpack, unique_name
from .deprecation import deprecated
from .install_check import run_check
from .lazy_import import try_import
from .requirement import require_version

__all__ = _names.gathered(globals(), "dlpack unique_name")
