# SPDX-License-Identifier: Apache-2.0
"""How users write the window of a convolution or pool, and how the ops take it."""


def is_channels_last(data_format, rank, function):
    """Whether `data_format`, for `rank` spatial dimensions, has the channels last."""
    known = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[rank]
    if data_format not in known:
        raise ValueError(
            f"{function}: data_format must be '{known[0]}' or '{known[1]}', but is "
            f"'{data_format}'"
        )
    return data_format == known[1]


def numbers(value, rank, function, argument):
    """One number per dimension from an int or a list."""
    if isinstance(value, (list, tuple)):
        if len(value) == 1:
            return list(value) * rank
        if len(value) != rank:
            raise ValueError(
                f"{function}: {argument} {list(value)} must have {rank} numbers"
            )
        return [_int(n, function, argument) for n in value]
    return [_int(value, function, argument)] * rank


def _int(value, function, argument):
    try:
        return value.__index__()
    except AttributeError:
        pass
    if hasattr(value, "item") and not isinstance(value, float):
        return int(value.item())
    raise TypeError(
        f"{function}: {argument} must be an integer, but got {type(value).__name__}"
    )


def padding(value, rank, channels_last, function):
    """(paddings, algorithm) of the ops. Users write 'SAME' or 'VALID', a number, one
    number per dimension, a (before, behind) pair per spatial dimension in one list,
    or a list of pairs for all dimensions."""
    if isinstance(value, str):
        algorithm = value.upper()
        if algorithm not in ("SAME", "VALID"):
            raise ValueError(
                f"{function}: padding must be 'SAME', 'VALID' or numbers, but is "
                f"'{value}'"
            )
        return [0] * rank, algorithm
    if not isinstance(value, (list, tuple)):
        return [_int(value, function, "padding")] * rank, "EXPLICIT"
    if value and isinstance(value[0], (list, tuple)):
        return _pairs(value, rank, channels_last, function), "EXPLICIT"
    if len(value) == 1:
        value = list(value) * rank
    if len(value) not in (rank, 2 * rank):
        raise ValueError(
            f"{function}: padding {list(value)} must have 1, {rank} or {2 * rank} "
            "numbers"
        )
    return [_int(n, function, "padding") for n in value], "EXPLICIT"


def _pairs(value, rank, channels_last, function):
    pairs = [list(pair) for pair in value]
    if len(pairs) == rank + 2:
        spatial = pairs[1:-1] if channels_last else pairs[2:]
        others = [pairs[0], pairs[-1] if channels_last else pairs[1]]
        if any(n != 0 for pair in others for n in pair):
            raise ValueError(
                f"{function}: padding {pairs} must be zero for batch and channels"
            )
        pairs = spatial
    if len(pairs) != rank or any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"{function}: padding {value} must be pairs of numbers")
    return [_int(n, function, "padding") for pair in pairs for n in pair]
