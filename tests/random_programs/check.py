# SPDX-License-Identifier: Apache-2.0
"""Trains a model in all modes of one process and says where they disagree."""

import collections
import contextlib
import dataclasses
import re

import numpy as np
import paddle
import run
from compare import distance, first_difference, largest_distance
from model import feed_arrays, names_in
from paddle import _core, _ops

PLANNED = 1e-6  # how far a planned run may be from a plain one, by norm
DOUBLE = 2e-4  # how far gradients of float32 may be from those of float64
# What gradients of float32 are compared with at least, for each number. A saturated
# function takes its slope from a difference of numbers near one, as 1 - tanh(x)^2 is one,
# and its error is some 2e-7 however small the slope is.
SMALLEST, SMALLEST_SATURATED = 1e-4, 1e-3
_SATURATED = re.compile(
    "tanh|sigmoid|softmax|elu|erf|swish|mish|silu|normal|cross_entropy|log_loss|crf|ctc|"
    "rnn|RNN|LSTM|GRU|lstm|gru|Attention|Transformer"
)
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


def _largest_of(gradient):
    array = np.zeros(1) if gradient is None else gradient.numpy()
    return float(np.abs(array).max()) if array.size else 0.0


class Rounding:
    """The errors that float32 makes, in a run with float64: every number at the beginning
    and every number that a line gives, or an op inside of one, is rounded to float32; the
    gradients of such numbers, and of every use of them by a line, are changed by as much as
    rounding the largest does. Ops themselves compute exactly, so that no kernel excuses its
    own inaccuracy.

    The largest is that of what is added up, not of the sum: a gradient that is zero
    because its terms cancel, as that of a bias before a batch norm, has errors of the
    size of its terms. `scales` measures that by a pass in which every gradient has random
    signs, so that nothing cancels.

    Errors are independent of each other with an even seed. With an odd one all numbers of
    a gradient have one error, and one that goes with the value, as a norm makes them that
    subtracts a rounded mean and a rounded part of the value: sums of gradients, those of
    weights and of biases above all, then err by much more. With the last one a gradient
    that is nothing but errors is zero, where Lars and Lamb take another branch."""

    SEEDS = 5

    ERROR = 2.0**-24  # of a number that is rounded to float32

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)
        self._shared = seed % 2 == 1
        self._measuring = False
        self._at_work = False  # calls ops itself
        self._drops = seed == self.SEEDS - 1
        self._largest = []  # by the order of the hooks
        self._sizes = {}  # of gradients of parameters, by id

    def numbers(self, array):
        """What the run begins with."""
        error = self._rng.uniform(-self.ERROR, self.ERROR, array.shape)
        return (array * (1 + error)).astype("float32")

    def result(self, value):
        """What a line gave, rounded."""
        if value.dtype != paddle.float64:
            return value
        with self._working():
            array = value.numpy()
            near = array.astype("float32").astype("float64")
            factor = np.divide(near, array, np.ones_like(array), where=array != 0)
            return self._with_errors(value * paddle.to_tensor(factor))

    @contextlib.contextmanager
    def _working(self):
        self._at_work = True
        try:
            yield
        finally:
            self._at_work = False

    @contextlib.contextmanager
    def inside(self):
        """What runs in here rounds the results of all ops that it calls: a layer is one
        line and many of them."""
        originals = {name: getattr(_ops, name) for name in _core.ops}
        for name, function in originals.items():
            setattr(_ops, name, self._rounded(function))
        try:
            yield
        finally:
            for name, function in originals.items():
                setattr(_ops, name, function)

    def _rounded(self, function):
        def call(*arguments, **attributes):
            results = function(*arguments, **attributes)
            return results if self._at_work else self._results(results)

        return call

    def _results(self, results):
        if isinstance(results, (list, tuple)):
            return type(results)(self._results(r) for r in results)
        return self.result(results) if isinstance(results, paddle.Tensor) else results

    def use(self, value):
        """A value where a line reads it: what it gets from there is rounded before it is
        added to what it gets from elsewhere."""
        if value.dtype != paddle.float64 or value.stop_gradient:
            return value
        with self._working():
            return self._with_errors(paddle.assign(value))

    @contextlib.contextmanager
    def scales(self, parameters):
        """A backward pass in here only measures."""
        self._measuring = True
        yield
        self._measuring = False
        for p in parameters:
            self._sizes[id(p)] = _largest_of(p.grad)

    def finish(self, parameters):
        """What a backward pass gave the parameters, with errors there."""
        for p in parameters if self._drops else ():
            if _largest_of(p.grad) <= 16 * self.ERROR * self._sizes[id(p)]:
                p.clear_gradient()

    def _with_errors(self, value):
        if not value.stop_gradient:
            index = len(self._largest)
            self._largest.append(0.0)
            array = value.numpy() if self._shared else np.zeros(1)
            along = (
                (array - array.mean()) / (array.std() + 1e-9) if array.size else array
            )
            value.register_hook(lambda g: self._gradient(g, index, along))
        return value

    def _gradient(self, gradient, index, along):
        if gradient.size == 0:
            return gradient
        largest = max(float(paddle.max(paddle.abs(gradient))), self._largest[index])
        if self._measuring:
            self._largest[index] = largest
            signs = self._rng.integers(0, 2, list(gradient.shape)) * 2.0 - 1.0
            return gradient * paddle.to_tensor(signs)
        shape = [2] if self._shared else list(gradient.shape)
        error = self._rng.uniform(-self.ERROR, self.ERROR, shape)
        if self._shared:
            error = error[0] + error[1] * along
        return gradient + paddle.to_tensor(largest * np.asarray(error))


