# SPDX-License-Identifier: Apache-2.0
"""Names that occur once: `generate('fc')` gives fc_0, fc_1, ..."""

import contextlib


class UniqueNameGenerator:
    """Counts per key. `prefix` stands before every name it gives."""

    def __init__(self, prefix=""):
        self._prefix = prefix
        self._counters = {}

    def __call__(self, key):
        count = self._counters.get(key, 0)
        self._counters[key] = count + 1
        return f"{self._prefix}{key}_{count}"


_generator = UniqueNameGenerator()


def generate(key):
    """The next name that begins with `key`."""
    return _generator(key)


def switch(new_generator=None):
    """Counts with `new_generator` from now on (a fresh one by default).

    Returns the generator used so far, so that it can be put back.
    """
    global _generator
    old = _generator
    _generator = UniqueNameGenerator() if new_generator is None else new_generator
    return old


@contextlib.contextmanager
def guard(new_generator=None):
    """Inside the `with` block names begin anew.

    `new_generator` may be a string, which then begins every name.
    """
    if isinstance(new_generator, bytes):
        new_generator = new_generator.decode()
    if isinstance(new_generator, str):
        new_generator = UniqueNameGenerator(new_generator)
    old = switch(new_generator)
    try:
        yield
    finally:
        switch(old)
