# SPDX-License-Identifier: Apache-2.0
"""Which operations compute in a short type.

White ones do: they are where the time goes, and their sums are long enough to be exact.
Black ones compute in float32: they leave the range of a short type, or add up much. Gray
ones go along with what they read. Whatever is in no list computes in float32.
"""

from ..._core import DType

__all__ = ["AutoMixedPrecisionLists", "CustomOpLists"]

white_list = {
    "addmm",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "depthwise_conv2d",
    "fc",
    "matmul",
    "matmul_v2",
    "mul",
}

# Range or sums.
black_list = {
    "acos",
    "asin",
    "bce_loss",
    "cos_sim",
    "cosh",
    "cross_entropy",
    "cross_entropy2",
    "cross_entropy_loss",
    "cumprod",
    "cumsum",
    "dist",
    "exp",
    "expm1",
    "frobenius_norm",
    "group_norm",
    "huber_loss",
    "instance_norm",
    "kldiv_loss",
    "l1_loss",
    "layer_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_loss",
    "log_softmax",
    "logsumexp",
    "mean",
    "mse_loss",
    "nll_loss",
    "norm",
    "p_norm",
    "pow",
    "reciprocal",
    "reduce_mean",
    "reduce_prod",
    "reduce_sum",
    "rsqrt",
    "sigmoid_cross_entropy_with_logits",
    "sinh",
    "smooth_l1",
    "softmax",
    "softmax_with_cross_entropy",
    "softplus",
    "sqrt",
    "square",
    "squared_l2_norm",
    "sum",
    "tan",
    "tanhshrink",
    "var",
}

# Slower in a short type than in float32, at any level.
_extra_black_list = {
    "interpolate",
    "lookup_table",
    "lookup_table_v2",
    "scatter",
}

# What only moves elements is gray, too, and activations are.
gray_list = {
    "abs",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "assign",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "brelu",
    "cast",
    "celu",
    "clip",
    "concat",
    "dropout",
    "elementwise_add",
    "elementwise_div",
    "elementwise_floordiv",
    "elementwise_max",
    "elementwise_min",
    "elementwise_mod",
    "elementwise_mul",
    "elementwise_pow",
    "elementwise_sub",
    "elu",
    "expand",
    "expand_as_v2",
    "expand_v2",
    "fill_constant",
    "flatten2",
    "flatten_contiguous_range",
    "flip",
    "gather",
    "gather_nd",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "index_select",
    "leaky_relu",
    "logsigmoid",
    "max_pool1d_with_index",
    "max_pool2d_with_index",
    "max_pool3d_with_index",
    "maxout",
    "mish",
    "pad",
    "pad2d",
    "pad3d",
    "pool2d",
    "pool3d",
    "prelu",
    "relu",
    "relu6",
    "reshape2",
    "roll",
    "scale",
    "selu",
    "sigmoid",
    "sign",
    "silu",
    "slice",
    "softshrink",
    "softsign",
    "split",
    "squeeze2",
    "stack",
    "stanh",
    "strided_slice",
    "swish",
    "tanh",
    "thresholded_relu",
    "tile",
    "top_k",
    "top_k_v2",
    "transpose2",
    "unsqueeze2",
    "unstack",
    "where",
}

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

    def _white_and_gray(self, level, use_promote=False):
        """What is white and what is gray at a level: O1 by the lists, OD the white ones
        alone, O2 everything but the black ones of the caller."""
        if level == "O1":
            return self.white_list - self.black_list, self.gray_list - self.black_list
        if level == "OD":
            return self.white_list - self.black_list, set()
        rest = (self.gray_list | self.black_list | black_list) - self.unsupported_list
        white = self.white_list - self.unsupported_list
        return (white, rest) if use_promote else (white | rest, set())


CustomOpLists = AutoMixedPrecisionLists
