# SPDX-License-Identifier: Apache-2.0
"""How a job with servers trains: what a strategy, a scheduler and the environment say,
in the words of the engine."""

import copy
import os
import warnings
from typing import NamedTuple

from .... import _core
from .strategy_fields import CONFIGS

__all__ = [
    "Mode",
    "check_fields",
    "disk_of_servers",
    "learning_rate_of",
    "mode_of",
    "queue_settings",
    "table_extras",
]

_DEFAULTS = CONFIGS["a_sync_configs"]

# Settings that Paddle has and this engine has no use for, and why.
_WITHOUT_EFFECT = {
    "independent_recv_thread": "dense parameters always come back on a thread of their "
    "own",
    "min_send_grad_num_before_recv": "dense parameters come back as soon as they can",
    "thread_pool_size": "every call has connections of its own",
    "send_wait_times": "what is queued leaves at once",
    "runtime_split_send_recv": "gradients are always split when they are sent",
    "launch_barrier": "workers wait for the servers wherever they first need them",
}
# Settings of other kinds of jobs.
_OTHER_JOBS = {
    "heter_worker_device_guard": "heterogeneous workers",
    "use_ps_gpu": "tables on GPUs",
    "use_gpu_graph": "graph tables on GPUs",
}

# A schedule that servers get as a list of rates: half a megabyte of them.
_MAX_PIECES = 1 << 16

# Paddle's default number of steps where `auto` chooses geo.
_AUTO_GEO_STEPS = 800


class Mode(NamedTuple):
    """ "sync", "half_async", "async" or "geo", and for geo the steps between two
    exchanges."""

    name: str
    geo_steps: int = 0


def mode_of(strategy, optimizer=None, program=None):
    """What the strategy chooses. Untouched, it is async.

    Raises:
        ValueError: a_sync and k_steps do not fit together.
    """
    if strategy.auto:
        if optimizer is not None and _trains_well_alone(optimizer, program):
            return Mode("geo", _AUTO_GEO_STEPS)
        return Mode("async")
    k_steps = strategy.a_sync_configs["k_steps"]
    if not strategy.a_sync:
        if k_steps == 0:
            return Mode("sync")
    elif k_steps > 0:
        return Mode("geo", k_steps)
    elif k_steps in (0, _DEFAULTS["k_steps"]):
        return Mode("async")
    raise ValueError(
        "k_steps must be invalid value, please check: "
        f"a_sync={strategy.a_sync} and k_steps={k_steps}; sync is a_sync=False with "
        "k_steps=0, async a_sync=True with k_steps=0, geo a_sync=True with k_steps > 0"
    )


def _trains_well_alone(optimizer, program):
    """Whether `auto` chooses geo: for SGD, and where five times the parameters and
    the activations of 1024 examples fit into what memory is free."""
    if type(optimizer).__name__.removesuffix("Optimizer") != "SGD" or program is None:
        return False
    floats = 0
    for variable in program.list_vars():
        size = 1
        for n in variable.shape:
            size *= 1024 if n < 0 else n
        floats += 5 * size if variable.persistable else size
    return 4 * floats < _free_memory()


def _free_memory():
    try:
        with open("/proc/meminfo", encoding="utf8") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return 1024 * int(line.split()[1])
    except OSError:
        pass
    return 0


def _number(configs, key, flag):
    """A setting: the strategy's if it was changed, else the environment's; None where
    neither says anything."""
    if configs[key] != _DEFAULTS[key]:
        return configs[key]
    text = os.getenv(flag, "")
    if not text:
        return None
    if not text.isdigit() or int(text) == 0:
        raise ValueError(f"{flag}={text}, which should be a number above 0")
    return int(text)


def queue_settings(strategy):
    """How much an async worker merges and queues, as arguments of Job.with_servers;
    says of settings without an effect that they have none."""
    configs = strategy.a_sync_configs
    for key, reason in _WITHOUT_EFFECT.items():
        if configs[key] != _DEFAULTS[key]:
            warnings.warn(
                f"a_sync_configs: {key} has no effect here: {reason}", stacklevel=4
            )
    for key, kind in _OTHER_JOBS.items():
        if configs[key] != _DEFAULTS[key]:
            raise NotImplementedError(
                f"a_sync_configs: {key} is for {kind}, which this version of paddle "
                "does not have"
            )
    settings = {
        "max_merge": _number(
            configs, "max_merge_var_num", "FLAGS_communicator_max_merge_var_num"
        ),
        "queue_size": _number(
            configs, "send_queue_size", "FLAGS_communicator_send_queue_size"
        ),
    }
    return {key: value for key, value in settings.items() if value is not None}


def check_fields(strategy):
    """Refuses what would change results and is not there; warns of what is for parts
    of Paddle that are not."""
    for name in ("adam_d2sum", "is_fl_ps_mode", "with_coordinator"):
        if getattr(strategy, name):
            raise NotImplementedError(
                f"fleet.minimize: the strategy has {name}=True, which jobs with servers "
                "of this version do not have"
            )
    for name in ("trainer_desc_configs", "fs_client_param"):
        given, defaults = getattr(strategy, name), CONFIGS[name]
        changed = [key for key, value in given.items() if value != defaults[key]]
        if changed:
            warnings.warn(
                f"strategy.{name}: {', '.join(changed)} has no effect here",
                stacklevel=4,
            )


