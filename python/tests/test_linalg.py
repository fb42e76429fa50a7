# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import paddle
import pytest
import torch
from op_check import check, check_numpy, floats, ints


def symmetric(*shape):
    x = floats(*shape)
    return x + np.swapaxes(x, -1, -2)


def positive(*shape):
    x = floats(*shape)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])


# ---- products


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "x, y",
    [
        ([3, 4], [4, 5]),
        ([4], [4]),
        ([4], [4, 5]),
        ([3, 4], [4]),
        ([2, 3, 4], [2, 4, 5]),
        ([2, 3, 4], [4, 5]),
        ([3, 4], [2, 4, 5]),
        ([2, 1, 3, 4], [5, 4, 2]),
        ([2, 3, 4], [4]),
        ([4], [2, 4, 3]),
    ],
)
def test_matmul(x, y, dtype):
    x, y = floats(*x, dtype=dtype), floats(*y, seed=1, dtype=dtype)
    check(paddle.matmul, torch.matmul, x, y, second=dtype == "float64")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("batch", [[], [2]])
@pytest.mark.parametrize("trans_x", [True, False])
@pytest.mark.parametrize("trans_y", [True, False])
def test_matmul_of_transposed(batch, trans_x, trans_y, dtype):
    x = floats(*batch, *([4, 3] if trans_x else [3, 4]), dtype=dtype)
    y = floats(*batch, *([5, 4] if trans_y else [4, 5]), seed=1, dtype=dtype)
    check(
        lambda x, y: paddle.matmul(x, y, trans_x, trans_y),
        lambda x, y: (x.mT if trans_x else x) @ (y.mT if trans_y else y),
        x,
        y,
        second=True,
    )


def test_matmul_of_integers():
    check(paddle.matmul, torch.matmul, ints(2, 3), ints(3, 2), grad=False)


def test_matmul_without_rows():
    out = paddle.matmul(paddle.zeros([0, 3]), paddle.zeros([3, 2]))
    assert out.shape == [0, 2]
    out = paddle.matmul(paddle.zeros([2, 0]), paddle.zeros([0, 2]))
    assert out.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("shape", [(6, 0), (2, 3, 0), (0,), (0, 0)])
def test_rows_without_columns(shape):
    layer = paddle.nn.Linear(0, 3)
    layer.bias.set_value(np.array([1, 2, 3], "float32"))
    x = paddle.zeros(shape)
    x.stop_gradient = False
    out = layer(x)
    want = np.broadcast_to(np.array([1, 2, 3], "float32"), (*shape[:-1], 3))
    np.testing.assert_array_equal(out.numpy(), want)
    out.sum().backward()
    assert x.grad.shape == list(shape) and layer.weight.grad.shape == [0, 3]
    assert layer.bias.grad.tolist() == [want[..., 0].size] * 3
    product = paddle.matmul(x, layer.weight)
    assert product.shape == [*shape[:-1], 3] and not product.numpy().any()


# Eagerly a part is a view, elsewhere a copy: products and sums of both are equal.
REDUCTIONS = {
    "sum": paddle.sum,
    "mean": paddle.mean,
    "prod": paddle.prod,
    "logsumexp": paddle.logsumexp,
    "var": paddle.var,
    "norm": lambda x, axis: paddle.norm(x, 2.0, axis),
    "norm of 3": lambda x, axis: paddle.norm(x, 3.0, axis),
    "normalize": lambda x, axis: paddle.nn.functional.normalize(x, axis=axis),
    "trace": lambda x, axis: paddle.trace(x),
    "matmul": lambda x, axis: paddle.matmul(x, x, transpose_y=True),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_view_and_a_copy_of_it_are_added_up_alike(name):
    for seed in range(10):
        x = np.random.default_rng(seed).standard_normal((7, 12, 9)).astype("float32")
        whole = paddle.to_tensor(x)
        for view in (
            whole[:, 1:],
            whole[:, :, ::2],
            whole[0].unsqueeze(0).expand([5, 12, 9]),
            whole[0].unsqueeze(-1).expand([12, 9, 7]),
        ):
            copy = paddle.to_tensor(view.numpy())
            for axis in range(3):
                np.testing.assert_array_equal(
                    REDUCTIONS[name](view, axis=axis).numpy(),
                    REDUCTIONS[name](copy, axis=axis).numpy(),
                )


def test_mm_bmm_mv_t():
    check(paddle.mm, torch.mm, floats(2, 3), floats(3, 4))
    check(paddle.bmm, torch.bmm, floats(2, 3, 4), floats(2, 4, 5))
    check(paddle.mv, torch.mv, floats(2, 3), floats(3))
    check(paddle.t, torch.t, floats(2, 3))
    check(paddle.t, lambda x: x * 1, floats(3))


def test_dot():
    check(paddle.dot, torch.dot, floats(4), floats(4, seed=1), second=True)
    check(
        paddle.dot,
        lambda x, y: (x * y).sum(-1, keepdim=True),
        floats(3, 4),
        floats(3, 4, seed=1),
    )


def test_addmm():
    check(
        lambda i, x, y: paddle.addmm(i, x, y, beta=0.5, alpha=2.0),
        lambda i, x, y: torch.addmm(i, x, y, beta=0.5, alpha=2.0),
        floats(1, 4),
        floats(3, 2),
        floats(2, 4),
        second=True,
    )


@pytest.mark.parametrize("axis", [0, -1])
def test_cross(axis):
    shape = [3, 2] if axis == 0 else [2, 3]
    check(
        lambda x, y: paddle.cross(x, y, axis),
        lambda x, y: torch.linalg.cross(x, y, dim=axis),
        floats(*shape),
        floats(*shape, seed=1),
        second=True,
    )


def test_cross_finds_its_axis():
    x, y = floats(2, 3, 4), floats(2, 3, 4, seed=1)
    check(paddle.cross, lambda x, y: torch.linalg.cross(x, y, dim=1), x, y)


@pytest.mark.parametrize("x, y", [([2, 3], [4, 5]), ([3], [2, 2]), ([2, 1, 2], [3])])
def test_kron(x, y):
    check(paddle.kron, torch.kron, floats(*x), floats(*y, seed=1), second=True)


# ---- norms


@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, 2.5, math.inf, -math.inf])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("keepdim", [True, False])
def test_vector_norms(p, axis, keepdim):
    check(
        lambda x: paddle.norm(x, p, axis, keepdim),
        lambda x: torch.linalg.vector_norm(x, p, axis, keepdim),
        floats(3, 4),
    )


