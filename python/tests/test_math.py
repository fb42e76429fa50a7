# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import paddle
import pytest
import torch
from op_check import check, check_numpy, floats, ints
from paddle import static

# ---- one input

ANYWHERE = (-2.0, 2.0)
POSITIVE = (0.1, 3.0)
INSIDE = (-0.9, 0.9)


@pytest.mark.parametrize(
    "name, domain",
    [
        ("abs", ANYWHERE),
        ("acos", INSIDE),
        ("asin", INSIDE),
        ("atan", ANYWHERE),
        ("ceil", ANYWHERE),
        ("cos", ANYWHERE),
        ("cosh", ANYWHERE),
        ("erf", ANYWHERE),
        ("exp", ANYWHERE),
        ("expm1", ANYWHERE),
        ("floor", ANYWHERE),
        ("log", POSITIVE),
        ("log10", POSITIVE),
        ("log1p", INSIDE),
        ("log2", POSITIVE),
        ("neg", ANYWHERE),
        ("reciprocal", POSITIVE),
        ("round", ANYWHERE),
        ("rsqrt", POSITIVE),
        ("sigmoid", ANYWHERE),
        ("sign", ANYWHERE),
        ("sin", ANYWHERE),
        ("sinh", ANYWHERE),
        ("sqrt", POSITIVE),
        ("square", ANYWHERE),
        ("tan", INSIDE),
        ("tanh", ANYWHERE),
        ("trunc", ANYWHERE),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_unary_functions_and_their_first_two_derivatives(name, domain, dtype):
    x = floats(3, 5, low=domain[0], high=domain[1], dtype=dtype)
    check(getattr(paddle, name), getattr(torch, name), x, second=True)
    method = getattr(paddle.to_tensor(x), name)()
    np.testing.assert_array_equal(
        method.numpy(), getattr(paddle, name)(paddle.to_tensor(x)).numpy()
    )


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sin", "tanh", "reciprocal"])
def test_functions_of_integers_are_float32(name):
    x = ints(4, low=1)
    check(getattr(paddle, name), getattr(torch, name), x, grad=False, rtol=1e-5)


@pytest.mark.parametrize("name", ["abs", "sign", "square", "neg", "floor"])
def test_functions_that_keep_integers(name):
    check(getattr(paddle, name), getattr(torch, name), ints(4), grad=False)


def test_stanh():
    check(
        lambda x: paddle.stanh(x, 0.5, 2.0),
        lambda x: 2.0 * torch.tanh(0.5 * x),
        floats(7),
        second=True,
    )


def test_nan_to_num():
    x = np.array([math.nan, math.inf, -math.inf, 1.5], "float32")
    check(paddle.nan_to_num, torch.nan_to_num, x)
    check(
        lambda x: paddle.nan_to_num(x, 1.0, 2.0, 3.0),
        lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0),
        x,
    )


@pytest.mark.parametrize("after", [True, False])
def test_scale(after):
    check(
        lambda x: paddle.scale(x, 2.5, -1.0, bias_after_scale=after),
        lambda x: x * 2.5 - 1.0 if after else (x - 1.0) * 2.5,
        floats(2, 3),
        second=True,
    )


def test_scale_with_tensor_and_activation():
    check(
        lambda x, s: paddle.scale(x, s, 1.0, act="tanh"),
        lambda x, s: torch.tanh(x * s + 1.0),
        floats(2, 3),
        floats(1),
    )


def test_round_takes_halves_away_from_zero():
    x = paddle.to_tensor([0.5, 1.5, 2.5, -0.5, 0.49999997, 8388609.0, -3.0])
    expected = [1.0, 2.0, 3.0, -1.0, 0.0, 8388609.0, -3.0]
    assert paddle.round(x).tolist() == expected
    assert paddle.round(paddle.to_tensor([math.inf])).item() == math.inf


def test_clip_gives_no_gradient_at_its_bounds():
    x = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
    paddle.clip(x, 1.0, 3.0).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0]


def test_clip():
    check(lambda x: paddle.clip(x, -1, 0.5), lambda x: x.clamp(-1, 0.5), floats(9))
    check(lambda x: paddle.clip(x, max=0.5), lambda x: x.clamp(max=0.5), floats(9))
    check(lambda x: paddle.clip(x, min=0.5), lambda x: x.clamp(min=0.5), floats(9))
    check(lambda x: x.clip(-2, 3), lambda x: x.clamp(-2, 3), ints(9), grad=False)
    check(
        lambda x, low: paddle.clip(x, low),
        lambda x, low: torch.maximum(x, low),
        floats(9),
        floats(1),
    )


