# SPDX-License-Identifier: Apache-2.0
"""Trains a model in all modes of one process and says where they disagree."""

import dataclasses

import numpy as np
import paddle
import run
from compare import distance, first_difference, largest_distance
from model import feed_arrays

PLANNED = 1e-6  # how far a planned run may be from a plain one, by norm
DOUBLE = 2e-4  # how far gradients of float32 may be from those of float64
SLOPE = 1e-5  # how far a gradient may be from a difference quotient


@dataclasses.dataclass
class Failure:
    mode: str
    text: str


@dataclasses.dataclass
class Result:
    failures: list
    ops: frozenset = frozenset()  # definitions in the program
    notes: tuple = ()  # checks that could say nothing


class Rounding:
    """The errors that float32 makes, in a run with float64: every number at the
    beginning and every number that a line gives is rounded to float32, and a gradient of
    such numbers changed by as much as rounding its largest does. Ops themselves compute
    exactly, so that no kernel excuses its own inaccuracy.

    Errors are independent of each other with an even seed. With an odd one a gradient has
    one error for all its numbers, as a norm makes it that subtracts a rounded mean: sums
    of gradients, of biases above all, then err by much more."""

    ERROR = 2.0**-24  # of a number that is rounded to float32

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)
        self._shared = seed % 2 == 1

    def numbers(self, array):
        """What the run begins with."""
        error = self._rng.uniform(-self.ERROR, self.ERROR, array.shape)
        return (array * (1 + error)).astype("float32")

    def tensor(self, value):
        if value.dtype != paddle.float64:
            return value
        array = value.numpy()
        near = array.astype("float32").astype("float64")
        factor = np.divide(near, array, np.ones_like(array), where=array != 0)
        value = value * paddle.to_tensor(factor)
        if not value.stop_gradient:
            value.register_hook(self._gradient)
        return value

    def _gradient(self, gradient):
        if gradient.size == 0:
            return gradient
        largest = float(paddle.max(paddle.abs(gradient)))
        shape = [] if self._shared else list(gradient.shape)
        error = self._rng.uniform(-self.ERROR, self.ERROR, shape)
        return gradient + paddle.to_tensor(largest * np.asarray(error))


def movements(model, distance_of):
    """`distance_of(run, exact run)` for some runs with errors of float32: how far the
    model itself carries such errors, whatever the kernels are."""
    exact = run.eager(model, dtype="float64")
    found = []
    for seed in range(4):
        rounding = Rounding(seed)
        trace = run.eager(
            model, dtype="float64", change=rounding.numbers, rounded=rounding.tensor
        )
        found.append(distance_of(trace, exact))
    return found


def sensitivity(model):
    """How far training goes astray by errors of float32. Where that is much, a plan that
    adds in another order is no wrong plan."""
    return max(movements(model, lambda a, b: largest_distance(a, b)[0]))


def rounds_otherwise(model):
    """Whether a program rounds otherwise than the eager step though both are right: the
    eager step clips and decays in one pass, adds gradients of branches and loops in
    another order, and reads a slice where it lies; rates of a program are float32."""
    updates = ("ClipGradByNorm", "ClipGradByGlobalNorm", "Decay")
    lines = ("static.nn.", "[:, ", "[..., ", "split(")
    text = model.code()
    return (
        model.dtype == "float64"
        or any(word in model.optimizer for word in updates)
        or any(word in text for word in lines)
    )


def check(model, modes=("plain", "planned", "double", "slope")):
    """All disagreements between the modes of one process."""
    failures, notes, ops = [], [], frozenset()

    def attempt(mode, function):
        try:
            return function()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            failures.append(Failure(mode, text))
            return None

    eager = attempt("eager", lambda: run.eager(model))
    if eager is None:
        return Result(failures)
    if "plain" in modes:
        plain = attempt("plain", lambda: run.program(model, planning=False))
        if plain is not None:
            ops = plain.ops
            found = first_difference(plain, eager)
            if found and rounds_otherwise(model):
                notes.append("program and eager equal by norm, not to the bit")
                apart, found = largest_distance(plain, eager)
                if apart <= max(PLANNED, 10 * sensitivity(model)):
                    found = None
            if found:
                failures.append(Failure("plain", f"program and eager: {found}"))
    if "planned" in modes:
        planned = attempt(
            "planned", lambda: run.program(model, planning=True, fetch_all=False)
        )
        if planned is not None:
            ops = planned.ops
            apart, where = largest_distance(planned, eager)
            if apart > PLANNED:
                limit = max(PLANNED, 10 * sensitivity(model))
                if apart > limit:
                    text = f"plan and eager: {apart:.2g} apart: {where}"
                    failures.append(Failure("planned", text))
                else:
                    notes.append("too sensitive to compare")
    if "double" in modes or "slope" in modes:
        one = dataclasses.replace(model, steps=1)
        double = attempt("double", lambda: run.eager(one, dtype="float64"))
        steady = model.dtype == "float32" and not model.random
        if double is not None and "double" in modes and steady:
            notes += _check_double(model, eager, double, failures)
        if double is not None and "slope" in modes:
            notes += attempt("slope", lambda: _slopes(model, double, failures)) or []
    return Result(failures, ops, tuple(notes))


