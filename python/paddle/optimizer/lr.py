# SPDX-License-Identifier: Apache-2.0
"""Learning rates that change with time.

A scheduler counts in `last_epoch`; `step()` moves it on by one, `step(epoch)` sets it.
Whether a step of the scheduler is a batch or an epoch is up to the caller. The rate is a
Python float, a double, everywhere.
"""

import math
import numbers
import warnings

from .. import _names


def _check_count(owner, name, value):
    """A number of steps: an int above zero."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(
            f"{owner}: {name} must be an int, but got {type(value).__name__}"
        )
    if value <= 0:
        raise ValueError(f"{owner}: {name} must be above 0, but got {value}")


def _check_function(owner, value):
    if not callable(value):
        raise TypeError(
            f"{owner}: lr_lambda must be a function, but got {type(value).__name__}"
        )


def _check_shrinking(owner, name, value):
    if value >= 1.0:
        raise ValueError(
            f"{owner}: {name} multiplies the rate and must be below 1.0, got {value}"
        )


class LRScheduler:
    """Base of all. A subclass gives `get_lr()`, from `self.last_epoch` and
    `self.base_lr`; what else it wants in `state_dict()` it names in `state_keys()`."""

    def __init__(self, learning_rate=0.1, last_epoch=-1, verbose=False):
        if not isinstance(learning_rate, numbers.Real):
            raise TypeError(
                f"{type(self).__name__}: learning_rate must be a number, but got "
                f"{type(learning_rate).__name__}"
            )
        if learning_rate < 0:
            raise ValueError(
                f"{type(self).__name__}: invalid learning rate {learning_rate}"
            )
        self.base_lr = float(learning_rate)
        self.last_lr = float(learning_rate)
        self.last_epoch = last_epoch
        self.verbose = verbose
        self._var_name = None
        self.step()

    def __call__(self):
        """The rate of the current step."""
        return self.last_lr

    def step(self, epoch=None):
        """Goes on to the next epoch, or to the given one, and works out its rate."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self.last_lr = self.get_lr()
        if self.verbose:
            print(
                f"Epoch {self.last_epoch}: {type(self).__name__} set learning rate to "
                f"{self.last_lr}."
            )

    def get_lr(self):
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def state_keys(self):
        """Sets `self.keys`, the attributes that `state_dict()` holds."""
        self.keys = ["last_epoch", "last_lr"]

    def state_dict(self):
        self.state_keys()
        state = {}
        for key in self.keys:
            value = getattr(self, key)
            state[key] = value.item() if hasattr(value, "item") else value
        return state

    def set_state_dict(self, state_dict):
        """Takes over what `state_dict()` gave, and with it the current rate."""
        self.state_keys()
        for key in self.keys:
            if key not in state_dict:
                raise RuntimeError(
                    f"{type(self).__name__}: no '{key}' in the state, which has "
                    f"{sorted(state_dict)}"
                )
            setattr(self, key, state_dict[key])
        unknown = sorted(set(state_dict) - set(self.keys) - {"LinearWarmup_LR"})
        if unknown:
            warnings.warn(
                f"{type(self).__name__}: the state holds {unknown}, which it does not "
                "know; was it saved by another scheduler?",
                stacklevel=2,
            )

    set_dict = set_state_dict


class NoamDecay(LRScheduler):
    """learning_rate * d_model^-0.5 * min(epoch^-0.5, epoch * warmup_steps^-1.5)"""

    def __init__(
        self, d_model, warmup_steps, learning_rate=1.0, last_epoch=-1, verbose=False
    ):
        if d_model <= 0:
            raise ValueError(f"NoamDecay: d_model must be above 0, but got {d_model}")
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        rising = self.warmup_steps**-1.5 * self.last_epoch
        falling = 1.0 if self.last_epoch == 0 else self.last_epoch**-0.5
        return self.base_lr * self.d_model**-0.5 * min(falling, rising)