# ---- two inputs


@pytest.mark.parametrize(
    "name, theirs",
    [
        ("add", torch.add),
        ("subtract", torch.sub),
        ("multiply", torch.mul),
        ("divide", torch.div),
        ("maximum", torch.maximum),
        ("minimum", torch.minimum),
        ("fmax", torch.fmax),
        ("fmin", torch.fmin),
        ("atan2", torch.atan2),
        ("mod", torch.remainder),
        ("remainder", torch.remainder),
    ],
)
@pytest.mark.parametrize("shapes", [([2, 3], [2, 3]), ([2, 3], [3]), ([2, 1], [4])])
def test_binary_functions_broadcast(name, theirs, shapes):
    x, y = floats(*shapes[0], seed=1), floats(*shapes[1], low=0.5, seed=2)
    check(getattr(paddle, name), theirs, x, y, second=True)


def test_pow_of_tensors():
    x, y = floats(3, 4, low=0.2), floats(4, seed=3)
    check(paddle.pow, torch.pow, x, y, second=True)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, 2.5])
def test_pow_of_numbers(exponent):
    x = floats(5, low=0.2)
    check(lambda x: paddle.pow(x, exponent), lambda x: x**exponent, x, second=True)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_a_tie_gives_the_gradient_to_y(name):
    x = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    y = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    getattr(paddle, name)(x, y).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]
    assert y.grad.tolist() == [1.0, 1.0]


def test_fmax_and_fmin_ignore_nan():
    x = np.array([math.nan, 1.0, math.nan])
    y = np.array([2.0, math.nan, math.nan])
    check(paddle.fmax, torch.fmax, x, y, grad=False)
    check(paddle.fmin, torch.fmin, x, y, grad=False)


def test_floor_divide_and_mod_of_integers():
    x, y = ints(20), ints(20, low=1, seed=2) * np.where(np.arange(20) % 2, 1, -1)
    check_numpy(paddle.floor_divide, np.floor_divide, x, y)
    check_numpy(paddle.mod, np.mod, x, y)


@pytest.mark.parametrize("name", ["floor_divide", "mod"])
def test_integer_division_by_zero_says_so(name):
    x = paddle.to_tensor([1, 2])
    with pytest.raises(ValueError, match="by zero in Y"):
        getattr(paddle, name)(x, paddle.to_tensor([1, 0]))


def test_integer_divide_gives_float32():
    check(paddle.divide, torch.div, ints(5), ints(5, low=1), grad=False)


def test_lerp():
    x, y, w = floats(2, 3), floats(2, 3, seed=5), floats(3, seed=6)
    check(paddle.lerp, torch.lerp, x, y, w, second=True)
    check(lambda x, y: x.lerp(y, 0.3), lambda x, y: torch.lerp(x, y, 0.3), x, y)


def test_add_n():
    x, y, z = floats(2, 3), floats(2, 3, seed=5), floats(2, 3, seed=6)
    check(lambda *a: paddle.add_n(list(a)), lambda *a: sum(a), x, y, z)
    check(paddle.add_n, lambda a: a * 1, x)


def test_multiplex():
    x, y = floats(4, 3), floats(4, 3, seed=5)
    index = np.array([[1], [0], [1], [0]], "int32")

    def expected(x, y):
        return torch.stack([y[0], x[1], y[2], x[3]])

    check(
        lambda x, y: paddle.multiplex([x, y], paddle.to_tensor(index)), expected, x, y
    )


def test_outer_and_inner():
    check(paddle.outer, torch.outer, floats(3), floats(4))
    check(paddle.inner, torch.inner, floats(3), floats(3, seed=1))
    check(paddle.inner, torch.inner, floats(2, 3), floats(4, 3))
    check(paddle.inner, torch.inner, floats(2, 3), floats(2, 4, 3))


# ---- mixed types and numbers


@pytest.mark.parametrize("left", ["int32", "int64", "float32", "float64", "uint8"])
@pytest.mark.parametrize("right", ["int8", "int64", "float16", "float64", "bool"])
def test_mixed_types_promote_as_in_torch(left, right):
    x, y = np.arange(1, 4).astype(left), np.arange(3).astype(right)
    check(paddle.add, torch.add, x, y, grad=False)
    check(lambda x, y: x * y, lambda x, y: x * y, x, y, grad=False)


