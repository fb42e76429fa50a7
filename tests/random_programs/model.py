# SPDX-License-Identifier: Apache-2.0
"""A small model as text: feeds, parameters, lines of Python, terms of a loss.

A model is data, so that it can be trained in any mode, made smaller, and printed.
"""

import dataclasses
import re

import numpy as np

_NAME = re.compile(r"\b[a-z]+\d+\b")


def names_in(text):
    """The values, feeds and parameters that a piece of text mentions."""
    return set(_NAME.findall(text))


@dataclasses.dataclass(frozen=True)
class Feed:
    """What is fed in each step. `kind` is "normal", or "ids" below `high`. The first
    dimension is the batch if `rows`."""

    name: str
    shape: tuple
    kind: str = "normal"
    high: int = 0
    dtype: str = ""  # "": that of the model
    rows: bool = True


@dataclasses.dataclass(frozen=True)
class Parameter:
    """`kind` is "normal", "positive", or "zeros"; `trained` says whether an optimizer
    changes it."""

    name: str
    shape: tuple
    kind: str = "normal"
    trained: bool = True


@dataclasses.dataclass(frozen=True)
class Line:
    """`outputs = text`."""

    outputs: tuple
    text: str

    def code(self):
        return f"{', '.join(self.outputs)} = {self.text}"


@dataclasses.dataclass(frozen=True)
class Model:
    number: int
    batch: int
    feeds: tuple
    parameters: tuple
    layers: tuple  # lines that make layers, once
    lines: tuple
    terms: tuple  # their sum is the loss
    rate: str
    optimizer: str
    dtype: str = "float32"
    steps: int = 4
    split: bool = False  # the loss is a mean over samples
    random: bool = False  # draws random numbers
    free_batch: bool = True  # programs do not know the size of the batch
    fetched: tuple = ()

    def pruned(self):
        """Without what the loss and what is fetched do not need."""
        needed = names_in(" ".join(self.terms)) | set(self.fetched)
        kept = []
        for line in reversed(self.lines):
            if needed & set(line.outputs):
                kept.append(line)
                needed |= names_in(line.text)
        layers = [x for x in self.layers if needed & set(x.outputs)]
        return dataclasses.replace(
            self,
            lines=tuple(reversed(kept)),
            layers=tuple(layers),
            feeds=tuple(f for f in self.feeds if f.name in needed),
            parameters=tuple(p for p in self.parameters if p.name in needed),
        )

    def layer_code(self):
        return "\n".join(line.code() for line in self.layers)

    def code(self):
        """The forward computation; `loss` is what is trained."""
        lines = [line.code() for line in self.lines]
        return "\n".join([*lines, f"loss = {' + '.join(self.terms)}"])


def _draw(kind, shape, high, rng):
    if kind == "ids":
        return rng.integers(0, high, shape)
    if kind == "zeros":
        return np.zeros(shape)
    if kind == "bool":
        return rng.random(shape) < 0.5
    value = rng.standard_normal(shape)
    return np.abs(value) + 0.5 if kind == "positive" else value


def feed_arrays(model, step, dtype=None, rank=0):
    """The batch of a step, the same in every process; `rank` has its own."""
    dtype = dtype or model.dtype
    arrays = {}
    for index, feed in enumerate(model.feeds):
        rng = np.random.default_rng([model.number, step, int(feed.name[1:]), rank])
        array = _draw(feed.kind, feed.shape, feed.high, rng)
        arrays[feed.name] = array.astype(feed.dtype or dtype)
    return arrays


def share(model, arrays, rank, ranks=2):
    """The samples of one rank."""
    size = model.batch // ranks
    rows = {f.name for f in model.feeds if f.rows}
    return {
        name: a[rank * size : (rank + 1) * size] if name in rows else a
        for name, a in arrays.items()
    }


def parameter_array(model, parameter, dtype):
    rng = np.random.default_rng([model.number, 1 << 20, int(parameter.name[1:])])
    array = _draw(parameter.kind, parameter.shape, 0, rng)
    return (array * 0.5).astype(dtype)


def layer_array(model, name, shape, dtype):
    """The first value of a parameter of a layer: "l3.p0" is the first one of l3."""
    layer, index = name[1:].split(".p")
    rng = np.random.default_rng([model.number, 1 << 21, int(layer), int(index)])
    return (rng.standard_normal(shape) * 0.4).astype(dtype)
