# SPDX-License-Identifier: Apache-2.0
"""The line that says how far a loop is."""

import sys
import time

_WIDTH = 30  # of the bar


class Progress:
    """Prints steps of a loop: with `verbose` 1 one line that is written again and again,
    with 2 a line for each call.

    steps: how many there will be; None where that is not known.
    """

    def __init__(self, steps, verbose, out=None, clock=time.perf_counter):
        self._steps = steps
        self._verbose = verbose
        self._out = out
        self._clock = clock
        self._begin = clock()
        self._wide = 0  # the longest line so far

    def show(self, step, values, last=False):
        """`step` steps are done. `values` are pairs of a name and a number or a list."""
        took = (self._clock() - self._begin) / max(step, 1)
        parts = [f"step {step}/{self._steps or 'Unknown'}"]
        if self._verbose == 1:
            parts[0] += f" [{self._bar(step)}]"
        parts += [f"{name}: {_text(value)}" for name, value in values]
        parts.append(f"{_duration(took)}/step")
        line = " - ".join(parts)
        out = sys.stdout if self._out is None else self._out
        if self._verbose == 1:
            self._wide = max(self._wide, len(line))
            out.write(f"\r{line:<{self._wide}}" + ("\n" if last else ""))
        else:
            out.write(f"{line}\n")
        out.flush()

    def _bar(self, step):
        if not self._steps:
            return "." * _WIDTH
        done = min(_WIDTH * step // self._steps, _WIDTH)
        if done == _WIDTH:
            return "=" * _WIDTH
        return "=" * done + ">" + "." * (_WIDTH - done - 1)


def _text(value):
    values = value if isinstance(value, (list, tuple)) else [value]
    return " ".join(f"{float(v):.4f}" for v in values)


def _duration(seconds):
    if seconds >= 1:
        return f"{seconds:.0f}s"
    return f"{seconds * 1e3:.0f}ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f}us"