def _check_double(model, eager, double, failures):
    """Gradients of the first step in float32 against those in float64. Where exact ops
    with rounded results are far away too, ten times as far is allowed: an op rounds more
    often than once."""
    size = np.sqrt(sum((g**2).sum() for g in double.gradients.values())) or 1.0

    def apart(trace, name):
        gradient = double.gradients[name]
        scale = 0.01 * size / np.sqrt(max(gradient.size, 1))
        return distance(trace.gradients[name], gradient, max(scale, 1e-4))

    notes = []
    one = dataclasses.replace(model, steps=1)
    for name in double.gradients:
        if name not in eager.gradients:
            failures.append(Failure("double", f"no gradient of {name} in float32"))
            continue
        found = apart(eager, name)
        if found <= DOUBLE:
            continue
        moved = max(movements(one, lambda trace, _: apart(trace, name)))
        if found <= 10 * moved:
            notes.append("too sensitive to compare")
            continue
        text = f"gradient of {name}: float32 is {found:.2g} from float64"
        text += f", errors of float32 move it by {moved:.2g}"
        failures.append(Failure("double", text))
    return notes


def _slopes(model, double, failures):
    """Gradients against difference quotients along random directions, where these agree
    among each other: the loss has a slope there."""
    notes = []
    loss = LossOf(model)
    rng = np.random.default_rng(model.number)
    names = sorted(double.gradients)
    rng.shuffle(names)
    for name in names[:6]:
        gradient = double.gradients[name]
        direction = rng.standard_normal(gradient.shape)
        if gradient.size > 1 and rng.random() < 0.3:  # a single coordinate
            only = np.zeros(gradient.size)
            only[rng.integers(gradient.size)] = 1.0
            direction = only.reshape(gradient.shape)
        wanted = float((gradient * direction).sum())
        at = {h: loss.at(name, h * direction) for h in (0, 1e-4, -1e-4, 5e-5, -5e-5)}
        if not all(np.isfinite(v) for v in at.values()):
            notes.append("no finite slope")
            continue
        wide = (at[1e-4] - at[-1e-4]) / 2e-4
        narrow = (at[5e-5] - at[-5e-5]) / 1e-4
        right, left = (at[5e-5] - at[0]) / 5e-5, (at[0] - at[-5e-5]) / 5e-5
        size = max(abs(narrow), abs(wanted), np.linalg.norm(gradient), 1e-2)
        if abs(wide - narrow) > 1e-4 * size or abs(right - left) > 1e-2 * size:
            notes.append("no slope")
            continue
        slope = (4 * narrow - wide) / 3
        if abs(slope - wanted) > SLOPE * size + 1e-8:
            text = f"gradient of {name}: {wanted:.9g}, but the slope is {slope:.9g}"
            failures.append(Failure("slope", text))
    return notes


class LossOf:
    """The loss of the first step in float64, near the first values. What no gradient
    flows through (a `detach`, an index, a saved norm) keeps its first value."""

    def __init__(self, model):
        self._model = model
        self._env = run.environment("float64")
        paddle.disable_static()
        self._made = run.make_parameters(model, self._env, "float64")
        self._first = run.first_values(model, self._made, "float64")
        self._kept = {n: np.array(v.numpy()) for n, v in self._made.items()}
        self._kept.update(self._first)
        for name, array in feed_arrays(model, 0, "float64").items():
            self._env[name] = paddle.to_tensor(array)
        self._lines = [
            (line, compile(line.code(), "<slope>", "exec")) for line in model.lines
        ]
        self._loss = compile(f"loss = {' + '.join(model.terms)}", "<slope>", "exec")
        self._still = {}
        self._set(None, None)
        for line, code in self._lines:
            exec(code, self._env)
            for name in line.outputs:
                if self._env[name].stop_gradient:  # a copy: it may be a view
                    array = np.array(self._env[name].numpy())
                    self._still[name] = paddle.to_tensor(array)

    def _set(self, name, change):
        for other, array in self._kept.items():
            self._made[other].set_value(array + change if other == name else array)
        paddle.seed(run.seed_of(self._model))

    def at(self, name, change):
        """The loss where the parameter `name` is changed."""
        self._set(name, change)
        with paddle.no_grad():
            for line, code in self._lines:
                exec(code, self._env)
                for output in line.outputs:
                    if output in self._still:
                        self._env[output] = self._still[output]
            exec(self._loss, self._env)
        return float(self._env["loss"].numpy().sum())
