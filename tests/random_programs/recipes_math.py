# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops, comparisons, reductions, matrices."""

from recipes import recipe
from value import Reject, distinct


def _squash(d, value):
    """At times the value itself, at times one near zero, where functions bend."""
    return value if d.chance(0.7) else d.squashed(value)


@recipe(
    *"abs square sign silu mish tanhshrink logsigmoid sin cos atan sinh cosh erf expm1 "
    "softsign relu tanh sigmoid exp floor ceil round trunc hard_swish relu6 "
    "assign fill_zeros_like".split()
)
def unary(d, op):
    d.call(op, _squash(d, d.floats()))


@recipe("tan", "asin", "acos")
def unary_near_zero(d, op):
    d.call(op, d.squashed(d.floats()))


@recipe("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal")
def unary_positive(d, op):
    d.call(op, d.positive(d.floats()))


_ATTRIBUTES = {
    "stanh": {"scale_a": (0.2, 1.5), "scale_b": (0.5, 2.0)},
    "leaky_relu": {"alpha": (0.0, 0.5)},
    "elu": {"alpha": (0.2, 2.0)},
    "celu": {"alpha": (0.2, 2.0)},
    "selu": {"scale": (1.01, 1.5), "alpha": (0.5, 2.0)},
    "hard_shrink": {"threshold": (0.0, 1.0)},
    "softshrink": {"lambda": (0.0, 1.0)},
    "softplus": {"beta": (0.3, 3.0), "threshold": (1.0, 20.0)},
    "thresholded_relu": {"threshold": (-0.5, 1.0)},
    "swish": {"beta": (0.3, 3.0)},
    "hard_sigmoid": {"slope": (0.1, 0.5), "offset": (0.2, 0.8)},
    "scale": {"scale": (-2.0, 2.0), "bias": (-1.0, 1.0)},
    "increment": {"step": (-2.0, 2.0)},
    "clip_by_norm": {"max_norm": (0.1, 5.0)},
    "nan_to_num": {"nan": (-1.0, 1.0), "posinf": (1.0, 2.0), "neginf": (-2.0, -1.0)},
}


@recipe(*_ATTRIBUTES)
def unary_with_numbers(d, op):
    numbers = {k: d.number_in(*r) for k, r in _ATTRIBUTES[op].items() if d.chance(0.8)}
    if op in ("clip_by_norm", "nan_to_num"):
        numbers = {k: d.number_in(*r) for k, r in _ATTRIBUTES[op].items()}
    arguments = ", ".join(f"{k!r}: {v}" for k, v in numbers.items())
    if op == "increment":
        value = d.floats(where=lambda v: v.size == 1)
    else:
        value = _squash(d, d.floats())
    d.line(f"ops.{op}({value.name}, **{{{arguments}}})")


@recipe("gelu")
def gelu(d, op):
    d.call(op, d.floats(), approximate=d.chance(0.5))


@recipe("brelu", "clip")
def between(d, op):
    low = d.number_in(-1.5, 0.2)
    names = ("t_min", "t_max") if op == "brelu" else ("min", "max")
    d.call(op, d.floats(), **dict(zip(names, (low, low + d.number_in(0.1, 2)))))


@recipe("pow")
def pow(d, op):
    if d.chance(0.5):
        d.call(op, d.floats(), factor=float(d.one_of(0, 1, 2, 3)))
    else:
        d.call(op, d.positive(d.floats()), factor=d.number_in(-2, 3))


@recipe("isnan_v2", "isinf_v2", "isfinite_v2", "logical_not")
def asked(d, op):
    d.call(op, d.floats())


# ---- two tensors


def broadcasting(d, x):
    """A value that broadcasts against `x`: of its shape, or with ones, or shorter."""
    shape = list(x.shape)
    there = [
        v
        for v in d.values
        if v.floating and v.rank <= x.rank and _broadcasts(v.shape, x.shape)
    ]
    if there and d.chance(0.6):
        return d.rng.choice(there)
    if d.chance(0.3):
        shape = [1 if d.chance(0.4) else n for n in shape]
    if d.chance(0.3) and shape:
        shape = shape[d.rng.randrange(len(shape)) :]
    return d.floats(shape=shape, fresh=0.4)


def _broadcasts(small, large):
    return all(a in (b, 1) for a, b in zip(reversed(small), reversed(large)))


def _pair(d):
    x = d.floats()
    y = broadcasting(d, x)
    return (x, y) if d.chance(0.6) else (y, x)


@recipe(
    *"elementwise_add elementwise_sub elementwise_mul elementwise_max elementwise_min "
    "elementwise_fmax elementwise_fmin minus atan2".split()
)
def binary(d, op):
    if op.startswith("elementwise") and d.chance(0.25):
        return aligned(d, op)
    x, y = _pair(d)
    d.call(op, x, y)


def aligned(d, op):
    """Paddle's `axis`: y stands at that dimension of x."""
    x = d.floats(rank=(2, 3, 4))
    first = d.rng.randrange(x.rank)
    count = d.rng.randrange(1, x.rank - first + 1)
    y = d.floats(shape=x.shape[first : first + count])
    if op in ("elementwise_div", "elementwise_pow"):
        y = d.positive(y)
    if op == "elementwise_pow":
        x = d.positive(x)
    d.call(op, x, y, axis=first)


@recipe("elementwise_div", "elementwise_mod", "elementwise_floordiv")
def divided(d, op):
    if op == "elementwise_div" and d.chance(0.2):
        return aligned(d, op)
    x, y = _pair(d)
    d.call(op, x, d.positive(y))