def test_gradients_come_back_in_the_type_of_their_input():
    check(paddle.multiply, torch.mul, floats(3, dtype="float32"), floats(3))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64"])
@pytest.mark.parametrize("number", [2, 3.0, -7])
@pytest.mark.parametrize(
    "operation",
    [
        lambda x, n: x + n,
        lambda x, n: n + x,
        lambda x, n: x - n,
        lambda x, n: n - x,
        lambda x, n: x * n,
        lambda x, n: n * x,
        lambda x, n: x / n,
        lambda x, n: n / x,
        lambda x, n: x // n,
        lambda x, n: n // x,
        lambda x, n: x % n,
        lambda x, n: n % x,
        lambda x, n: x == n,
        lambda x, n: n != x,
        lambda x, n: x < n,
        lambda x, n: n <= x,
        lambda x, n: x > n,
        lambda x, n: n >= x,
    ],
)
def test_operators_with_numbers(dtype, number, operation):
    x = np.array([1, 2, 5]).astype(dtype)
    check(
        lambda t: operation(t, number),
        lambda t: operation(t, number),
        x,
        grad=False,
        rtol=1e-3 if dtype == "float16" else 1e-6,
    )


@pytest.mark.parametrize("number", [2, 3, 0.5])
def test_power_with_numbers(number):
    check(lambda x: x**number, lambda x: x**number, floats(4, low=0.1), second=True)
    check(lambda x: number**x, lambda x: number**x, floats(4), second=True)
    check(lambda x: x**number, lambda x: x**number, ints(4, low=0), grad=False)


def test_operators_with_numbers_have_gradients():
    def both(x):
        return ((2 - x) * 3 + x / 4 - 1 / x + (-x) % 2) ** 2 + abs(x)

    check(both, both, floats(6, low=0.3), second=True)


def test_large_integers_keep_their_digits():
    x = paddle.to_tensor([1])
    assert (x + (2**60 + 1)).tolist() == [2**60 + 2]
    assert (x * (2**60 + 1)).tolist() == [2**60 + 1]


def test_numbers_that_do_not_fit_widen_the_result():
    x = np.array([1, 200], "uint8")
    check_numpy(lambda x: x > -1, lambda x: x.astype("int64") > -1, x)
    check_numpy(lambda x: x < 300, lambda x: x.astype("int64") < 300, x)
    check_numpy(lambda x: x // 300, lambda x: x.astype("int64") // 300, x)
    y = paddle.to_tensor([1], dtype="int32")
    assert paddle.add(y, 2**40).dtype == paddle.int64
    assert (y + 2**40).tolist() == [2**40 + 1]
    with pytest.raises(OverflowError):
        paddle.to_tensor([1]) + 2**70
    assert (paddle.to_tensor([1.0]) * 2**70).item() == 2.0**70


def test_bool_tensors_count_beside_numbers():
    x = np.array([True, False])
    check(lambda x: x + 1, lambda x: x + 1, x, grad=False)
    check(lambda x: x * 2.5, lambda x: x * 2.5, x, grad=False)


def test_numpy_arrays_on_either_side():
    a = floats(3, dtype="float32")
    x = paddle.to_tensor(a)
    for result in (x + a, a + x, a * x + a - x * a + x):
        assert isinstance(result, paddle.Tensor)
        np.testing.assert_allclose(result.numpy(), 2 * a, rtol=1e-6)
    assert isinstance(np.float32(2) * x, paddle.Tensor)
    assert (np.float32(2) * x).dtype == paddle.float32
    assert (x * np.float64(2)).dtype == paddle.float32


def test_augmented_assignment_leaves_others_alone():
    x = paddle.to_tensor([1.0, 2.0])
    before = x
    x += 1
    x *= 2
    x -= 1
    x /= 2
    assert x.tolist() == [1.5, 2.5]
    assert before.tolist() == [1.0, 2.0]


def test_matmul_operator_with_arrays():
    a, b = floats(2, 3), floats(3, 4)
    x = paddle.to_tensor(a)
    np.testing.assert_allclose((x @ b).numpy(), a @ b)
    np.testing.assert_allclose((b.T @ paddle.to_tensor(a.T)).numpy(), b.T @ a.T)


# ---- reductions


@pytest.mark.parametrize("axis", [None, 0, -1, [0, 2], (1,)])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "logsumexp"])
def test_reductions(name, axis, keepdim):
    x = floats(2, 3, 4)

    def theirs(x):
        axes = tuple(range(3)) if axis is None else axis
        axes = (axes,) if isinstance(axes, int) else tuple(axes)
        if name == "prod":
            for a in sorted((a % 3 for a in axes), reverse=True):
                x = x.prod(a, keepdim=keepdim)
            return x
        function = {"max": torch.amax, "min": torch.amin}.get(name)
        function = function or getattr(torch, name)
        return function(x, axes, keepdim=keepdim)

    check(
        lambda x: getattr(paddle, name)(x, axis, keepdim=keepdim),
        theirs,
        x,
        second=True,
    )


