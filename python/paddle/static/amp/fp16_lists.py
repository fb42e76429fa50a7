# SPDX-License-Identifier: Apache-2.0
"""Which operations compute in a short type.

White ones do: they are where the time goes, and their sums are long enough to be exact.
Black ones compute in float32: they leave the range of a short type, or add up much. Gray
ones go along with what they read. Whatever is in no list computes in float32.

The definition of each op says which it is (fleet/program/define_*.cc).
"""

from ... import _core
from ..._core import DType, Precision

__all__ = ["AutoMixedPrecisionLists", "CustomOpLists"]

_defined = _core.op_precisions()


def _all(precision):
    return {name for name, said in _defined.items() if said is precision}


white_list = _all(Precision.white)
gray_list = _all(Precision.gray)
black_list = _all(Precision.black)
# Slower in a short type than in float32, at any level.
_extra_black_list = _all(Precision.black_always)

_DTYPES = {
    "float16": DType.float16,
    "bfloat16": DType.bfloat16,
    DType.float16: DType.float16,
    DType.bfloat16: DType.bfloat16,
}


def check_amp_dtype(dtype):
    """The short type that is meant: by its name in any case, or itself."""
    key = dtype.lower() if isinstance(dtype, str) else dtype
    if key not in _DTYPES:
        raise ValueError(f"amp: dtype must be 'float16' or 'bfloat16', but is {dtype}")
    return _DTYPES[key]


def _names(what, names):
    """A set of names that a caller gave as any kind of collection."""
    if names is None:
        return set()
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"amp: {what} must be a set of names, but is {names!r}")
    return set(names)


class AutoMixedPrecisionLists:
    """The lists of one training: the usual ones, and what the caller moves.

    Args:
        custom_white_list: types of operations that become white.
        custom_black_list: types of operations that become black, at any level.
        custom_black_varnames: names of variables; what reads or writes one of them
            computes in float32.
        dtype: 'float16' or 'bfloat16'.
    """

    def __init__(
        self,
        custom_white_list=None,
        custom_black_list=None,
        custom_black_varnames=None,
        dtype="float16",
    ):
        self.amp_dtype = check_amp_dtype(dtype).name
        white = _names("custom_white_list", custom_white_list)
        black = _names("custom_black_list", custom_black_list)
        both = sorted(white & black)
        if both:
            raise ValueError(
                f"amp: {', '.join(both)} in custom_white_list and in custom_black_list"
            )
        self._custom_white_list, self._custom_black_list = white, black
        self.white_list = (white_list | white) - black
        self.black_list = ((black_list | _extra_black_list) - white) | black
        self.gray_list = gray_list - white - black
        # In float32 also where everything else is short.
        self.unsupported_list = (_extra_black_list - white) | black
        self.black_varnames = _names("custom_black_varnames", custom_black_varnames)

    def _custom(self):
        """What these lists say otherwise than the definitions, by name of the op."""
        said = dict.fromkeys(_defined, Precision.unlisted)
        said.update(dict.fromkeys(self.gray_list, Precision.gray))
        said.update(dict.fromkeys(self.white_list, Precision.white))
        said.update(dict.fromkeys(self.black_list, Precision.black))
        said.update(dict.fromkeys(self.unsupported_list, Precision.black_always))
        usual = Precision.unlisted
        return {n: p for n, p in said.items() if p is not _defined.get(n, usual)}


CustomOpLists = AutoMixedPrecisionLists
