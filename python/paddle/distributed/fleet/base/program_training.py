# SPDX-License-Identifier: Apache-2.0
"""Training of programs by several workers: the optimizer that the strategy asks for,
and the rewrite of the program for this worker."""

import warnings

from .... import _core

# What minimize can do in programs beside what eager training has, with servers and
# without.
_BUILT = {
    True: ("lars", "lamb"),
    False: ("lars", "lamb", "amp", "recompute", "gradient_merge"),
}


def unbuilt(strategy, worker_num, has_servers):
    """The settings that change results and that programs do not have yet."""
    return [
        setting
        for setting in strategy.unbuilt(worker_num)
        if setting.partition("=")[0] not in _BUILT[has_servers]
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


def _with_recompute(optimizer, configs):
    from ....fluid.optimizer import RecomputeOptimizer

    optimizer = RecomputeOptimizer(optimizer)
    optimizer._set_checkpoints(configs["checkpoints"])
    return optimizer


def _with_merge(optimizer, configs):
    from ....fluid.optimizer import GradientMergeOptimizer

    return GradientMergeOptimizer(optimizer, configs["k_steps"], configs["avg"])


def _with_amp(optimizer, configs):
    from ....static import amp

    lists = amp.AutoMixedPrecisionLists(
        configs["custom_white_list"],
        configs["custom_black_list"],
        configs["custom_black_varnames"],
        "bfloat16" if configs["use_pure_bf16"] else "float16",
    )
    scaling = (
        "init_loss_scaling",
        "incr_every_n_steps",
        "decr_every_n_nan_or_inf",
        "incr_ratio",
        "decr_ratio",
        "use_dynamic_loss_scaling",
    )
    return amp.decorate(
        optimizer,
        lists,
        use_pure_fp16=configs["use_pure_fp16"] or configs["use_pure_bf16"],
        use_fp16_guard=configs["use_fp16_guard"],
        use_bf16=configs["use_pure_bf16"],
        **{name: configs[name] for name in scaling},
    )


def check_served(optimizer):
    """Servers update by every gradient that they get: they skip no step."""
    if getattr(optimizer, "_scales", False):
        raise NotImplementedError(
            "fleet.minimize: jobs with servers do not scale the loss, as float16 needs: "
            "use static.amp.decorate(..., use_bf16=True)"
        )


def wrapped_optimizer(optimizer, strategy):
    """`optimizer` with what the strategy puts around it: (optimizer, names of that).
    Nothing is put around it twice."""
    wrappers, inner = set(), optimizer
    while inner is not None:
        wrappers.add(type(inner).__name__)
        inside = getattr(inner, "__dict__", {})
        inner = inside.get("_optimizer") or inside.get("inner_optimizer")
    names = []
    configs = strategy.recompute_configs
    if strategy.recompute and not configs["checkpoints"]:
        warnings.warn(
            "strategy.recompute without recompute_configs['checkpoints'] computes "
            "nothing again",
            stacklevel=4,
        )
    elif strategy.recompute:
        if "RecomputeOptimizer" not in wrappers:
            optimizer = _with_recompute(optimizer, configs)
        names.append("RecomputeOptimizer")
    if strategy.gradient_merge:
        if "GradientMergeOptimizer" not in wrappers:
            optimizer = _with_merge(optimizer, strategy.gradient_merge_configs)
        names.append("GradientMergeOptimizer")
    if strategy.amp:
        if "OptimizerWithMixedPrecision" not in wrappers:
            optimizer = _with_amp(optimizer, strategy.amp_configs)
        names.append("AMPOptimizer")
    return optimizer, names


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