@pytest.mark.parametrize("p", ["fro", 1, 2, 3, math.inf, -math.inf])
def test_norms_of_matrices_are_of_their_elements(p):
    check(
        lambda x: paddle.norm(x, p, [0, 2]),
        lambda x: torch.linalg.vector_norm(x, 2 if p == "fro" else p, (0, 2)),
        floats(2, 3, 4),
    )


def test_norm_of_zero_has_gradient_zero():
    x = paddle.zeros([3])
    x.stop_gradient = False
    paddle.norm(x).backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_second_derivative_of_the_norm():
    check(paddle.norm, torch.linalg.vector_norm, floats(3, 4), second=True)


@pytest.mark.parametrize("p", [0, 1, 2, 3, math.inf])
def test_dist(p):
    check(
        lambda x, y: paddle.dist(x, y, p),
        lambda x, y: torch.dist(x, y, p),
        floats(3, 4),
        floats(4, seed=1),
        grad=p != 0,  # torch fails there
    )


# ---- one matrix


@pytest.mark.parametrize("offset", [-1, 0, 1, 5])
def test_trace(offset):
    check(
        lambda x: paddle.trace(x, offset),
        lambda x: torch.diagonal(x, offset).sum(-1),
        floats(3, 4),
    )
    check(
        lambda x: paddle.trace(x, offset, 0, -1),
        lambda x: torch.diagonal(x, offset, 0, -1).sum(-1),
        floats(3, 2, 4),
        second=True,
    )


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("batch", [[], [2]])
def test_cholesky(upper, batch):
    check(
        lambda x: paddle.cholesky(x, upper),
        lambda x: torch.linalg.cholesky(x, upper=upper),
        positive(*batch, 3, 3),
        second=True,
    )


@pytest.mark.parametrize("batch", [[], [2]])
def test_inverse_and_determinants(batch):
    x = positive(*batch, 3, 3)
    check(paddle.inverse, torch.linalg.inv, x, second=True)
    check(paddle.linalg.det, torch.linalg.det, x, second=True)

    def slogdet(x):
        return torch.stack(torch.linalg.slogdet(x))

    check(paddle.linalg.slogdet, slogdet, x, second=True)


@pytest.mark.parametrize("shape", [[3, 3], [4, 2], [2, 4], [2, 3, 4]])
def test_svd(shape):
    # Signs are free: what does not depend on them is compared.
    def invariant(svd):
        def function(x):
            u, s, vh = svd(x)
            return s, u[..., :, :1] @ vh[..., :1, :], (u * u) @ (vh * vh)

        return function

    check(
        invariant(paddle.linalg.svd),
        invariant(lambda x: torch.linalg.svd(x, full_matrices=False)),
        floats(*shape),
        rtol=1e-6,
    )


def test_svd_with_full_matrices():
    x = floats(4, 2)
    u, s, vh = (t.numpy() for t in paddle.linalg.svd(paddle.to_tensor(x), True))
    assert u.shape == (4, 4) and vh.shape == (2, 2)
    np.testing.assert_allclose(u[:, :2] * s @ vh, x, atol=1e-12)
    np.testing.assert_allclose(u.T @ u, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("shape", [[3, 3], [4, 2], [2, 4, 3]])
def test_qr(shape):
    check(paddle.linalg.qr, torch.linalg.qr, floats(*shape), second=True)


def test_qr_modes():
    x = floats(4, 2)
    check_numpy(
        lambda x: paddle.linalg.qr(x, "complete"),
        lambda x: tuple(np.linalg.qr(x, "complete")),
        x,
    )
    check_numpy(lambda x: paddle.linalg.qr(x, "r"), lambda x: np.linalg.qr(x, "r"), x)


@pytest.mark.parametrize("batch", [[], [2]])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigh(batch, uplo):
    def invariant(eigh):
        def function(x):
            values, vectors = eigh(x, uplo)
            return values, vectors * vectors

        return function

    check(
        invariant(paddle.linalg.eigh),
        invariant(lambda x, uplo: torch.linalg.eigh(x, UPLO=uplo)),
        symmetric(*batch, 3, 3),
        rtol=1e-6,
    )


@pytest.mark.parametrize("shape", [[3, 3], [4, 2], [2, 4], [2, 3, 2]])
def test_pinv(shape):
    check(paddle.linalg.pinv, torch.linalg.pinv, floats(*shape), second=True, rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 5, -1, -2])
