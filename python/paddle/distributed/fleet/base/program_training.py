# SPDX-License-Identifier: Apache-2.0
"""Training of programs by several workers: the optimizer that the strategy asks for,
and the rewrite of the program for this worker."""

import warnings

from .... import _core

# What minimize can do in programs beside what eager training has.
_BUILT = ("lars", "lamb")


def unbuilt(strategy, worker_num):
    """The settings that change results and that programs do not have yet."""
    return [
        setting
        for setting in strategy.unbuilt(worker_num)
        if setting.partition("=")[0] not in _BUILT
    ]


def _settings_of(optimizer):
    """The arguments that all optimizers share."""
    return {
        "learning_rate": optimizer._learning_rate,
        "parameters": optimizer._all_parameters() or None,
        "grad_clip": optimizer._grad_clip,
    }


def _lars(optimizer, configs):
    from ....optimizer import Lars

    return Lars(
        momentum=optimizer._momentum,
        lars_coeff=configs["lars_coeff"],
        lars_weight_decay=configs["lars_weight_decay"],
        epsilon=configs["epsilon"],
        exclude_from_weight_decay=configs["exclude_from_weight_decay"],
        weight_decay=optimizer.regularization,
        **_settings_of(optimizer),
    )


def _lamb(optimizer, configs):
    from ....optimizer import Lamb

    left_out = configs["exclude_from_weight_decay"]
    return Lamb(
        lamb_weight_decay=configs["lamb_weight_decay"],
        beta1=optimizer._beta1,
        beta2=optimizer._beta2,
        epsilon=optimizer._epsilon,
        exclude_from_weight_decay_fn=lambda parameter: any(
            part in parameter.name for part in left_out
        ),
        **_settings_of(optimizer),
    )


def wished_optimizer(optimizer, strategy):
    """`optimizer`, or what the strategy makes of it: (optimizer, names of rewrites).
    One that does not fit stays as it is, with a warning."""
    rewrites = (
        ("lars", "Momentum", _lars, "LarsOptimizer"),
        ("lamb", "Adam", _lamb, "LambOptimizer"),
    )
    for flag, kind, make, name in rewrites:
        if not getattr(strategy, flag):
            continue
        if type(optimizer).__name__.removesuffix("Optimizer") == kind:
            return make(optimizer, getattr(strategy, f"{flag}_configs")), [name]
        warnings.warn(
            f"strategy.{flag} is for {kind}; {type(optimizer).__name__} stays as it is",
            stacklevel=4,
        )
    return optimizer, []


def apply_plan(main, startup, role, strategy):
    """Rewrites the programs for this worker, in place; returns the passes."""
    megabyte = 1 << 20
    bucket_bytes = int(strategy.fuse_grad_size_in_MB * megabyte)
    return _core.apply_plan(
        main,
        startup,
        role,
        bucket_bytes if strategy.fuse_all_reduce_ops else 0,
        int(strategy.last_comm_group_size_MB * megabyte),
        True,
        strategy.sync_batch_norm or strategy.build_strategy.sync_batch_norm,
    )
