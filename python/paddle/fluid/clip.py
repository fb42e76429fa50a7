# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping under its old names."""

from ..nn.clip import ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue
from ..static.program import default_main_program

GradientClipByValue = ClipGradByValue
GradientClipByNorm = ClipGradByNorm
GradientClipByGlobalNorm = ClipGradByGlobalNorm


def set_gradient_clip(clip, param_list=None, program=None):
    """Clips the gradients of a program in every `minimize` that comes after, unless its
    optimizer has a grad_clip of its own."""
    kinds = (ClipGradByValue, ClipGradByNorm, ClipGradByGlobalNorm)
    if not isinstance(clip, kinds):
        raise TypeError(
            "set_gradient_clip: clip must be one of GradientClipByValue, "
            "GradientClipByNorm and GradientClipByGlobalNorm, but is a "
            f"{type(clip).__name__}"
        )
    if param_list is not None:
        raise ValueError(
            "set_gradient_clip: param_list is not supported; ParamAttr(need_clip=False) "
            "leaves a parameter out"
        )
    program = default_main_program() if program is None else program
    program._grad_clip = clip
