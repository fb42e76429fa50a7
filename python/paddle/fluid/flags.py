# SPDX-License-Identifier: Apache-2.0
"""Settings by name, FLAGS_..., which scripts write and read. Those of Paddle's memory
and GPU libraries have no effect: what they tune is not there."""

import os

_flags = {
    name: value for name, value in os.environ.items() if name.startswith("FLAGS_")
}


def flags():
    """All flags that are set; a dict that can be changed."""
    return _flags


def _check(function, name):
    if not isinstance(name, str) or not name.startswith("FLAGS_"):
        raise ValueError(f"{function}: {name!r} is no flag: they begin with FLAGS_")


def set_flags(flags):
    """Sets flags from a dict."""
    if not isinstance(flags, dict):
        raise TypeError(f"set_flags: a dict is needed, but got {type(flags).__name__}")
    for name in flags:
        _check("set_flags", name)
    _flags.update(flags)


def get_flags(flags):
    """A dict of one flag or several."""
    names = [flags] if isinstance(flags, str) else list(flags)
    for name in names:
        _check("get_flags", name)
        if name not in _flags:
            raise ValueError(f"get_flags: {name} is not set")
    return {name: _flags[name] for name in names}
