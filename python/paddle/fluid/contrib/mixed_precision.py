# SPDX-License-Identifier: Apache-2.0
"""The older name of paddle.static.amp."""

from ...static.amp import (
    AutoMixedPrecisionLists,
    CustomOpLists,
    bf16,
    cast_model_to_fp16,
    cast_parameters_to_fp16,
    decorate,
    decorator,
    fp16_guard,
    fp16_lists,
    fp16_utils,
)

__all__ = [
    "AutoMixedPrecisionLists",
    "CustomOpLists",
    "bf16",
    "cast_model_to_fp16",
    "cast_parameters_to_fp16",
    "decorate",
    "decorator",
    "fp16_guard",
    "fp16_lists",
    "fp16_utils",
]
