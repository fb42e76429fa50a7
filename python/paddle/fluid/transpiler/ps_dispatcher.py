# SPDX-License-Identifier: Apache-2.0
"""Which server gets which variable. Scripts name one of these in a config; parameters
are split evenly over servers whatever it says."""

import zlib


class PSDispatcher:
    """A list of endpoints that variables are dealt to."""

    def __init__(self, pserver_endpoints):
        self._eps = list(pserver_endpoints)
        self._step = 0

    @property
    def eps(self):
        return self._eps

    def reset(self):
        self._step = 0

    def dispatch(self, varlist):
        """An endpoint for each variable."""
        raise NotImplementedError(f"{type(self).__name__} does not deal variables")


class HashName(PSDispatcher):
    """By the name of the variable, so that it is the same in every process."""

    def dispatch(self, varlist):
        count = len(self._eps)
        return [
            self._eps[zlib.crc32(variable.name.encode()) % count]
            for variable in varlist
        ]


class RoundRobin(PSDispatcher):
    """One after the other."""

    def dispatch(self, varlist):
        dealt = []
        for _ in varlist:
            dealt.append(self._eps[self._step])
            self._step = (self._step + 1) % len(self._eps)
        return dealt
