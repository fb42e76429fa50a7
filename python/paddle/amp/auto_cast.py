# SPDX-License-Identifier: Apache-2.0
"""Eager calls that compute in a short type."""

import contextlib
import warnings
from threading import get_ident

from .. import _core
from ..nn import Layer
from ..static.amp.fp16_lists import AutoMixedPrecisionLists, check_amp_dtype
from ..static.amp.fp16_utils import amp_level, check_level

__all__ = ["amp_guard", "auto_cast", "decorate"]

# What has been asked for before, by the arguments. Making the lists takes as long as some
# small steps of training.
_known = {}


def _lists(enable, custom_white_list, custom_black_list, level, dtype, use_promote):
    """What _core.enter_auto_cast takes."""
    level, dtype = check_level(level), check_amp_dtype(dtype)
    lists = AutoMixedPrecisionLists(custom_white_list, custom_black_list, dtype=dtype)
    if not enable or level == "O0":
        return None
    return _core.AutoCast(dtype, amp_level(level), lists._custom(), bool(use_promote))


def _fixed(names):
    return names if names is None or isinstance(names, str) else frozenset(names)


class auto_cast(contextlib.ContextDecorator):
    """Inside, functions that this thread calls cast what they are given: white ones to
    `dtype`, black ones to float32, and others, if it is of both, to float32. Parameters
    stay as they are, and gradients have the types of their tensors.

    Args:
        enable: False computes as if there was no auto_cast around.
        custom_white_list, custom_black_list: names of ops, as in
            static.amp.AutoMixedPrecisionLists.
        level: 'O1' by the lists; 'O2' all but the black ones of the caller; 'OD' the
            white ones alone, and everything else in float32; 'O0' none.
        dtype: 'float16' or 'bfloat16'.
        use_promote: at level O2, whether what is in no white list follows its inputs.
    """

    def __init__(
        self,
        enable=True,
        custom_white_list=None,
        custom_black_list=None,
        level="O1",
        dtype="float16",
        use_promote=True,
    ):
        enable = bool(enable)
        asked = enable, custom_white_list, custom_black_list, level, dtype, use_promote
        if custom_white_list is not None or custom_black_list is not None:
            white, black = _fixed(custom_white_list), _fixed(custom_black_list)
            asked = enable, white, black, level, dtype, use_promote
        try:
            self._what = _known[asked]
        except KeyError:
            self._what = _known[asked] = _lists(*asked)
        self._entered = []

    def __enter__(self):
        self._entered.append((get_ident(), _core.enter_auto_cast(self._what)))

    def __exit__(self, *error):
        entered = self._entered
        if len(entered) > 1:
            # Several threads may be inside the same one.
            here = [pair for pair in entered if pair[0] == get_ident()]
            pair = here[-1] if here else entered[-1]
            entered.remove(pair)
        else:
            pair = entered.pop()
        pair[1].leave()


amp_guard = auto_cast


def decorate(
    models,
    optimizers=None,
    level="O1",
    dtype="float16",
    master_weight=None,
    save_dtype=None,
    master_grad=False,
    excluded_layers=None,
):
    """`models`, or (models, optimizers), as they are: parameters are float32 at every
    level here, and auto_cast casts them where they are used. What that computes is what
    short parameters with float32 copies would.

    master_grad, excluded_layers: accepted; they are about parameters in the short type.
    save_dtype: must be None or 'float32', in which state_dict() has the parameters.
    """
    check_level(level), check_amp_dtype(dtype)
    if save_dtype not in (None, "float32"):
        raise NotImplementedError(
            f"amp.decorate: save_dtype={save_dtype!r}: parameters are float32; cast what "
            "state_dict() returns before it is saved"
        )
    for model in models if isinstance(models, (list, tuple)) else [models]:
        if not isinstance(model, Layer):
            raise TypeError(
                f"amp.decorate: models must be Layers, but one is a {type(model).__name__}"
            )
    if master_weight is False:
        warnings.warn(
            "amp.decorate: parameters are float32 here, also with master_weight=False",
            stacklevel=2,
        )
    return models if optimizers is None else (models, optimizers)
