# SPDX-License-Identifier: Apache-2.0
"""The mixed precision that paddle.Model is asked for."""

from ..amp import GradScaler

_OF_CASTS = ("custom_white_list", "custom_black_list", "dtype")
_OF_SCALER = (
    "init_loss_scaling",
    "incr_ratio",
    "decr_ratio",
    "incr_every_n_steps",
    "decr_every_n_nan_or_inf",
    "use_dynamic_loss_scaling",
)


def read_configs(configs):
    """(arguments of auto_cast, a GradScaler) for the amp_configs of prepare(); None for
    both where it is to be float32."""
    if not isinstance(configs, dict) or not configs:
        configs = {"level": configs or "O0"}
    for key in configs:
        if key not in ("level", *_OF_CASTS, *_OF_SCALER):
            raise ValueError(f"paddle.Model.prepare: amp_configs has no '{key}'")
    level = configs.get("level", "O1")
    if level not in ("O0", "O1", "O2"):
        raise ValueError(
            f"paddle.Model.prepare: the level of amp_configs must be 'O0', 'O1' or 'O2', "
            f"not {level!r}"
        )
    if level == "O0":
        return None, None
    casts = {key: configs[key] for key in _OF_CASTS if key in configs}
    scaler = GradScaler(**{key: configs[key] for key in _OF_SCALER if key in configs})
    return {"level": level, **casts}, scaler