def movements(model, distance_of):
    """`distance_of(run, exact run)` for some runs with errors of float32: how far the
    model itself carries such errors, whatever the kernels are."""
    exact = run.eager(model, dtype="float64")
    found = []
    for seed in range(Rounding.SEEDS):
        trace = run.eager(model, dtype="float64", rounding=Rounding(seed))
        found.append(distance_of(trace, exact))
    return found


def sensitivity(model):
    """How far training goes astray by errors of float32. Where that is much, a plan that
    adds in another order is no wrong plan."""
    return max(movements(model, lambda a, b: largest_distance(a, b)[0]))


def rounds_otherwise(model):
    """Whether a program rounds otherwise than the eager step though both are right: the
    gradient of what a branch or a loop reads is added up inside of it first, and then to
    those from outside, where the eager step adds one by one. With two of them that is the
    same."""
    uses = collections.Counter(re.findall(r"\b[vwx]\d+\b", model.code()))
    for line in model.lines:
        if "static.nn." not in line.text:
            continue
        body = line.text
        if "while_loop" in body:  # what it begins with is read once
            body = body.rsplit("], [", 1)[0]
            turns = re.findall(r"\b[vwx]\d+\b", body)
            uses.update(turns + turns)
        if any(uses[name] > 2 for name in names_in(body)):
            return True
    return False


_VIEWS = re.compile(
    r"expand|broadcast|transpose|swapaxes|moveaxis|\.T\b|slice|split|chunk|unbind|unstack|"
    r"diagonal|flip|\["
)


def lies_otherwise(model):
    """Whether an op without a form over bare memory may be given a view, where a plan has a
    dense copy: how ATen rounds depends on how its operands lie. The gradient of a mean of
    float64 is such a view, too."""
    return model.dtype != "float32" or bool(_VIEWS.search(model.code()))


def check(model, modes=("plain", "unfused", "planned", "double", "slope")):
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
    for mode in ("plain", "unfused"):  # to the bit; plans call the forms of ops
        if mode not in modes:
            continue
        trace = attempt(
            mode,
            lambda planning=mode == "unfused": run.program(
                model, planning=planning, fusing=False
            ),
        )
        if trace is None:
            continue
        ops = trace.ops
        found = first_difference(trace, eager)
        lies = mode == "unfused" and lies_otherwise(model)
        if found and (lies or rounds_otherwise(model)):
            notes.append("program and eager equal by norm, not to the bit")
            apart, found = largest_distance(trace, eager)
            if apart <= max(PLANNED, 10 * sensitivity(model)):
                found = None
        if found:
            failures.append(Failure(mode, f"program and eager: {found}"))
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
    saturated = _SATURATED.search(f"{model.layer_code()}\n{model.code()}")
    smallest = SMALLEST_SATURATED if saturated else SMALLEST

    def apart(trace, name):
        gradient = double.gradients[name]
        scale = 0.01 * size / np.sqrt(max(gradient.size, 1))
        return distance(trace.gradients[name], gradient, max(scale, smallest))

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
    among each other: the loss has a slope there. A finding must show at every distance:
    where only the wide ones disagree, an edge of the loss lies between."""
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
        norm = np.linalg.norm(gradient)
        for far in (1e-4, 1e-5, 1e-6):
            slope, size, note = _slope(loss, name, direction, far)
            size = max(size, abs(wanted), norm)
            if note or abs(slope - wanted) <= SLOPE * size + 1e-8:
                break
        if note:
            notes.append(note)
        elif abs(slope - wanted) > SLOPE * size + 1e-8:
            text = f"gradient of {name}: {wanted:.9g}, but the slope is {slope:.9g}"
            failures.append(Failure("slope", text))
    return notes


def _slope(loss, name, direction, h):
    """(slope, what is small beside it, why there is none or "") from values of the loss up
    to `h` away."""
    steps = (0, h, -h, h / 2, -h / 2)
    at = {step: loss.at(name, step * direction) for step in steps}
    if not all(np.isfinite(v) for v in at.values()):
        return 0.0, 0.0, "no finite slope"
    wide = (at[h] - at[-h]) / (2 * h)
    narrow = (at[h / 2] - at[-h / 2]) / h
    right, left = (at[h / 2] - at[0]) / (h / 2), (at[0] - at[-h / 2]) / (h / 2)
    size = max(abs(narrow), 1e-2)
    if abs(wide - narrow) > 1e-4 * size or abs(right - left) > 1e-2 * size:
        return 0.0, size, "no slope"
    return (4 * narrow - wide) / 3, size, ""


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