@recipe("elementwise_pow")
def power(d, op):
    if d.chance(0.2):
        return aligned(d, op)
    x, y = _pair(d)
    d.call(op, d.positive(x), d.squashed(y))


@recipe("lerp")
def lerp(d, op):
    x, y = _pair(d)
    d.call(op, x, y, broadcasting(d, x if x.rank >= y.rank else y))


@recipe("sum")
def sum_of_several(d, op):
    x = d.floats()
    others = [d.floats(shape=x.shape) for _ in range(d.rng.randrange(0, 4))]
    d.call(op, [x, *others, *([x] if d.chance(0.3) else [])])


@recipe(*"equal not_equal less_than less_equal greater_than greater_equal".split())
def compared(d, op):
    x, y = _pair(d)
    if d.chance(0.5):
        x, y = (d.line(f"paddle.round({v.name})") for v in (x, y))
    d.call(op, x, y)


def boolean(d, shape):
    there = [v for v in d.values if v.array.dtype.kind == "b" and v.shape == shape]
    if there and d.chance(0.4):
        return d.rng.choice(there)
    return d.line(f"{d.floats(shape=shape).name} > {d.number_in(-0.5, 0.5)}")


@recipe("logical_and", "logical_or", "logical_xor")
def logical(d, op):
    x = d.floats()
    d.call(op, boolean(d, x.shape), boolean(d, x.shape))


@recipe("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
def bitwise(d, op):
    shape = d.floats().shape
    if d.chance(0.3):
        inputs = [boolean(d, shape) for _ in range(2)]
    else:
        dtype = d.one_of("int32", "int64")
        inputs = [d.integers(shape, 30, dtype) for _ in range(2)]
    d.call(op, *inputs[: 1 if op == "bitwise_not" else 2])


@recipe("isclose", "allclose", "equal_all")
def close(d, op):
    x = d.floats(where=lambda v: v.size > 0)
    y = x if d.chance(0.5) else d.floats(shape=x.shape)
    if op == "equal_all":
        d.call(op, x, y)
    else:
        d.call(op, x, y, rtol=0.3, atol=d.number_in(0, 1), equal_nan=d.chance(0.5))


# ---- reductions


def reduced(d, value):
    """Attributes of a reduction."""
    if d.split and value.rows == "rows":
        if value.rank < 2:
            raise Reject
        dims = [i for i in range(1, value.rank) if d.chance(0.6)] or [value.rank - 1]
        return {"dim": dims, "keep_dim": d.chance(0.5)}
    if d.chance(0.3):
        return {"reduce_all": d.chance(0.5), "keep_dim": d.chance(0.5)}
    dims = [i for i in range(value.rank) if d.chance(0.5)] or [value.rank - 1]
    if d.chance(0.3):
        dims = [i - value.rank for i in dims]
    d.rng.shuffle(dims)
    return {"dim": dims, "keep_dim": d.chance(0.5)}


def _not_empty(value):
    return value.size > 0 and value.rank > 0


@recipe(
    *"reduce_sum reduce_mean reduce_max reduce_min reduce_amax reduce_amin reduce_prod "
    "logsumexp frobenius_norm".split()
)
def reduction(d, op):
    value = d.floats(where=_not_empty)
    if op == "reduce_prod":
        value = d.squashed(value)
    attrs = reduced(d, value)
    if op in ("reduce_max", "reduce_min"):
        value = _apart(d, value)
        whole = attrs.get("reduce_all") or "dim" not in attrs
        dims = range(value.rank) if whole else attrs["dim"]
        distinct(value, [i % value.rank for i in dims])
    d.call(op, value, **attrs)


def _apart(d, value):
    """A value whose elements hardly are equal."""
    shape = value.shape[1:] if value.rows == "rows" else value.shape
    return d.line(f"{value.name} + {d.parameter(shape or (1,)).name}")


@recipe("var")
def variance(d, op):
    value = d.floats(where=_not_empty)
    d.call(op, value, unbiased=False, **reduced(d, value))


@recipe("reduce_all", "reduce_any")
def reduced_bool(d, op):
    value = d.floats(where=_not_empty)
    d.call(op, boolean(d, value.shape), **reduced(d, value))


@recipe("mean", "squared_l2_norm")
def to_one(d, op):
    d.call(op, d.floats(where=_not_empty))


@recipe("p_norm")
def p_norm(d, op):
    value = d.floats(where=_not_empty)
    order = d.one_of(0.0, 1.0, 2.0, 3.0, 1.5, float("inf"), float("-inf"))
    if abs(order) == float("inf"):
        value = _apart(d, value)
    value = d.positive(value)
    text = f"float('{order}')" if abs(order) == float("inf") else f"{order}"
    keep = d.chance(0.5)
    whole = d.chance(0.3) and not d.split
    axis = None if whole else d.axis(value)
    if abs(order) == float("inf"):
        distinct(value, range(value.rank) if whole else [axis % value.rank])
    if whole:
        d.line(
            f"ops.p_norm({value.name}, porder={text}, asvector=True, keepdim={keep})"
        )
    else:
        d.line(f"ops.p_norm({value.name}, porder={text}, axis={axis}, keepdim={keep})")


@recipe("dist")
def dist(d, op):
    x, y = _pair(d)
    d.call(op, d.positive(x), d.squashed(y), p=d.one_of(1.0, 2.0, 3.0, 0.0))