@pytest.mark.parametrize("zeros", [1, 2])
def test_gradient_of_prod_with_zeros(zeros):
    x = floats(2, 4)
    x[0, :zeros] = 0
    check(lambda x: paddle.prod(x, 1), lambda x: torch.prod(x, 1), x)


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("name", ["amax", "amin"])
def test_amax_shares_the_gradient_of_ties(name, axis):
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 1.0]])
    axes = (0, 1) if axis is None else axis
    check(
        lambda x: getattr(paddle, name)(x, axis),
        lambda x: getattr(torch, name)(x, axes),
        x,
    )


def test_max_gives_every_tie_the_whole_gradient():
    x = paddle.to_tensor([1.0, 3.0, 3.0], stop_gradient=False)
    paddle.max(x).backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("axis", [None, 0, [0, 1]])
def test_all_and_any(axis):
    x = ints(2, 3, low=0, high=2).astype(bool)
    axes = tuple(axis) if isinstance(axis, list) else axis
    check_numpy(lambda x: paddle.all(x, axis), lambda x: np.all(x, axes), x)
    check_numpy(lambda x: paddle.any(x, axis), lambda x: np.any(x, axes), x)


def test_sum_of_integers_and_booleans_is_int64():
    for dtype in ("bool", "int32", "uint8"):
        x = paddle.to_tensor(np.ones((300,), dtype))
        assert x.sum().dtype == paddle.int64
        assert x.sum().item() == 300
    assert paddle.sum(paddle.to_tensor([1, 2]), dtype="float64").dtype == paddle.float64


def test_full_reductions_have_shape_one():
    x = paddle.to_tensor(floats(2, 3))
    for name in ("sum", "mean", "max", "min", "prod", "std", "var", "median", "norm"):
        assert getattr(x, name)().shape == [1], name


def test_the_mean_of_integers_says_to_cast():
    with pytest.raises(ValueError, match="cast"):
        paddle.mean(paddle.to_tensor([1, 2]))


def test_count_nonzero():
    x = ints(3, 4, low=0, high=2)
    check_numpy(paddle.count_nonzero, np.count_nonzero, x)
    check_numpy(
        lambda x: paddle.count_nonzero(x, 1, keepdim=True),
        lambda x: np.count_nonzero(x, 1, keepdims=True),
        x,
    )


# ---- small tensors take loops of their own


@pytest.mark.parametrize("shape", [[1], [7], [64, 64], [64, 65], [0]])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "ours, theirs",
    [
        (lambda x, y: x + y, lambda x, y: x + y),
        (lambda x, y: x - y, lambda x, y: x - y),
        (lambda x, y: x * y, lambda x, y: x * y),
        (lambda x, y: x * 3 + 1 - y, lambda x, y: x * 3 + 1 - y),
        (lambda x, y: paddle.square(x) - y, lambda x, y: torch.square(x) - y),
        (lambda x, y: paddle.sum(x * y), lambda x, y: torch.sum(x * y)),
        (lambda x, y: paddle.mean(x * y), lambda x, y: torch.mean(x * y)),
        (
            lambda x, y: paddle.mean(x * y, [0], keepdim=True),
            lambda x, y: torch.mean(x * y, [0], keepdim=True),
        ),
    ],
)
def test_small_and_large_agree_with_torch(shape, transposed, ours, theirs):
    if transposed and len(shape) == 2:
        x = floats(*shape[::-1], dtype="float32").T
    else:
        x = floats(*shape, dtype="float32")
    y = floats(*shape, seed=1, dtype="float32")
    check(ours, theirs, x, y, second=True)


# ---- along one axis


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumsum_and_cumprod(axis):
    x = floats(3, 4)
    check(lambda x: x.cumsum(axis), lambda x: x.cumsum(axis), x, second=True)
    check(lambda x: x.cumprod(axis), lambda x: x.cumprod(axis), x, second=True)