class PiecewiseDecay(LRScheduler):
    """values[i] up to boundaries[i], and the last value from there on."""

    def __init__(self, boundaries, values, last_epoch=-1, verbose=False):
        if len(boundaries) == 0:
            raise ValueError("PiecewiseDecay: boundaries must not be empty")
        if len(values) != len(boundaries) + 1:
            raise ValueError(
                f"PiecewiseDecay: {len(boundaries)} boundaries need "
                f"{len(boundaries) + 1} values, but got {len(values)}"
            )
        self.boundaries = list(boundaries)
        self.values = list(values)
        super().__init__(last_epoch=last_epoch, verbose=verbose)

    def get_lr(self):
        for boundary, value in zip(self.boundaries, self.values):
            if self.last_epoch < boundary:
                return value
        return self.values[-1]


class NaturalExpDecay(LRScheduler):
    """learning_rate * e^(-gamma * epoch)"""

    def __init__(self, learning_rate, gamma, last_epoch=-1, verbose=False):
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        return self.base_lr * math.exp(-self.gamma * self.last_epoch)


class InverseTimeDecay(LRScheduler):
    """learning_rate / (1 + gamma * epoch)"""

    def __init__(self, learning_rate, gamma, last_epoch=-1, verbose=False):
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        return self.base_lr / (1 + self.gamma * self.last_epoch)


class PolynomialDecay(LRScheduler):
    """From learning_rate to end_lr over decay_steps, by (1 - epoch / steps)^power. With
    `cycle`, decay_steps doubles, trebles... each time it is reached."""

    def __init__(
        self,
        learning_rate,
        decay_steps,
        end_lr=0.0001,
        power=1.0,
        cycle=False,
        last_epoch=-1,
        verbose=False,
    ):
        _check_count("PolynomialDecay", "decay_steps", decay_steps)
        if power <= 0.0:
            raise ValueError(f"PolynomialDecay: power must be above 0, got {power}")
        self.decay_steps = decay_steps
        self.end_lr = end_lr
        self.power = power
        self.cycle = cycle
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        steps = self.decay_steps
        epoch = self.last_epoch
        if self.cycle:
            steps *= max(1, math.ceil(epoch / steps))
        else:
            epoch = min(epoch, steps)
        left = (1 - epoch / steps) ** self.power
        return (self.base_lr - self.end_lr) * left + self.end_lr


class LinearWarmup(LRScheduler):
    """From start_lr to end_lr in warmup_steps; from there on `learning_rate`, a number
    or a scheduler that begins to count then."""

    def __init__(
        self,
        learning_rate,
        warmup_steps,
        start_lr,
        end_lr,
        last_epoch=-1,
        verbose=False,
    ):
        if not isinstance(learning_rate, (numbers.Real, LRScheduler)):
            raise TypeError(
                "LinearWarmup: learning_rate must be a number or a scheduler, but got "
                f"{type(learning_rate).__name__}"
            )
        _check_count("LinearWarmup", "warmup_steps", warmup_steps)
        if end_lr <= start_lr:
            raise ValueError(
                f"LinearWarmup: end_lr {end_lr} must be above start_lr {start_lr}"
            )
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.start_lr = start_lr
        self.end_lr = end_lr
        super().__init__(start_lr, last_epoch, verbose)

    def get_lr(self):
        if self.last_epoch < self.warmup_steps:
            done = self.last_epoch / self.warmup_steps
            return (self.end_lr - self.start_lr) * done + self.start_lr
        if isinstance(self.learning_rate, LRScheduler):
            self.learning_rate.step(self.last_epoch - self.warmup_steps)
            return self.learning_rate()
        return float(self.learning_rate)

    def state_dict(self):
        state = super().state_dict()
        if isinstance(self.learning_rate, LRScheduler):
            state["LinearWarmup_LR"] = self.learning_rate.state_dict()
        return state

    def set_state_dict(self, state_dict):
        super().set_state_dict(state_dict)
        if isinstance(self.learning_rate, LRScheduler):
            self.learning_rate.set_state_dict(state_dict["LinearWarmup_LR"])

    set_dict = set_state_dict


class ExponentialDecay(LRScheduler):
    """learning_rate * gamma^epoch"""

    def __init__(self, learning_rate, gamma, last_epoch=-1, verbose=False):
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        return self.base_lr * self.gamma**self.last_epoch


