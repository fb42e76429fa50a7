# SPDX-License-Identifier: Apache-2.0
"""What recipes handle: values by name, arguments as source, what cannot be drawn."""

import numpy as np


class Reject(Exception):
    """What was begun cannot be used here."""


class DrawError(Exception):
    """A line that should be valid raised an error."""

    def __init__(self, model, line, error):
        super().__init__(f"{line.code()}\n{type(error).__name__}: {error}")
        self.model, self.line = model, line


class Text(str):
    """An argument that is written as it is."""


class Value:
    """A name and what it stands for in the batch that the model is drawn with. `rows`:
    "rows" one for each sample, "same" whatever the batch, "mixed" anything else."""

    def __init__(self, name, array, rows):
        self.name, self.array, self.rows = name, array, rows

    shape = property(lambda self: self.array.shape)
    rank = property(lambda self: self.array.ndim)
    size = property(lambda self: self.array.size)
    floating = property(lambda self: self.array.dtype.kind == "f")


def varied(value, axes):
    """Rejects what has fewer than three numbers along `axes`, or nearly equal ones. Two
    numbers become 1 and -1 by a norm, whatever they are: the gradient is a difference of
    equal numbers. Equal ones are divided by the root of epsilon. Either way every kernel
    makes numbers of its rounding errors."""
    axes = tuple(axes)
    count = int(np.prod([value.shape[i] for i in axes]))
    if count < 3 or np.var(value.array, axis=axes).min() < 1e-3:
        raise Reject


def distinct(value, axes):
    """Rejects what has a number twice along `axes`: each of equal extremes gets the whole
    gradient, as in Paddle, which is no slope."""
    rest = [i for i in range(value.rank) if i not in axes]
    size = int(np.prod([value.shape[i] for i in axes]))
    slices = np.transpose(value.array, [*rest, *axes]).reshape(-1, size)
    if (np.diff(np.sort(slices, 1), axis=1) == 0).any():
        raise Reject


def written(argument):
    """An argument as source."""
    if isinstance(argument, Value):
        return argument.name
    if isinstance(argument, Text):
        return str(argument)
    if isinstance(argument, (list, tuple)):
        return "[" + ", ".join(written(a) for a in argument) + "]"
    if isinstance(argument, np.generic):
        argument = argument.item()
    return repr(argument)