def test_cumsum_and_cumprod_of_all_elements():
    x = floats(3, 4)
    check(paddle.cumsum, lambda x: x.flatten().cumsum(0), x)
    check(paddle.cumprod, lambda x: x.flatten().cumprod(0), x)
    check_numpy(lambda x: paddle.cumsum(x, 0, "float64"), lambda x: x * 1.0, ints(1))


def test_gradient_of_cumprod_with_zeros():
    x = floats(2, 4)
    x[0, 1] = 0
    check(lambda x: x.cumprod(1), lambda x: x.cumprod(1), x)


def test_cumsum_exclusive_and_reversed():
    from paddle import _ops

    x = floats(5)
    check(
        lambda x: _ops.cumsum(x, exclusive=True, reverse=True),
        lambda x: x.flip(0).cumsum(0).flip(0) - x,
        x,
    )


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_diff(n, axis):
    x = floats(4, 5)
    check(
        lambda x: paddle.diff(x, n, axis),
        lambda x: torch.diff(x, n, axis),
        x,
        second=True,
    )


def test_diff_of_too_few_is_refused_where_a_program_is_built():
    paddle.enable_static()
    try:
        with static.program_guard(static.Program()):
            x = static.data("x", [3, 1])
            with pytest.raises(ValueError, match="n is 2 but dimension 1"):
                paddle.diff(x, 2, 1)
    finally:
        paddle.disable_static()


def test_diff_with_ends_and_of_booleans():
    check(
        lambda x, y: paddle.diff(x, prepend=y, append=y),
        lambda x, y: torch.diff(x, prepend=y, append=y),
        floats(4),
        floats(1),
    )
    check(paddle.diff, torch.diff, np.array([True, False, False]), grad=False)


# ---- bad input


def test_shapes_that_do_not_broadcast():
    x, y = paddle.ones([2, 3]), paddle.ones([4])
    with pytest.raises(ValueError, match=r"elementwise_add.*\[2, 3\].*\[4\]"):
        x + y
    with pytest.raises(ValueError, match="3 against 4"):
        paddle.maximum(x, y)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "prod", "logsumexp", "std"])
def test_an_axis_outside_of_the_tensor(name):
    x = paddle.ones([2, 3])
    with pytest.raises(ValueError, match=r"axis is 2 but must lie in \[-2, 1\]"):
        getattr(paddle, name)(x, axis=2)
    with pytest.raises(TypeError, match="axis must be an int"):
        getattr(paddle, name)(x, axis="rows")


def test_arguments_that_are_no_tensors():
    with pytest.raises(TypeError, match="must be a Tensor, but got list"):
        paddle.exp([1.0])
    with pytest.raises(TypeError, match="one of them must be a Tensor"):
        paddle.add(1, 2)
    with pytest.raises(TypeError, match="argument 'y'"):
        paddle.add(paddle.ones([1]), "a")
    with pytest.raises(TypeError):
        paddle.ones([1]) + "a"


def test_booleans_have_no_negative():
    with pytest.raises(ValueError, match="scale.*not bools"):
        -paddle.to_tensor([True])


def test_unknown_arguments():
    with pytest.raises(TypeError, match="dims"):
        paddle.sum(paddle.ones([2]), dims=0)
    with pytest.raises(TypeError):
        paddle.exp(paddle.ones([2]), 1, 2)


def test_add_n_and_multiplex_bad_input():
    with pytest.raises(ValueError, match=r"X\[1\] has shape \[3\]"):
        paddle.add_n([paddle.ones([2]), paddle.ones([3])])
    with pytest.raises(ValueError, match="empty"):
        paddle.add_n([])
    rows = [paddle.ones([2, 2]), paddle.ones([2, 2])]
    with pytest.raises(ValueError, match=r"\[0, 2\)"):
        paddle.multiplex(rows, paddle.to_tensor([0, 2]))


def test_clip_with_bounds_in_the_wrong_order():
    with pytest.raises(ValueError, match="above max"):
        paddle.clip(paddle.ones([2]), 2.0, 1.0)


def test_diff_and_cumsum_bad_axis():
    with pytest.raises(ValueError, match="axis is 1"):
        paddle.cumsum(paddle.ones([2]), 1)
    with pytest.raises(ValueError, match="n must not be negative"):
        paddle.diff(paddle.ones([2]), -1)