class MultiStepDecay(LRScheduler):
    """Multiplied by gamma at each milestone."""

    def __init__(
        self, learning_rate, milestones, gamma=0.1, last_epoch=-1, verbose=False
    ):
        if not isinstance(milestones, (list, tuple)):
            raise TypeError(
                "MultiStepDecay: milestones must be a list or a tuple, but got "
                f"{type(milestones).__name__}"
            )
        if any(a >= b for a, b in zip(milestones, milestones[1:])):
            raise ValueError(f"MultiStepDecay: milestones must rise, got {milestones}")
        _check_shrinking("MultiStepDecay", "gamma", gamma)
        self.milestones = milestones
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        passed = sum(1 for m in self.milestones if self.last_epoch >= m)
        return self.base_lr * self.gamma**passed


class StepDecay(LRScheduler):
    """Multiplied by gamma every step_size epochs."""

    def __init__(
        self, learning_rate, step_size, gamma=0.1, last_epoch=-1, verbose=False
    ):
        _check_count("StepDecay", "step_size", step_size)
        _check_shrinking("StepDecay", "gamma", gamma)
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        return self.base_lr * self.gamma ** (self.last_epoch // self.step_size)


class LambdaDecay(LRScheduler):
    """learning_rate * lr_lambda(epoch)"""

    def __init__(self, learning_rate, lr_lambda, last_epoch=-1, verbose=False):
        _check_function("LambdaDecay", lr_lambda)
        self.lr_lambda = lr_lambda
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        return self.base_lr * self.lr_lambda(self.last_epoch)


class MultiplicativeDecay(LRScheduler):
    """learning_rate * lr_lambda(1) * ... * lr_lambda(epoch)"""

    def __init__(self, learning_rate, lr_lambda, last_epoch=-1, verbose=False):
        _check_function("MultiplicativeDecay", lr_lambda)
        self.lr_lambda = lr_lambda
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        rate = self.base_lr
        for epoch in range(1, self.last_epoch + 1):
            rate *= self.lr_lambda(epoch)
        return rate


class ReduceOnPlateau(LRScheduler):
    """Multiplied by factor when the metric that `step(metric)` is told has not improved
    for more than `patience` steps; then `cooldown` steps pass unjudged."""

    def __init__(
        self,
        learning_rate,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0,
        epsilon=1e-8,
        verbose=False,
    ):
        mode = mode.lower()
        threshold_mode = threshold_mode.lower()
        if mode not in ("min", "max"):
            raise ValueError(f"ReduceOnPlateau: mode '{mode}' is neither min nor max")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"ReduceOnPlateau: threshold_mode '{threshold_mode}' is neither rel "
                "nor abs"
            )
        _check_shrinking("ReduceOnPlateau", "factor", factor)
        if not isinstance(learning_rate, numbers.Real):
            raise TypeError(
                "ReduceOnPlateau: learning_rate must be a number, but got "
                f"{type(learning_rate).__name__}"
            )
        # Not the base's constructor: that would take a first step, without a metric.
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.epsilon = epsilon
        self.verbose = verbose
        self.base_lr = float(learning_rate)
        self.last_lr = float(learning_rate)
        self.last_epoch = 0
        self.cooldown_counter = 0
        self.best = None
        self.num_bad_epochs = 0
        self._var_name = None

    def state_keys(self):
        self.keys = [
            "cooldown_counter",
            "best",
            "num_bad_epochs",
            "last_epoch",
            "last_lr",
        ]

    def step(self, metrics, epoch=None):
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        metric = self._number(metrics)
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            return
        if self._is_better(metric):
            self.best = metric
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
            self._reduce()

    def get_lr(self):
        return self.last_lr

    def _number(self, metrics):
        if isinstance(metrics, numbers.Real):
            return metrics
        if not hasattr(metrics, "item"):
            raise TypeError(
                "ReduceOnPlateau: metrics must be a number, an array or a Tensor, but "
                f"got {type(metrics).__name__}"
            )
        if math.prod(metrics.shape) != 1:
            raise ValueError(
                "ReduceOnPlateau: metrics must hold one number, but its shape is "
                f"{list(metrics.shape)}"
            )
        return metrics.item()

    def _is_better(self, metric):
        if self.best is None:
            return not math.isnan(metric)
        # How far the best must be passed.
        margin = self.threshold
        if self.threshold_mode == "rel":
            margin *= self.best
        if self.mode == "min":
            return metric < self.best - margin
        return metric > self.best + margin

    def _reduce(self):
        rate = max(self.last_lr * self.factor, self.min_lr)
        if self.last_lr - rate <= self.epsilon:
            return
        self.last_lr = rate
        if self.verbose:
            print(
                f"Epoch {self.last_epoch}: {type(self).__name__} set learning rate to "
                f"{rate}."
            )