def disk_of_servers():
    """Where the rows of SSDSparseTables go on each server, and beyond how many bytes of
    memory.

    Raises:
        ValueError: FLEET_PS_DISK names no folder.
    """
    folder = os.getenv("FLEET_PS_DISK", "")
    if not folder:
        raise ValueError(
            'table_class="SSDSparseTable" needs a folder on the servers\' disks: set '
            "FLEET_PS_DISK for workers and servers"
        )
    text = os.getenv("FLEET_PS_DISK_MEMORY_MB", "1024")
    if not text.isdigit() or int(text) == 0:
        raise ValueError(
            f"FLEET_PS_DISK_MEMORY_MB={text}, which should be a number above 0"
        )
    return folder, int(text) << 20


def table_extras(strategy):
    """What strategy.downpour_table_param says of all sparse tables, where it was
    changed: rows that count shows and clicks."""
    given, defaults = strategy.downpour_table_param, CONFIGS["downpour_table_param"]
    if given == defaults:
        return {}
    options = _core.ShowClickOptions()
    options.nonclick_coefficient = given["nonclk_coeff"]
    options.click_coefficient = given["click_coeff"]
    options.extend_threshold = given["embedx_threshold"]
    options.fade = given["show_click_decay_rate"]
    options.delete_threshold = given["delete_threshold"]
    options.delete_after_unseen_days = int(given["delete_after_unseen_days"])
    options.base_threshold = given["base_threshold"]
    options.delta_threshold = given["delta_threshold"]
    options.delta_keep_days = int(given["delta_keep_days"])
    extras = _core.SparseExtras()
    extras.count_unseen_days = True
    extras.show_click = options
    return {"": extras}


def learning_rate_of(scheduler, steps):
    """A scheduler as a rate that servers work out by themselves, from where it stands.
    `steps` of theirs are one of the scheduler's. None where they cannot: then it is the
    scheduler's step() that counts, and a worker tells them what it says."""
    rate = _rate_of(scheduler, steps)
    if rate is not None:
        rate.first_step = max(scheduler.last_epoch, 0) * steps
    return rate


def _rate_of(scheduler, steps):
    from ....optimizer import lr

    rate, base, kind = _core.LearningRate, scheduler.base_lr, type(scheduler)
    if kind is lr.ExponentialDecay:
        return rate.exponential(base, scheduler.gamma, steps, True)
    if kind is lr.NaturalExpDecay:
        return rate.natural_exp(base, scheduler.gamma, steps, True)
    if kind is lr.InverseTimeDecay:
        return rate.inverse_time(base, scheduler.gamma, steps, True)
    if kind is lr.NoamDecay:
        # A rise by single steps, whatever a step of the scheduler is.
        return rate.noam(base, scheduler.d_model, scheduler.warmup_steps)
    if kind is lr.StepDecay:
        period = scheduler.step_size * steps
        return rate.exponential(base, scheduler.gamma, period, True)
    if kind is lr.PolynomialDecay:
        end, power, cycle = scheduler.end_lr, scheduler.power, scheduler.cycle
        return rate.polynomial(base, scheduler.decay_steps * steps, end, power, cycle)
    if kind is lr.LinearLR:
        first, last = base * scheduler.start_factor, base * scheduler.end_factor
        return rate.polynomial(first, scheduler.total_steps * steps, last, 1.0, False)
    if kind is lr.CosineAnnealingDecay:
        return rate.cosine(base, scheduler.T_max, scheduler.eta_min, steps, 0)
    if kind is lr.CosineAnnealingWarmRestarts:
        length, growth = scheduler.T_0, scheduler.T_mult
        return rate.cosine(base, length, scheduler.eta_min, steps, growth)
    if kind is lr.CyclicLR and scheduler.scale_fn is None:
        up = scheduler.step_size_up
        down = scheduler.cycle_size - up
        per_cycle = 0.5 if scheduler.mode == "triangular2" else 1.0
        per_period = scheduler.exp_gamma if scheduler.mode == "exp_range" else 1.0
        return rate.cyclic(
            base, scheduler.max_lr, up, down, per_cycle, per_period, steps
        )
    if kind is lr.OneCycleLR and scheduler.total_steps <= _MAX_PIECES:
        return _pieces_of(scheduler, scheduler.total_steps, steps)
    if kind is lr.LinearWarmup and not isinstance(
        scheduler.learning_rate, lr.LinearWarmup
    ):
        after = scheduler.learning_rate
        if isinstance(after, lr.LRScheduler):
            warmed = _rate_of(after, steps)
        else:
            warmed = rate.constant(float(after))
        if warmed is None:
            return None
        warmup_steps = scheduler.warmup_steps * steps
        warmed.warm_up(warmup_steps, scheduler.start_lr, scheduler.end_lr, steps)
        return warmed
    if kind is lr.PiecewiseDecay:
        ends = [boundary * steps for boundary in scheduler.boundaries]
        return rate.piecewise(ends, scheduler.values)
    if kind is lr.MultiStepDecay:
        ends = [milestone * steps for milestone in scheduler.milestones]
        values = [base * scheduler.gamma**i for i in range(len(ends) + 1)]
        return rate.piecewise(ends, values)
    return None


def _pieces_of(scheduler, last, steps):
    """The rates of epochs 0 to `last`, one by one; from there on the last one."""
    probe, values = copy.copy(scheduler), []
    for epoch in range(last + 1):
        probe.last_epoch = epoch
        values.append(probe.get_lr())
    return _core.LearningRate.piecewise(
        [epoch * steps for epoch in range(1, last + 1)], values
    )