def test_matrix_power(n):
    check(
        lambda x: paddle.linalg.matrix_power(x, n),
        lambda x: torch.linalg.matrix_power(x, n),
        positive(2, 3, 3) / 3,
        rtol=1e-6,
    )


# ---- equations


@pytest.mark.parametrize("y", [[3], [3, 2], [2, 3, 1]])
def test_solve(y):
    check(
        paddle.linalg.solve, torch.linalg.solve, positive(3, 3), floats(*y), second=True
    )


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_solve(upper, transpose, unit):
    def theirs(x, y):
        if unit:
            x = x - torch.diag_embed(torch.diagonal(x, 0, -2, -1)) + torch.eye(3)
        half = x.triu() if upper else x.tril()
        return torch.linalg.solve(half.mT if transpose else half, y)

    check(
        lambda x, y: paddle.linalg.triangular_solve(x, y, upper, transpose, unit),
        theirs,
        positive(2, 3, 3),
        floats(3, 2),
    )


# ---- bad input


def test_products_that_do_not_fit():
    x, y = paddle.ones([2, 3]), paddle.ones([4, 5])
    with pytest.raises(ValueError, match="inner dimensions differ: 3 of X against 4"):
        paddle.matmul(x, y)
    with pytest.raises(ValueError, match="must have 3 dimensions"):
        paddle.bmm(x, y)
    with pytest.raises(ValueError, match="2 matrices but y has 3"):
        paddle.bmm(paddle.ones([2, 3, 4]), paddle.ones([3, 4, 5]))
    with pytest.raises(ValueError, match="vec must have 1 dimensions"):
        paddle.mv(x, y)
    with pytest.raises(ValueError, match="dot"):
        paddle.dot(x, y)
    with pytest.raises(ValueError, match="must be matrices that fit"):
        paddle.addmm(x, x, y)
    with pytest.raises(ValueError, match="no dimension"):
        paddle.cross(paddle.ones([2, 2]), paddle.ones([2, 2]))
    with pytest.raises(ValueError, match="must be 3"):
        paddle.cross(x, x, 0)
    with pytest.raises(ValueError, match="matmul_v2.*float32.*float64"):
        paddle.matmul(x, paddle.ones([3, 2], "float64"))
    with pytest.raises(ValueError, match="at most two dimensions"):
        paddle.t(paddle.ones([1, 2, 3]))


@pytest.mark.parametrize("name", ["cholesky", "inv", "det", "slogdet", "eigh"])
def test_matrices_that_are_not_square(name):
    with pytest.raises(ValueError, match="must be square"):
        getattr(paddle.linalg, name)(paddle.ones([2, 3]))
    with pytest.raises(ValueError, match="at least two dimensions"):
        getattr(paddle.linalg, name)(paddle.ones([2]))


def test_matrices_that_have_no_answer():
    with pytest.raises(ValueError, match="inverse"):
        paddle.inverse(paddle.zeros([2, 2]))
    with pytest.raises(ValueError, match="cholesky"):
        paddle.cholesky(paddle.zeros([2, 2]) - 1)
    with pytest.raises(ValueError, match="solve"):
        paddle.linalg.solve(paddle.zeros([2, 2]), paddle.ones([2]))


def test_arguments_out_of_range():
    x = paddle.ones([2, 3])
    with pytest.raises(ValueError, match="axis is 2"):
        paddle.norm(x, axis=2)
    with pytest.raises(ValueError, match="p must be"):
        paddle.norm(x, p="nuc")
    with pytest.raises(ValueError, match="one or two axes"):
        paddle.norm(paddle.ones([1, 1, 1]), axis=[0, 1, 2])
    with pytest.raises(ValueError, match="floating-point"):
        paddle.norm(paddle.ones([2], "int64"))
    with pytest.raises(ValueError, match="axis1 and axis2"):
        paddle.trace(x, 0, 1, 1)
    with pytest.raises(ValueError, match="mode"):
        paddle.linalg.qr(x, "full")
    with pytest.raises(ValueError, match="UPLO"):
        paddle.linalg.eigh(paddle.ones([2, 2]), "X")
    with pytest.raises(ValueError, match="columns of Y"):
        paddle.linalg.solve(paddle.ones([2, 2]), paddle.ones([3, 1]))
