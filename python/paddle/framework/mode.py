# SPDX-License-Identifier: Apache-2.0
"""Eager or static: which of the two a call of a function means."""

import warnings

from .._core import building

_chosen = False  # whether the script has said which one it wants


def in_dynamic_mode():
    """Whether functions compute at once, rather than build a program."""
    return not building.on


def disable_static(place=None):
    """Computes at once. `place` becomes the current device."""
    global _chosen
    _chosen = True
    building.on = False
    if place is not None:
        from .place import set_device

        set_device(place)


def enable_static():
    """Builds programs instead of computing at once."""
    global _chosen
    from ..static import program

    _chosen = True
    program.prepare()
    building.on = True


def require_static(what):
    """For functions that only build programs. A script that has not said which mode it
    wants is taken at its word: it gets programs, and a warning."""
    if building.on:
        return
    if _chosen:
        raise RuntimeError(
            f"{what} builds a program, but the mode is dynamic: call "
            "paddle.enable_static() first"
        )
    warnings.warn(
        f"{what} builds a program: going on in static mode, as after "
        "paddle.enable_static()",
        stacklevel=3,
    )
    enable_static()
