# SPDX-License-Identifier: Apache-2.0
"""Learning rates that a program computes from the number of steps it has run; in eager
mode those of fluid.dygraph."""

import inspect
import math

import paddle

from ... import _names, _ops
from ..._core import Variable
from ...framework.mode import in_dynamic_mode
from ...static.program import OpRole, default_main_program, role_guard
from ..dygraph import learning_rate_scheduler as _eager


def autoincreased_step_counter(counter_name=None, begin=1, step=1):
    """An int64 variable that is `begin` in the first run and grows by `step` in each
    further one."""
    from ...optimizer.program_update import persistable

    name = "@STEP_COUNTER@" if counter_name is None else counter_name
    block = default_main_program().global_block()
    if block.has_var(name):
        return block.var(name)
    counter = persistable(name, [1], begin - step, paddle.int64)
    block._prepend_op(
        "increment", {"X": counter}, {"Out": counter}, {"step": float(step)}
    )
    return counter


def _decay_step_counter(begin=0):
    """The number of the step as float32: `begin` in the first run."""
    with role_guard(OpRole.LRSched):
        counter = autoincreased_step_counter("@LR_DECAY_COUNTER@", begin, 1)
        return _ops.cast(counter, counter.dtype, paddle.float32)


def _in_program(begin=0):
    """For functions of the step: they become operations with the role of a schedule."""

    def decorate(function):
        def schedule(*args, **kwargs):
            if in_dynamic_mode():
                return function(None, *args, **kwargs)
            step = _decay_step_counter(begin)
            with role_guard(OpRole.LRSched):
                return function(step, *args, **kwargs)

        schedule.__name__ = schedule.__qualname__ = function.__name__
        schedule.__doc__ = function.__doc__
        shown = inspect.signature(function)
        schedule.__signature__ = shown.replace(
            parameters=[p for p in shown.parameters.values() if p.name != "step"]
        )
        return schedule

    return decorate


def _periods(step, decay_steps, staircase):
    periods = _ops.scale(step, 1.0 / decay_steps)
    if not staircase:
        return periods
    # Whole numbers, so that rounding does not put a step into the wrong period.
    return _ops.floor(_ops.scale(periods, 1.0, 1e-6))


def _constant(value):
    return paddle.full([1], float(value), "float32")


@_in_program(1)
def noam_decay(step, d_model, warmup_steps, learning_rate=1.0):
    """learning_rate * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)."""
    if step is None:
        return _eager.NoamDecay(d_model, warmup_steps, learning_rate=learning_rate)
    smaller = _ops.elementwise_min(
        _ops.pow(step, -0.5), _ops.scale(step, warmup_steps**-1.5)
    )
    if isinstance(learning_rate, Variable):
        smaller = _ops.elementwise_mul(smaller, learning_rate)
        learning_rate = 1.0
    return _ops.scale(smaller, learning_rate * d_model**-0.5)


@_in_program()
def exponential_decay(step, learning_rate, decay_steps, decay_rate, staircase=False):
    """learning_rate * decay_rate^(step / decay_steps)."""
    if step is None:
        return _eager.ExponentialDecay(
            learning_rate, decay_steps, decay_rate, staircase
        )
    periods = _periods(step, decay_steps, staircase)
    return _ops.scale(
        _ops.exp(_ops.scale(periods, math.log(decay_rate))), learning_rate
    )


@_in_program()
def natural_exp_decay(step, learning_rate, decay_steps, decay_rate, staircase=False):
    """learning_rate * exp(-decay_rate * step / decay_steps)."""
    if step is None:
        return _eager.NaturalExpDecay(learning_rate, decay_steps, decay_rate, staircase)
    periods = _periods(step, decay_steps, staircase)
    return _ops.scale(_ops.exp(_ops.scale(periods, -decay_rate)), learning_rate)


@_in_program()
def inverse_time_decay(step, learning_rate, decay_steps, decay_rate, staircase=False):
    """learning_rate / (1 + decay_rate * step / decay_steps)."""
    if step is None:
        return _eager.InverseTimeDecay(
            learning_rate, decay_steps, decay_rate, staircase
        )
    periods = _periods(step, decay_steps, staircase)
    return _ops.scale(
        _ops.reciprocal(_ops.scale(periods, decay_rate, 1.0)), learning_rate
    )


@_in_program()
def polynomial_decay(
    step, learning_rate, decay_steps, end_learning_rate=0.0001, power=1.0, cycle=False
):
    """From learning_rate to end_learning_rate in decay_steps; with `cycle` again and
    again, each time more slowly."""
    if step is None:
        return _eager.PolynomialDecay(
            learning_rate, decay_steps, end_learning_rate, power, cycle
        )
    if cycle:
        times = _ops.ceil(_ops.scale(step, 1.0 / decay_steps, -1e-7))
        times = _ops.elementwise_max(times, _constant(1.0))
        share = _ops.elementwise_div(step, _ops.scale(times, float(decay_steps)))
    else:
        least = _ops.elementwise_min(step, _constant(decay_steps))
        share = _ops.scale(least, 1.0 / decay_steps)
    left = _ops.pow(_ops.scale(share, -1.0, 1.0), float(power))
    return _ops.scale(left, learning_rate - end_learning_rate, end_learning_rate)


@_in_program()
def piecewise_decay(step, boundaries, values):
    """values[i] up to boundaries[i], the last one after all of them."""
    if len(values) - len(boundaries) != 1:
        raise ValueError(
            f"piecewise_decay: {len(boundaries)} boundaries need "
            f"{len(boundaries) + 1} values, not {len(values)}"
        )
    if step is None:
        return _eager.PiecewiseDecay(boundaries, values, 0)
    rate = _constant(values[0])
    for boundary, before, after in zip(boundaries, values, values[1:]):
        past = _ops.greater_equal(step, _constant(boundary))
        past = _ops.cast(past, past.dtype, paddle.float32)
        rate = _ops.elementwise_add(rate, _ops.scale(past, float(after - before)))
    return rate


@_in_program()
def cosine_decay(step, learning_rate, step_each_epoch, epochs):
    """learning_rate * (cos(epoch * pi / epochs) + 1) / 2."""
    if step is None:
        return _eager.CosineDecay(learning_rate, step_each_epoch, epochs)
    epoch = _periods(step, step_each_epoch, True)
    wave = _ops.cos(_ops.scale(epoch, math.pi / epochs))
    return _ops.scale(wave, 0.5 * learning_rate, 0.5 * learning_rate)


@_in_program()
def linear_lr_warmup(step, learning_rate, warmup_steps, start_lr, end_lr):
    """From start_lr to end_lr in a straight line, and then learning_rate, a number or
    another schedule."""
    if step is None:
        return _eager.LinearLrWarmup(learning_rate, warmup_steps, start_lr, end_lr)
    if not isinstance(learning_rate, Variable):
        learning_rate = _constant(learning_rate)
    rising = _ops.scale(step, (end_lr - start_lr) / warmup_steps, float(start_lr))
    warm = _ops.less_than(step, _constant(warmup_steps))
    return _ops.where(warm, rising, learning_rate)


__all__ = _names.gathered(
    globals(), hidden="OpRole Variable default_main_program in_dynamic_mode role_guard"
)
