# SPDX-License-Identifier: Apache-2.0
"""Learning rates that fluid's optimizers move on at each `minimize`."""

import math

from ...optimizer import lr as _lr


def _moved_by_minimize(scheduler, step):
    if step != 1:
        raise ValueError(f"a learning rate that moves by {step} steps is not supported")
    scheduler.moved_by_minimize = True
    return scheduler


def _periods(step, decay_steps, staircase):
    return step // decay_steps if staircase else step / decay_steps


def PiecewiseDecay(boundaries, values, begin, step=1, dtype="float32"):
    return _moved_by_minimize(_lr.PiecewiseDecay(boundaries, values, begin - 1), step)


def ExponentialDecay(
    learning_rate,
    decay_steps,
    decay_rate,
    staircase=False,
    begin=0,
    step=1,
    dtype="float32",
):
    def factor(n):
        return decay_rate ** _periods(n, decay_steps, staircase)

    return _moved_by_minimize(_lr.LambdaDecay(learning_rate, factor, begin - 1), step)


def NaturalExpDecay(
    learning_rate,
    decay_steps,
    decay_rate,
    staircase=False,
    begin=0,
    step=1,
    dtype="float32",
):
    def factor(n):
        return math.exp(-decay_rate * _periods(n, decay_steps, staircase))

    return _moved_by_minimize(_lr.LambdaDecay(learning_rate, factor, begin - 1), step)


def InverseTimeDecay(
    learning_rate,
    decay_steps,
    decay_rate,
    staircase=False,
    begin=0,
    step=1,
    dtype="float32",
):
    def factor(n):
        return 1 / (1 + decay_rate * _periods(n, decay_steps, staircase))

    return _moved_by_minimize(_lr.LambdaDecay(learning_rate, factor, begin - 1), step)


def PolynomialDecay(
    learning_rate,
    decay_steps,
    end_learning_rate=0.0001,
    power=1.0,
    cycle=False,
    begin=0,
    step=1,
    dtype="float32",
):
    scheduler = _lr.PolynomialDecay(
        learning_rate, decay_steps, end_learning_rate, power, cycle, begin - 1
    )
    return _moved_by_minimize(scheduler, step)


def CosineDecay(
    learning_rate, step_each_epoch, epochs, begin=0, step=1, dtype="float32"
):
    def factor(n):
        return 0.5 * (math.cos(n // step_each_epoch * math.pi / epochs) + 1)

    return _moved_by_minimize(_lr.LambdaDecay(learning_rate, factor, begin - 1), step)


def NoamDecay(
    d_model, warmup_steps, begin=1, step=1, dtype="float32", learning_rate=1.0
):
    scheduler = _lr.NoamDecay(d_model, warmup_steps, learning_rate, begin - 1)
    return _moved_by_minimize(scheduler, step)


def LinearLrWarmup(
    learning_rate, warmup_steps, start_lr, end_lr, begin=1, step=1, dtype="float32"
):
    scheduler = _lr.LinearWarmup(
        learning_rate, warmup_steps, start_lr, end_lr, begin - 1
    )
    return _moved_by_minimize(scheduler, step)
