# SPDX-License-Identifier: Apache-2.0
"""Draws and checks models in one process each, and explains what fails."""

import dataclasses
import re
import traceback

import paddle
import run
from check import Failure, Result, check
from isolated import Ended, each, one
from known import known
from make import focus, make
from script import script
from shrink import shrink
from value import DrawError


def examine(number):
    """The result for one number; runs in a process of its own."""
    paddle._core.check_shape_rules(True)
    try:
        model = make(number)
    except DrawError as error:
        return Result([Failure("draw", str(error))])
    except Exception:
        return Result([Failure("draw", traceback.format_exc())])
    return _without_known(model, check(model))


def _without_known(model, result):
    """Failures that a known defect explains become notes."""
    names = [known(model, failure.mode, failure.text) for failure in result.failures]
    failures = [f for f, name in zip(result.failures, names) if name is None]
    notes = tuple(f"known defect: {name}" for name in names if name)
    return dataclasses.replace(result, failures=failures, notes=result.notes + notes)


def examine_all(numbers, seconds=60):
    """Yields (number, result); a crash or a hang is a failure too."""
    for number, result in each(examine, numbers, seconds):
        if isinstance(result, Ended):
            result = Result([Failure("crash", str(result))])
            model = one(make, number)
            if not isinstance(model, Ended):
                result = _without_known(model, result)
        yield number, result


def _kind(failure):
    """The mode and, of an error, its type and its first words."""
    text = failure.text.split("\n")[0]
    if re.match(r"\w+(Error|Exception): ", text):
        return f"{failure.mode}: {re.sub(r'[^A-Za-z: ]', '', text)[:40]}"
    return failure.mode


def _kinds(model):
    paddle._core.check_shape_rules(True)
    return [_kind(failure) for failure in check(model).failures]


def _shapes(model):
    """(shape, whether floating) by name, as an eager run has them."""
    paddle.disable_static()
    env = run.environment(model.dtype)
    made = run.make_parameters(model, env, model.dtype)
    for name, array in run.first_values(model, made, model.dtype).items():
        made[name].set_value(array)
    for name, array in run.feed_arrays(model, 0).items():
        env[name] = paddle.to_tensor(array)
    with paddle.no_grad():
        exec(model.code(), env)
    shapes = {}
    for name, value in env.items():
        if isinstance(value, paddle.Tensor):
            shapes[name] = (tuple(value.shape), value.numpy().dtype.kind == "f")
    return shapes


def explain(number, result, seconds=60):
    """A finding as text: what failed, and a script of a small model that does."""
    failure = result.failures[0]
    title = f"model {number} ({focus(number)}), {failure.mode}: {failure.text}"
    if failure.mode == "draw":
        return title
    model = one(make, number)
    if isinstance(model, Ended):
        return f"{title}\n(the drawing itself: {model})"
    shapes = one(_shapes, model)
    shapes = {} if isinstance(shapes, Ended) else shapes
    small = shrink(model, _kind(failure), _kinds, shapes, seconds)
    if failure.mode == "crash":
        text = failure.text
    else:
        again = one(_check_again, small)
        text = next(
            (f.text for f in getattr(again, "failures", []) if f.mode == failure.mode),
            failure.text,
        )
    title = f"model {number} ({focus(number)}), {failure.mode}: {text}"
    return script(dataclasses.replace(small), title)


def _check_again(model):
    paddle._core.check_shape_rules(True)
    return check(model)
