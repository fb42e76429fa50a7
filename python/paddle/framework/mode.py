# SPDX-License-Identifier: Apache-2.0
"""Eager or static: which of the two a call of a function means."""


def in_dynamic_mode():
    """Whether functions compute at once, rather than build a program."""
    return True


def disable_static(place=None):
    """Computes at once. `place` becomes the current device."""
    if place is not None:
        from .place import set_device

        set_device(place)


def enable_static():
    """Builds programs instead of computing at once."""
    raise NotImplementedError(
        "static graphs are not part of this version of paddle yet; eager mode is"
    )
