# SPDX-License-Identifier: Apache-2.0
"""Draws a model, line by line.

Every line is run at once while it is drawn, on a batch and on the two halves of it: that
gives shapes, keeps values finite, and tells whether a value is one of each sample. A line
that leads nowhere is taken back.
"""

import random

import numpy as np
import paddle
from model import (
    Feed,
    Line,
    Model,
    Parameter,
    feed_arrays,
    names_in,
    parameter_array,
    share,
)
from run import environment, first_values, make_parameters
from value import DrawError, Reject, Value, written

LARGEST = 40.0  # of what a line may give; beyond, losses leave the range of floats
SIZES = (1, 2, 2, 3, 3, 4, 5, 7)


class Draw:
    """The state of one drawing: recipes add to it."""

    def __init__(self, number, split=None):
        self.number = number
        self.rng = random.Random(number * 7919 + 1)
        self.batch = self.rng.choice((2, 4, 4, 6))
        self.split = self.rng.random() < 0.6 if split is None else split
        self.random = False
        self.feeds, self.parameters, self.layers, self.lines = [], [], [], []
        self.values, self.used, self.more_terms = [], set(), []
        self.count = 0
        # The batch, its first half, its second half.
        self.envs = [environment("float32") for _ in range(3)]

    # ---- choices

    def one_of(self, *items):
        return self.rng.choice(items)

    def chance(self, probability):
        return self.rng.random() < probability

    def number_in(self, low, high):
        return round(self.rng.uniform(low, high), 3)

    def sizes(self, rank):
        return tuple(self.rng.choice(SIZES) for _ in range(rank))

    def axis(self, value, allow_first=None):
        """One of its dimensions; not the batch where samples must stay apart."""
        first = 0
        if self.split and value.rows == "rows" and not allow_first:
            first = 1
        if first >= value.rank:
            raise Reject
        axis = self.rng.randrange(first, value.rank)
        return axis - value.rank if self.chance(0.3) else axis

    # ---- new values

    def _new_name(self, letter):
        self.count += 1
        return f"{letter}{self.count}"

    def _add(self, name, arrays, rows):
        for env, array in zip(self.envs, arrays):
            if env is not None:
                env[name] = paddle.to_tensor(array)
        value = Value(name, np.asarray(arrays[0]), rows)
        self.values.append(value)
        return value

    def feed(self, shape, kind="normal", high=0, dtype="", rows=True):
        """Fed in each step; its first dimension is the batch if `rows`."""
        shape = tuple(shape)
        feed = Feed(self._new_name("x"), shape, kind, high, dtype, rows)
        self.feeds.append(feed)
        model = self._model(())
        arrays = feed_arrays(model, 0, "float32")
        halves = [share(model, arrays, r)[feed.name] for r in range(2)]
        kind = "rows" if rows else "mixed"
        return self._add(feed.name, [arrays[feed.name], *halves], kind)

    def parameter(self, shape, kind="normal", trained=True):
        parameter = Parameter(self._new_name("w"), tuple(shape), kind, trained)
        self.parameters.append(parameter)
        array = parameter_array(self._model(()), parameter, "float32")
        return self._add(parameter.name, [array] * 3, "same")

    def constant(self, array, dtype=None):
        """Numbers in the program itself."""
        array = np.asarray(array)
        if dtype is None:
            dtype = "DTYPE" if array.dtype.kind == "f" else repr(array.dtype.name)
        numbers = np.array2string(
            array, separator=", ", threshold=10**6, max_line_width=10**6
        ).replace("\n", "")
        if array.size == 0:
            text = f"paddle.zeros({list(array.shape)}, {dtype})"
        else:
            text = f"paddle.to_tensor({numbers}, {dtype})"
        return self.line(text)

    def layer(self, text):
        """A layer, whose parameters are trained; gives its name."""
        name = self._new_name("l")
        line = Line((name,), text)
        self.layers.append(line)
        model = Model(self.number, 2, (), (), (line,), (), ("0.0",), "0.1", "None")
        try:
            paddle.seed(self.number + 1)
            made = make_parameters(model, self.envs[0], "float32")
        except Exception as error:
            raise DrawError(self._model(()), line, error) from error
        for key, array in first_values(model, made, "float32").items():
            made[key].set_value(array)
        for env in self.envs[1:]:
            if env is not None:
                env[name] = self.envs[0][name]
        return name

    # ---- values to work on

    def _fits(self, value, rank, shape, where):
        return (
            value.array.dtype == np.float32
            and (value.array.size == 0 or np.abs(value.array).max() <= LARGEST)
            and (rank is None or value.rank in rank)
            and (shape is None or value.shape == tuple(shape))
            and (where is None or where(value))
        )

    def floats(self, rank=None, shape=None, where=None, fresh=0.25):
        """A floating-point value: mostly one that is there, at times a new one. `rank`
        is a number or several."""
        rank = (rank,) if isinstance(rank, int) else rank
        there = [v for v in self.values if self._fits(v, rank, shape, where)]
        if there and not self.chance(fresh):
            unused = [v for v in there if v.name not in self.used]
            return self.rng.choice(unused if unused and self.chance(0.6) else there)
        if shape is None:
            for _ in range(20):
                value = self._fresh(self.rng.choice(rank or (1, 2, 2, 3)))
                if where is None or where(value):
                    return value
            raise Reject
        return self._fresh_of(tuple(shape))

    def _fresh(self, rank):
        if rank == 0:
            return self.line(f"paddle.sum({self.floats().name})")
        if self.chance(0.5):
            return self.parameter(self.sizes(rank))
        return self.feed((self.batch, *self.sizes(rank - 1)))

    def _fresh_of(self, shape):
        if shape and shape[0] == self.batch and self.chance(0.5):
            return self.feed(shape)
        return self.parameter(shape)

    def rows(self, rank=None, where=None):
        """A value with one entry for each sample."""
        rank = (rank,) if isinstance(rank, int) else rank
        there = [
            v
            for v in self.values
            if v.rows == "rows" and self._fits(v, rank, None, where)
        ]
        if there and not self.chance(0.2):
            return self.rng.choice(there)
        for _ in range(20):
            size = self.rng.choice(rank or (2, 2, 3))
            value = self.feed((self.batch, *self.sizes(size - 1)))
            if where is None or where(value):
                return value
        raise Reject

    def weight(self, shape, kind="normal"):
        """A parameter, at times one that is there already."""
        there = [v for v in self.values if v.name[0] == "w" and v.shape == tuple(shape)]
        if there and kind == "normal" and self.chance(0.3):
            return self.rng.choice(there)
        return self.parameter(shape, kind)

    def integers(self, shape, high, dtype="int64"):
        """Numbers below `high`: fed where the first dimension is the batch, or in the
        program."""
        shape = tuple(shape)
        if shape and shape[0] == self.batch and self.chance(0.7):
            return self.feed(shape, "ids", high, dtype)
        rng = np.random.default_rng(self.rng.randrange(1 << 30))
        return self.constant(rng.integers(0, high, shape).astype(dtype))

    def squashed(self, value):
        """Within [-0.8, 0.8]."""
        return self.line(f"paddle.tanh({value.name}) * 0.8")

    def positive(self, value):
        return self.line(f"{value.name} * {value.name} * 0.1 + 0.5")

    def probability(self, value):
        return self.line(f"F.sigmoid({value.name}) * 0.9 + 0.05")

    # ---- lines

    def call(self, op, *inputs, outputs=1, **attrs):
        """A call of an op: inputs in slot order, attributes by name."""
        arguments = [written(i) for i in inputs]
        arguments += [f"{name}={written(value)}" for name, value in attrs.items()]
        return self.line(f"ops.{op}({', '.join(arguments)})", outputs)

    def term(self, text):
        """A part of the loss, a mean over samples."""
        self.more_terms.append(text)
        self.used |= names_in(text)

    def line(self, text, outputs=1, random=False):
        """Adds a line that gives `outputs` values, and gives these."""
        if self.split and random:
            raise Reject
        names = tuple(self._new_name("v") for _ in range(outputs))
        line = Line(names, text)
        code = compile(line.code(), "<line>", "exec")
        results = []
        for i, env in enumerate(self.envs):
            if env is None:
                results.append(None)
                continue
            try:
                paddle.seed(1)
                with paddle.no_grad():
                    exec(code, env)
                results.append([_array(env[name]) for name in names])
            except Exception as error:
                if i == 0:
                    raise DrawError(self._model(()), line, error) from error
                if self.split:
                    raise Reject from error
                self.envs[1] = self.envs[2] = None
                results.append(None)
        values = [
            self._judge(name, [r and r[k] for r in results], random)
            for k, name in enumerate(names)
        ]
        self.random |= random
        self.lines.append(line)
        # What only a number or a truth is made of has no gradient from there.
        if any(v.floating for v in values) and "detach" not in text:
            self.used |= names_in(text)
        self.values += values
        return values[0] if outputs == 1 else values

    def _judge(self, name, arrays, random):
        whole, first, second = arrays
        if whole.dtype.kind == "f":
            if not np.isfinite(whole).all():
                raise Reject
            if whole.size and np.abs(whole).max() > 10 * LARGEST:
                raise Reject
        if whole.size > 4000:
            raise Reject
        rows = "mixed"
        if not random and first is not None and second is not None:
            if _same(whole, first) and _same(whole, second):
                rows = "same"
            elif whole.ndim and first.ndim == whole.ndim == second.ndim:
                joined = (
                    np.concatenate([first, second])
                    if first.shape[1:] == second.shape[1:]
                    else first
                )
                if whole.shape[0] == self.batch and _same(whole, joined):
                    rows = "rows"
        if rows == "mixed" and self.split:
            raise Reject
        return Value(name, whole, rows)

    # ---- the end

    def attempt(self, recipe):
        """Runs a recipe; what it began is taken back if it leads nowhere."""
        lists = (self.feeds, self.parameters, self.layers, self.lines, self.values)
        lists += (self.more_terms,)
        sizes = [len(items) for items in lists]
        random, used, envs = self.random, set(self.used), list(self.envs)
        try:
            recipe(self)
            return True
        except Reject:
            for items, size in zip(lists, sizes):
                del items[size:]
            self.random, self.used, self.envs = random, used, envs
            return False

    def _model(self, terms, **more):
        return Model(
            number=self.number,
            batch=self.batch,
            feeds=tuple(self.feeds),
            parameters=tuple(self.parameters),
            layers=tuple(self.layers),
            lines=tuple(self.lines),
            terms=terms,
            rate=more.pop("rate", "0.1"),
            optimizer=more.pop(
                "optimizer", "paddle.optimizer.SGD(rate, parameters=PARAMETERS)"
            ),
            split=self.split,
            random=self.random,
            **more,
        )

    def terms(self):
        """Loss terms of all values that nothing reads."""
        terms = list(self.more_terms)
        for value in self.values:
            if value.name in self.used or not value.floating:
                continue
            if value.name[0] == "x" or value.array.dtype.name == "float16":
                continue
            name = value.name
            factor = self.number_in(-2, 2)
            if value.size == 0 or (value.rows == "same" and self.chance(0.3)):
                terms.append(f"paddle.sum({name}) * {factor}")
            elif self.chance(0.5):
                terms.append(f"paddle.mean({name} * {name}) * {abs(factor)}")
            else:
                terms.append(f"paddle.mean({name}) * {factor}")
        return terms

    def _trains(self, terms):
        """Whether the loss has a gradient by anything that is trained."""
        env = dict(self.envs[0])
        for parameter in self.parameters:
            env[parameter.name] = paddle.to_tensor(env[parameter.name].numpy())
            env[parameter.name].stop_gradient = not parameter.trained
        exec(self._model(tuple(terms)).code(), env)
        return not env["loss"].stop_gradient

    def finish(self, rate, optimizer):
        terms = self.terms()
        if not terms or not self._trains(terms):
            weight = self.parameter((3,))
            terms.append(f"paddle.sum({weight.name} * {weight.name})")
        lines = {out for line in self.lines for out in line.outputs}
        fetched = [v.name for v in self.values if v.name in lines]
        return self._model(
            tuple(terms),
            rate=rate,
            optimizer=optimizer,
            free_batch=self.chance(0.6) and self.envs[1] is not None,
            fetched=tuple(fetched),
        )


def _array(value):
    if not isinstance(value, paddle.Tensor):
        raise TypeError(f"a line gave {type(value).__name__}, not a Tensor")
    return np.array(value.numpy())


def _same(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind == "f":
        return np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    return np.array_equal(a, b)
