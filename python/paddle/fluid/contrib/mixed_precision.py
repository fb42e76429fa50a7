# SPDX-License-Identifier: Apache-2.0
"""The older name of paddle.static.amp."""

from ...static.amp import *  # noqa: F403
from ...static.amp import __all__  # noqa: F401