class CosineAnnealingDecay(LRScheduler):
    """Half a cosine from learning_rate to eta_min in T_max epochs, and back."""

    def __init__(self, learning_rate, T_max, eta_min=0, last_epoch=-1, verbose=False):
        _check_count("CosineAnnealingDecay", "T_max", T_max)
        self.T_max = T_max
        self.eta_min = float(eta_min)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        wave = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return self.eta_min + (self.base_lr - self.eta_min) * wave


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from learning_rate to eta_min in T_0 epochs, then again from the
    start, each time T_mult times as long."""

    def __init__(
        self, learning_rate, T_0, T_mult=1, eta_min=0, last_epoch=-1, verbose=False
    ):
        _check_count("CosineAnnealingWarmRestarts", "T_0", T_0)
        _check_count("CosineAnnealingWarmRestarts", "T_mult", T_mult)
        self.T_0 = T_0
        self.T_mult = T_mult
        self.eta_min = float(eta_min)
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        if self.last_epoch < 0:
            raise ValueError(
                "CosineAnnealingWarmRestarts: epoch must not be negative, but got "
                f"{self.last_epoch}"
            )
        since, period = self.last_epoch, self.T_0
        if self.T_mult == 1:
            since %= period
        while since >= period:
            since -= period
            period *= self.T_mult
        wave = (1 + math.cos(math.pi * since / period)) / 2
        return self.eta_min + (self.base_lr - self.eta_min) * wave


class LinearLR(LRScheduler):
    """learning_rate times a factor that goes from start_factor to end_factor in
    total_steps and stays there."""

    def __init__(
        self,
        learning_rate,
        total_steps,
        start_factor=1.0 / 3,
        end_factor=1.0,
        last_epoch=-1,
        verbose=False,
    ):
        _check_count("LinearLR", "total_steps", total_steps)
        if not 0.0 < start_factor <= 1.0:
            raise ValueError(
                f"LinearLR: start_factor must be in (0, 1], but got {start_factor}"
            )
        if not 0.0 <= end_factor <= 1.0:
            raise ValueError(
                f"LinearLR: end_factor must be in [0, 1], but got {end_factor}"
            )
        self.total_steps = total_steps
        self.start_factor = start_factor
        self.end_factor = end_factor
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self):
        done = min(self.last_epoch, self.total_steps) / self.total_steps
        factor = self.start_factor + (self.end_factor - self.start_factor) * done
        return self.base_lr * factor


def _cosine(start, end, done):
    return end + (start - end) * (1 + math.cos(math.pi * done)) / 2


def _linear(start, end, done):
    return start + (end - start) * done


class OneCycleLR(LRScheduler):
    """Up from max_learning_rate / divide_factor to max_learning_rate in the first
    phase_pct of total_steps, then down to end_learning_rate. With `three_phase` the way
    down first mirrors the way up."""

    def __init__(
        self,
        max_learning_rate,
        total_steps,
        divide_factor=25.0,
        end_learning_rate=0.0001,
        phase_pct=0.3,
        anneal_strategy="cos",
        three_phase=False,
        last_epoch=-1,
        verbose=False,
    ):
        _check_count("OneCycleLR", "total_steps", total_steps)
        if not isinstance(max_learning_rate, numbers.Real):
            raise TypeError(
                "OneCycleLR: max_learning_rate must be a number, but got "
                f"{type(max_learning_rate).__name__}"
            )
        if not 0.0 <= phase_pct <= 1.0:
            raise ValueError(
                f"OneCycleLR: phase_pct must be in [0, 1], got {phase_pct}"
            )
        if three_phase and phase_pct > 0.5:
            raise ValueError(
                "OneCycleLR: with three phases phase_pct must be at most 0.5, but got "
                f"{phase_pct}"
            )
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"OneCycleLR: anneal_strategy '{anneal_strategy}' is neither cos nor "
                "linear"
            )
        self.total_steps = total_steps
        first = max_learning_rate / divide_factor
        top = phase_pct * total_steps - 1
        # Where each phase ends, and the rate there.
        self._ends = [(top, max_learning_rate), (total_steps - 1, end_learning_rate)]
        if three_phase:
            self._ends.insert(1, (2 * top, first))
        self._anneal = _cosine if anneal_strategy == "cos" else _linear
        super().__init__(first, last_epoch, verbose)

    def get_lr(self):
        if self.last_epoch > self.total_steps:
            raise ValueError(
                f"OneCycleLR: step {self.last_epoch} of a cycle of {self.total_steps}"
            )
        begin, rate = 0, self.base_lr
        for end, target in self._ends:
            if self.last_epoch <= end or end == self._ends[-1][0]:
                done = (self.last_epoch - begin) / (end - begin)
                return self._anneal(rate, target, done)
            begin, rate = end, target
        return rate


class CyclicLR(LRScheduler):
    """Up from base_learning_rate to max_learning_rate in step_size_up steps, down again
    in step_size_down, and so on. `mode` says how the height of the cycles changes:
    triangular not at all, triangular2 halves it each cycle, exp_range multiplies it by
    exp_gamma each step; `scale_fn`, of the cycle or of the step (`scale_mode`), is used
    instead where it is given."""

    def __init__(
        self,
        base_learning_rate,
        max_learning_rate,
        step_size_up,
        step_size_down=None,
        mode="triangular",
        exp_gamma=1.0,
        scale_fn=None,
        scale_mode="cycle",
        last_epoch=-1,
        verbose=False,
    ):
        if not isinstance(max_learning_rate, numbers.Real):
            raise TypeError(
                "CyclicLR: max_learning_rate must be a number, but got "
                f"{type(max_learning_rate).__name__}"
            )
        step_size_down = step_size_up if step_size_down is None else step_size_down
        _check_count("CyclicLR", "step_size_up", step_size_up)
        _check_count("CyclicLR", "step_size_down", step_size_down)
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(
                f"CyclicLR: mode '{mode}' is none of triangular, triangular2, "
                "exp_range, and there is no scale_fn"
            )
        if scale_mode not in ("cycle", "iterations"):
            raise ValueError(
                f"CyclicLR: scale_mode '{scale_mode}' is neither cycle nor iterations"
            )
        self.max_lr = float(max_learning_rate)
        self.step_size_up = step_size_up
        self.cycle_size = step_size_up + step_size_down
        self.mode = mode
        self.exp_gamma = exp_gamma
        self.scale_fn = scale_fn
        self.scale_mode = scale_mode
        super().__init__(base_learning_rate, last_epoch, verbose)

    def get_lr(self):
        cycle, position = divmod(self.last_epoch, self.cycle_size)
        if position <= self.step_size_up:
            height = position / self.step_size_up
        else:
            down = self.cycle_size - self.step_size_up
            height = (self.cycle_size - position) / down
        return self.base_lr + (self.max_lr - self.base_lr) * height * self._scale(
            cycle + 1
        )

    def _scale(self, cycle):
        if self.scale_fn is not None:
            return self.scale_fn(
                cycle if self.scale_mode == "cycle" else self.last_epoch
            )
        if self.mode == "triangular2":
            return 0.5 ** (cycle - 1)
        if self.mode == "exp_range":
            return self.exp_gamma**self.last_epoch
        return 1.0


__all__ = _names.own(globals())
