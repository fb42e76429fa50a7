# SPDX-License-Identifier: Apache-2.0
"""Marks functions that have a better one."""

import functools
import warnings


def deprecated(update_to="", since="", reason="", level=0):
    """Decorates a function so that calling it warns.

    Args:
        update_to: what to use instead.
        since: the version from which on it is deprecated.
        reason: why.
        level: 0 and 1 warn, 2 raises RuntimeError.
    """

    def decorate(function):
        text = f"{function.__module__}.{function.__name__} is deprecated"
        text += f" since {since}" if since else ""
        text += f": {reason}" if reason else ""
        text += f"; use {update_to} instead" if update_to else ""

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            if level >= 2:
                raise RuntimeError(text)
            warnings.warn(text, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return wrapper

    return decorate
