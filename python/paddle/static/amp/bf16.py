# SPDX-License-Identifier: Apache-2.0
"""Mixed precision with bfloat16, by the names that Paddle has for it."""

import numpy

from .decorator import OptimizerWithMixedPrecision
from .fp16_lists import AutoMixedPrecisionLists, check_amp_dtype
from .fp16_utils import (
    cast_model_to_fp16,
    cast_parameters_to_fp16,
    fp16_guard,
    use_mixed_precision,
)

__all__ = [
    "AutoMixedPrecisionListsBF16",
    "bf16_guard",
    "cast_model_to_bf16",
    "cast_parameters_to_bf16",
    "convert_float_to_uint16",
    "decorate_bf16",
    "rewrite_program_bf16",
]

_DTYPE = check_amp_dtype("bfloat16")

bf16_guard = fp16_guard


class AutoMixedPrecisionListsBF16(AutoMixedPrecisionLists):
    """Lists as AutoMixedPrecisionLists has them, for bfloat16."""

    def __init__(
        self,
        custom_bf16_list=None,
        custom_fp32_list=None,
        custom_fp32_varnames=None,
    ):
        super().__init__(
            custom_bf16_list, custom_fp32_list, custom_fp32_varnames, _DTYPE
        )
        self.bf16_list, self.fp32_list = self.white_list, self.black_list
        self.fp32_varnames = self.black_varnames


def rewrite_program_bf16(main_prog, amp_lists=None):
    """Puts casts into a program without backward: level O1."""
    lists = amp_lists or AutoMixedPrecisionListsBF16()
    use_mixed_precision(main_prog, lists, _DTYPE, "O1", guard=False)


def cast_model_to_bf16(program, startup_prog=None, amp_lists=None, use_bf16_guard=True):
    """As cast_model_to_fp16. `startup_prog` stays as it is: cast_parameters_to_bf16
    casts what it made."""
    lists = amp_lists or AutoMixedPrecisionListsBF16()
    return cast_model_to_fp16(program, lists, use_bf16_guard, _DTYPE)


def cast_parameters_to_bf16(place, program, scope=None, to_bf16_var_names=None):
    """As cast_parameters_to_fp16."""
    cast_parameters_to_fp16(place, program, scope, to_bf16_var_names, _DTYPE)


def convert_float_to_uint16(in_list):
    """Floats as the bits of bfloat16, cut off and not rounded, in an array of uint16."""
    array = numpy.ascontiguousarray(in_list, dtype=numpy.float32)
    return (array.view(numpy.uint32) >> 16).astype(numpy.uint16)


def decorate_bf16(optimizer, amp_lists=None, use_pure_bf16=False, use_bf16_guard=None):
    """An optimizer that trains programs with bfloat16; see static.amp.decorate."""
    return OptimizerWithMixedPrecision(
        optimizer,
        amp_lists or AutoMixedPrecisionListsBF16(),
        "O2" if use_pure_bf16 else "O1",
        _DTYPE,
        init_loss_scaling=1.0,
        use_dynamic_loss_scaling=False,
        incr_every_n_steps=1000,
        decr_every_n_nan_or_inf=2,
        incr_ratio=2.0,
        decr_ratio=0.8,
        use_amp_guard=use_pure_bf16 if use_bf16_guard is None else use_bf16_guard,
    )
