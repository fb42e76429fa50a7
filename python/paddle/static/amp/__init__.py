# SPDX-License-Identifier: Apache-2.0
"""Training of programs in mixed precision: matrix products in float16 or bfloat16,
parameters and what is delicate in float32.

    optimizer = paddle.static.amp.decorate(paddle.optimizer.Adam(0.001))
    optimizer.minimize(loss)
"""

from ... import _names
from . import bf16, decorator, fp16_lists, fp16_utils
from .decorator import decorate
from .fp16_lists import AutoMixedPrecisionLists, CustomOpLists
from .fp16_utils import cast_model_to_fp16, cast_parameters_to_fp16, fp16_guard

__all__ = _names.gathered(globals(), "bf16 decorator fp16_lists fp16_utils")
