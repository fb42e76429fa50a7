# SPDX-License-Identifier: Apache-2.0
"""Every scheduler, value by value, against formulas written here on their own."""

import math

import numpy as np
import paddle
import pytest
from paddle.optimizer import lr

# Rates are doubles: nothing but the rounding of another order of operations.
CLOSE = dict(rel=1e-12, abs=1e-15)


def trace(scheduler, steps):
    rates = []
    for _ in range(steps):
        rates.append(scheduler())
        scheduler.step()
    return rates


def lerp(a, b, t):
    return a * (1 - t) + b * t


def half_cosine(a, b, t):
    return b + (a - b) * math.cos(math.pi * t / 2) ** 2


CASES = {
    "noam": (
        lambda: lr.NoamDecay(d_model=64, warmup_steps=5, learning_rate=2.0),
        lambda e: 2 / 8 * (e / 5**1.5 if e <= 5 else 1 / math.sqrt(e)),
    ),
    "natural_exp": (
        lambda: lr.NaturalExpDecay(0.5, gamma=0.1),
        lambda e: 0.5 / math.e ** (0.1 * e),
    ),
    "inverse_time": (
        lambda: lr.InverseTimeDecay(0.5, gamma=0.1),
        lambda e: 5 / (10 + e),
    ),
    "polynomial": (
        lambda: lr.PolynomialDecay(0.5, decay_steps=5, end_lr=0.1, power=2.0),
        lambda e: 0.1 + 0.4 * (max(5 - e, 0) / 5) ** 2,
    ),
    "exponential": (
        lambda: lr.ExponentialDecay(0.5, gamma=0.9),
        lambda e: 0.5 * np.prod([0.9] * e),
    ),
    "step": (
        lambda: lr.StepDecay(0.5, step_size=3, gamma=0.2),
        lambda e: [0.5, 0.1, 0.02, 0.004, 0.0008][e // 3],
    ),
    "lambda": (
        lambda: lr.LambdaDecay(0.5, lambda epoch: 1 / (epoch + 1)),
        lambda e: 0.5 / (e + 1),
    ),
    "multiplicative": (
        lambda: lr.MultiplicativeDecay(0.5, lambda epoch: epoch / (epoch + 1)),
        lambda e: 0.5 / (e + 1),
    ),
    "cosine": (
        lambda: lr.CosineAnnealingDecay(0.5, T_max=4, eta_min=0.1),
        lambda e: half_cosine(0.5, 0.1, e / 4),
    ),
    "linear": (
        lambda: lr.LinearLR(0.6, total_steps=4, start_factor=0.5, end_factor=1.0),
        lambda e: lerp(0.3, 0.6, min(e, 4) / 4),
    ),
    "warmup": (
        lambda: lr.LinearWarmup(0.7, warmup_steps=4, start_lr=0.1, end_lr=0.5),
        lambda e: lerp(0.1, 0.5, e / 4) if e < 4 else 0.7,
    ),
    "warmup_then_scheduler": (
        lambda: lr.LinearWarmup(lr.ExponentialDecay(0.5, 0.5), 3, 0.0, 0.5),
        lambda e: e / 6 if e < 3 else 0.5 ** (e - 2),
    ),
    "cyclic": (
        lambda: lr.CyclicLR(0.1, 0.5, step_size_up=4),
        lambda e: 0.1 + 0.4 * [0, 0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25][e % 8],
    ),
    "cyclic_uneven": (
        lambda: lr.CyclicLR(0.1, 0.5, step_size_up=3, step_size_down=2),
        lambda e: 0.1 + 0.4 * [0, 1 / 3, 2 / 3, 1, 1 / 2][e % 5],
    ),
    "cyclic_halving": (
        lambda: lr.CyclicLR(0.1, 0.5, step_size_up=2, mode="triangular2"),
        lambda e: 0.1 + 0.4 * [0, 0.5, 1, 0.5][e % 4] * [1, 0.5, 0.25][e // 4],
    ),
    "cyclic_exponential": (
        lambda: lr.CyclicLR(0.1, 0.5, 2, mode="exp_range", exp_gamma=0.9),
        lambda e: 0.1 + 0.4 * [0, 0.5, 1, 0.5][e % 4] * 0.9**e,
    ),
    "cyclic_scaled_by_cycle": (
        lambda: lr.CyclicLR(0.1, 0.5, 2, scale_fn=lambda cycle: 1 / cycle),
        lambda e: 0.1 + 0.4 * [0, 0.5, 1, 0.5][e % 4] / (e // 4 + 1),
    ),
    "cyclic_scaled_by_iteration": (
        lambda: lr.CyclicLR(
            0.1, 0.5, 2, scale_fn=lambda i: 1 / (i + 1), scale_mode="iterations"
        ),
        lambda e: 0.1 + 0.4 * [0, 0.5, 1, 0.5][e % 4] / (e + 1),
    ),
    "one_cycle": (
        lambda: lr.OneCycleLR(1.0, total_steps=12, divide_factor=10.0, phase_pct=0.25),
        lambda e: (
            half_cosine(0.1, 1.0, e / 2)
            if e <= 2
            else half_cosine(1.0, 1e-4, (e - 2) / 9)
        ),
    ),
    "one_cycle_three_phases": (
        lambda: lr.OneCycleLR(
            1.0,
            total_steps=12,
            divide_factor=10.0,
            end_learning_rate=0.0,
            phase_pct=0.25,
            anneal_strategy="linear",
            three_phase=True,
        ),
        lambda e: [0.1, 0.55, 1, 0.55, 0.1][e] if e <= 4 else 0.1 * (11 - e) / 7,
    ),
    "warm_restarts": (
        lambda: lr.CosineAnnealingWarmRestarts(0.5, T_0=4, eta_min=0.1),
        lambda e: half_cosine(0.5, 0.1, e % 4 / 4),
    ),
    "warm_restarts_growing": (
        lambda: lr.CosineAnnealingWarmRestarts(0.5, T_0=2, T_mult=2),
        lambda e: half_cosine(
            0.5, 0.0, [0, 1 / 2, 0, 1 / 4, 1 / 2, 3 / 4, 0, 1 / 8, 2 / 8, 3 / 8][e]
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_step_has_the_rate_of_the_formula(name):
    make, formula = CASES[name]
    assert trace(make(), 10) == pytest.approx([formula(e) for e in range(10)], **CLOSE)


@pytest.mark.parametrize("name", CASES)
def test_step_goes_to_a_given_epoch(name):
    make, formula = CASES[name]
    scheduler = make()
    for epoch in (7, 0, 3):
        scheduler.step(epoch)
        assert scheduler.last_epoch == epoch
        assert scheduler() == pytest.approx(formula(epoch), **CLOSE)
        assert scheduler.get_lr() == scheduler()


@pytest.mark.parametrize("name", CASES)
def test_state_continues_in_another_scheduler(name):
    make, formula = CASES[name]
    first, second = make(), make()
    for _ in range(4):
        first.step()
    second.set_state_dict(first.state_dict())
    assert second.last_epoch == 4
    assert second() == first()
    second.step()
    assert second() == pytest.approx(formula(5), **CLOSE)


def test_piecewise_decay_holds_its_values_up_to_the_boundaries():
    scheduler = lr.PiecewiseDecay([2, 5], [0.3, 0.2, 0.1])
    assert trace(scheduler, 7) == [0.3, 0.3, 0.2, 0.2, 0.2, 0.1, 0.1]


def test_multi_step_decay_multiplies_at_milestones():
    scheduler = lr.MultiStepDecay(1.0, [2, 3, 6], gamma=0.5)
    assert trace(scheduler, 8) == [1, 1, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125]


def test_polynomial_decay_in_cycles_stretches_its_period():
    scheduler = lr.PolynomialDecay(1.0, decay_steps=2, end_lr=0.0, cycle=True)
    assert trace(scheduler, 7) == pytest.approx(
        [1, 1 / 2, 0, 1 / 4, 0, 1 / 6, 0], **CLOSE
    )


def test_one_cycle_ends():
    scheduler = lr.OneCycleLR(1.0, total_steps=3)
    for _ in range(3):
        scheduler.step()
    with pytest.raises(ValueError, match="step 4 of a cycle of 3"):
        scheduler.step()


class TestReduceOnPlateau:
    def follow(self, scheduler, metrics):
        rates = []
        for metric in metrics:
            scheduler.step(metric)
            rates.append(scheduler())
        return rates

    def test_waits_for_patience_and_cools_down(self):
        scheduler = lr.ReduceOnPlateau(
            1.0, factor=0.5, patience=1, cooldown=2, threshold=0.0
        )
        #          best  bad bad   cooling    bad  bad
        metrics = [5, 4, 4, 4.0, 9.0, 9.0, 4.0, 4.0, 3]
        assert self.follow(scheduler, metrics) == [
            *[1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]
        ]

    def test_counts_only_what_passes_the_threshold(self):
        relative = lr.ReduceOnPlateau(1.0, factor=0.5, patience=0, threshold=0.1)
        assert self.follow(relative, [10, 9.5, 8]) == [1, 0.5, 0.5]
        absolute = lr.ReduceOnPlateau(
            1.0, factor=0.5, patience=0, threshold=1.0, threshold_mode="abs"
        )
        assert self.follow(absolute, [10, 9.5, 8]) == [1, 0.5, 0.5]

    def test_looks_for_the_largest_in_mode_max(self):
        scheduler = lr.ReduceOnPlateau(
            1.0, mode="max", factor=0.5, patience=0, threshold=0.0
        )
        assert self.follow(scheduler, [1, 2, 1, 3]) == [1, 1, 0.5, 0.5]

    def test_stops_at_min_lr_and_at_tiny_changes(self):
        scheduler = lr.ReduceOnPlateau(
            1.0, factor=0.5, patience=0, min_lr=0.3, threshold=0.0
        )
        assert self.follow(scheduler, [1, 1, 1, 1]) == [1, 0.5, 0.3, 0.3]
        tiny = lr.ReduceOnPlateau(1.0, factor=0.5, patience=0, epsilon=0.6)
        assert self.follow(tiny, [1, 1]) == [1, 1]

    def test_takes_arrays_and_tensors_of_one_element(self):
        scheduler = lr.ReduceOnPlateau(1.0, factor=0.5, patience=0)
        scheduler.step(np.array([2.0]))
        scheduler.step(paddle.to_tensor([3.0]))
        assert scheduler() == 0.5
        assert scheduler.best == 2.0
        with pytest.raises(TypeError, match="must be a number"):
            scheduler.step("2.0")
        with pytest.raises(ValueError, match="one number"):
            scheduler.step(np.zeros(2))

    def test_a_nan_is_never_the_best(self):
        scheduler = lr.ReduceOnPlateau(1.0, factor=0.5, patience=0)
        assert self.follow(scheduler, [float("nan"), 2.0, 1.0]) == [0.5, 0.5, 0.5]
        assert scheduler.best == 1.0

    def test_state_continues(self):
        first = lr.ReduceOnPlateau(1.0, factor=0.5, patience=1)
        self.follow(first, [3, 3])
        second = lr.ReduceOnPlateau(1.0, factor=0.5, patience=1)
        second.set_state_dict(first.state_dict())
        assert self.follow(second, [3]) == [0.5]
        assert second.last_epoch == 3

    def test_refuses_unknown_modes(self):
        with pytest.raises(ValueError, match="neither min nor max"):
            lr.ReduceOnPlateau(1.0, mode="middle")
        with pytest.raises(ValueError, match="neither rel nor abs"):
            lr.ReduceOnPlateau(1.0, threshold_mode="middle")
        with pytest.raises(ValueError, match="below 1.0"):
            lr.ReduceOnPlateau(1.0, factor=1.0)


def test_last_epoch_begins_later():
    scheduler = lr.StepDecay(0.5, step_size=3, last_epoch=4)
    assert scheduler.last_epoch == 5
    assert scheduler() == pytest.approx(0.05, **CLOSE)


def test_verbose_prints_each_rate(capsys):
    scheduler = lr.StepDecay(0.5, step_size=1, gamma=0.5, verbose=True)
    scheduler.step()
    assert capsys.readouterr().out == (
        "Epoch 0: StepDecay set learning rate to 0.5.\n"
        "Epoch 1: StepDecay set learning rate to 0.25.\n"
    )


def test_a_subclass_gives_its_own_rate_and_state():
    class Alternating(lr.LRScheduler):
        def __init__(self):
            self.flips = 0
            super().__init__(1.0)

        def get_lr(self):
            self.flips += 1
            return self.base_lr * (-1) ** self.last_epoch

        def state_keys(self):
            self.keys = ["last_epoch", "last_lr", "flips"]

    scheduler = Alternating()
    assert trace(scheduler, 3) == [1.0, -1.0, 1.0]
    assert scheduler.state_dict() == {"last_epoch": 3, "last_lr": -1.0, "flips": 4}


def test_a_warmup_carries_the_state_of_the_scheduler_behind_it():
    def make():
        return lr.LinearWarmup(lr.StepDecay(0.5, 2, gamma=0.5), 2, 0.1, 0.5)

    scheduler = make()
    for _ in range(5):
        scheduler.step()
    state = scheduler.state_dict()
    assert state["LinearWarmup_LR"] == {"last_epoch": 3, "last_lr": 0.25}
    other = make()
    other.set_state_dict(state)
    assert other.learning_rate.last_epoch == 3


def test_state_that_lacks_a_key_is_refused_and_a_strange_one_reported():
    scheduler = lr.StepDecay(0.5, 2)
    with pytest.raises(RuntimeError, match="no 'last_lr' in the state"):
        scheduler.set_state_dict({"last_epoch": 3})
    with pytest.warns(UserWarning, match="num_bad_epochs"):
        scheduler.set_state_dict({"last_epoch": 3, "last_lr": 1.0, "num_bad_epochs": 1})


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: lr.StepDecay("0.1", 3), TypeError, "must be a number"),
        (lambda: lr.StepDecay(-0.1, 3), ValueError, "invalid learning rate"),
        (lambda: lr.StepDecay(0.1, "3"), TypeError, "step_size must be an int"),
        (lambda: lr.StepDecay(0.1, 0), ValueError, "step_size must be above 0"),
        (lambda: lr.StepDecay(0.1, 3, gamma=2.0), ValueError, "below 1.0"),
        (lambda: lr.MultiStepDecay(0.1, 3), TypeError, "list or a tuple"),
        (lambda: lr.MultiStepDecay(0.1, [5, 2]), ValueError, "must rise"),
        (lambda: lr.PiecewiseDecay([1], [0.1]), ValueError, "need 2 values"),
        (lambda: lr.PiecewiseDecay([], [0.1]), ValueError, "must not be empty"),
        (lambda: lr.NoamDecay(0, 1), ValueError, "d_model"),
        (lambda: lr.PolynomialDecay(0.1, 0), ValueError, "decay_steps"),
        (lambda: lr.PolynomialDecay(0.1, 2, power=0), ValueError, "power"),
        (lambda: lr.LinearWarmup("a", 2, 0.0, 1.0), TypeError, "or a scheduler"),
        (lambda: lr.LinearWarmup(0.1, 2, 1.0, 0.5), ValueError, "above start_lr"),
        (lambda: lr.LambdaDecay(0.1, 3), TypeError, "must be a function"),
        (lambda: lr.MultiplicativeDecay(0.1, 3), TypeError, "must be a function"),
        (lambda: lr.CosineAnnealingDecay(0.1, 2.5), TypeError, "T_max"),
        (lambda: lr.CosineAnnealingWarmRestarts(0.1, 0), ValueError, "T_0"),
        (lambda: lr.OneCycleLR(1.0, 0), ValueError, "total_steps"),
        (lambda: lr.OneCycleLR(1.0, 9, phase_pct=2.0), ValueError, "phase_pct"),
        (lambda: lr.OneCycleLR(1.0, 9, anneal_strategy="x"), ValueError, "neither"),
        (lambda: lr.CyclicLR(0.1, 0.5, 0), ValueError, "step_size_up"),
        (lambda: lr.CyclicLR(0.1, 0.5, 2, mode="x"), ValueError, "mode"),
        (lambda: lr.LinearLR(0.1, 2, start_factor=0.0), ValueError, "start_factor"),
        (lambda: lr.LRScheduler(0.1), NotImplementedError, "get_lr"),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
