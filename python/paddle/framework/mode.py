# SPDX-License-Identifier: Apache-2.0
"""Eager or static: which of the two a call of a function means."""

_dynamic = True


def in_dynamic_mode():
    """Whether functions compute at once, rather than build a program."""
    return _dynamic


def disable_static(place=None):
    """Computes at once. `place` becomes the current device."""
    global _dynamic
    _dynamic = True
    if place is not None:
        from .place import set_device

        set_device(place)


def enable_static():
    """Builds programs instead of computing at once. The functions that build them,
    those of paddle.static, are not there yet and say so."""
    global _dynamic
    _dynamic = False
