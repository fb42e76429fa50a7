# SPDX-License-Identifier: Apache-2.0
from . import fleet

__all__ = ["fleet"]
