# SPDX-License-Identifier: Apache-2.0
"""Every kind of operation in short types on the CPU, with its gradient: in a plain run
and by a plan, against float32."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn, static
from paddle.static import amp
from static_check import fresh_programs  # noqa: F401

pytestmark = pytest.mark.usefixtures("fresh_programs")


def of_images(function):
    return lambda h: function(paddle.reshape(h, [-1, 2, 4, 4]))


def positive(h):
    return h * h + 1.0


OPS = {
    "acos": lambda h: paddle.acos(h * 0.3),
    "asin": lambda h: paddle.asin(h * 0.3),
    "cosh": paddle.cosh,
    "sinh": paddle.sinh,
    "tan": lambda h: paddle.tan(h * 0.3),
    "exp": paddle.exp,
    "expm1": paddle.expm1,
    "log": lambda h: paddle.log(positive(h)),
    "log10": lambda h: paddle.log10(positive(h)),
    "log2": lambda h: paddle.log2(positive(h)),
    "log1p": lambda h: paddle.log1p(h * h),
    "reciprocal": lambda h: paddle.reciprocal(positive(h)),
    "rsqrt": lambda h: paddle.rsqrt(positive(h)),
    "pow": lambda h: paddle.pow(h, 2.0),
    "square": paddle.square,
    "cumsum": lambda h: paddle.cumsum(h * 0.1, 1),
    "cumprod": lambda h: paddle.cumprod(h * 0.1 + 1.0, 1),
    "logsumexp": lambda h: paddle.logsumexp(h, 1, keepdim=True) + h,
    "softmax": F.softmax,
    "log_softmax": F.log_softmax,
    "softplus": F.softplus,
    "tanh": paddle.tanh,
    "tanhshrink": F.tanhshrink,
    "reduce_sum": lambda h: paddle.sum(h, 1, keepdim=True) * 0.1 + h,
    "reduce_mean": lambda h: paddle.mean(h, 1, keepdim=True) + h,
    "reduce_prod": lambda h: paddle.prod(h * 0.1 + 1.0, 1, keepdim=True) + h,
    "mean": lambda h: paddle.fluid.layers.mean(h) + h,
    "sum": lambda h: paddle.add_n([h, h]),
    "p_norm": lambda h: paddle.norm(h, 2, 1, keepdim=True) * 0.1 + h,
    "sqrt": lambda h: paddle.sqrt(positive(h)),
    "var": lambda h: paddle.var(h, 1, keepdim=True) * 0.1 + h,
    "abs": paddle.abs,
    "elu": F.elu,
    "celu": F.celu,
    "selu": F.selu,
    "silu": F.silu,
    "swish": F.swish,
    "mish": F.mish,
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
    "logsigmoid": F.log_sigmoid,
    "softshrink": F.softshrink,
    "softsign": F.softsign,
    "thresholded_relu": F.thresholded_relu,
    "prelu": lambda h: nn.PReLU()(h),
    "maxout": of_images(lambda h: F.maxout(h, 2)),
    "flip": lambda h: paddle.flip(h, [1]),
    "roll": lambda h: paddle.roll(h, 3, 1),
    "strided_slice": lambda h: h[:, ::2],
    "index_select": lambda h: paddle.index_select(h, paddle.to_tensor([3, 1]), 1),
    "gather_nd": lambda h: paddle.gather_nd(
        h, paddle.to_tensor([[i] for i in range(16)])
    ),
    "where": lambda h: paddle.where(h > 0.0, h, h * 0.5),
    "dist": lambda h: paddle.dist(h, h * 0.5) * 0.1 + h,
    "layer_norm": lambda h: nn.LayerNorm(32)(h),
    "group_norm": of_images(lambda h: nn.GroupNorm(2, 2)(h)),
    "batch_norm": lambda h: nn.BatchNorm1D(32)(h),
    "conv2d": of_images(lambda h: nn.Conv2D(2, 2, 3, padding=1)(h)),
    "conv1d": lambda h: nn.Conv1D(4, 4, 3)(paddle.reshape(h, [-1, 4, 8])),
    "conv3d": lambda h: nn.Conv3D(1, 2, 2)(paddle.reshape(h, [-1, 1, 2, 4, 4])),
    "conv2d_transpose": of_images(lambda h: nn.Conv2DTranspose(2, 2, 3)(h)),
    "max_pool2d_with_index": of_images(lambda h: F.max_pool2d(h, 2, 2)),
    "avg_pool2d": of_images(lambda h: F.avg_pool2d(h, 2, 2)),
    "adaptive_avg_pool2d": of_images(lambda h: F.adaptive_avg_pool2d(h, 2)),
    "adaptive_max_pool2d": of_images(lambda h: F.adaptive_max_pool2d(h, 2)),
    "interpolate": of_images(lambda h: F.interpolate(h, size=[6, 6])),
    "pad3d": of_images(lambda h: F.pad(h, [1, 1, 1, 1])),
    "clip": lambda h: paddle.clip(h, -0.5, 0.5),
    "concat": lambda h: paddle.concat([h[:, :16], h[:, 16:]], 1),
    "elementwise_div": lambda h: h / positive(h),
    "elementwise_max": lambda h: paddle.maximum(h, h * 0.5),
    "elementwise_min": lambda h: paddle.minimum(h, h * 0.5),
    "elementwise_mul": lambda h: h * h,
    "elementwise_pow": lambda h: paddle.pow(positive(h), h * 0.1 + 1.0),
    "elementwise_sub": lambda h: h - h * 0.5,
    "expand_v2": lambda h: paddle.expand(h[:, :1], [-1, 32]) + h,
    "gather": lambda h: paddle.gather(h, paddle.to_tensor([3, 1, 2]), axis=1),
    "gelu": F.gelu,
    "leaky_relu": F.leaky_relu,
    "relu": F.relu,
    "relu6": F.relu6,
    "scale": lambda h: paddle.scale(h, 0.5, 0.1),
    "sigmoid": F.sigmoid,
    "sign": lambda h: paddle.sign(h) * h,
    "split": lambda h: paddle.concat(paddle.split(h, 2, 1)[::-1], 1),
    "squeeze2": lambda h: paddle.squeeze(paddle.unsqueeze(h, 1), 1),
    "stack": lambda h: paddle.stack([h, h], 1),
    "tile": lambda h: paddle.tile(h, [1, 2]),
    "top_k_v2": lambda h: paddle.topk(h, 32)[0],
    "transpose2": of_images(lambda h: paddle.transpose(h, [0, 2, 1, 3])),
    "unstack": lambda h: paddle.concat(
        paddle.unstack(paddle.reshape(h, [-1, 2, 16]), 1), 1
    ),
    "matmul_v2": lambda h: paddle.matmul(h, h, transpose_y=True)[:, :1] * 0.1 + h,
    "scatter": lambda h: paddle.scatter(h, paddle.to_tensor([0, 1]), h[:2] * 0.5),
}


def one_hot(y):
    return F.one_hot(y[:, 0], 4)


LOSSES = {
    "cross_entropy_loss": F.cross_entropy,
    "softmax_with_cross_entropy": lambda o, y: paddle.mean(
        F.softmax_with_cross_entropy(o, y)
    ),
    "cross_entropy": lambda o, y: paddle.mean(
        paddle.fluid.layers.cross_entropy(F.softmax(o), y)
    ),
    "nll_loss": lambda o, y: F.nll_loss(F.log_softmax(o), y[:, 0]),
    "mse_loss": lambda o, y: F.mse_loss(o, one_hot(y)),
    "smooth_l1": lambda o, y: F.smooth_l1_loss(o, one_hot(y)),
    "sigmoid_cross_entropy_with_logits": lambda o, y: (
        F.binary_cross_entropy_with_logits(o, one_hot(y))
    ),
    "log_loss": lambda o, y: paddle.mean(F.log_loss(F.sigmoid(o), one_hot(y))),
    "l1_loss": lambda o, y: F.l1_loss(o, one_hot(y)),
    "bce_loss": lambda o, y: F.binary_cross_entropy(F.sigmoid(o), one_hot(y)),
    "kldiv_loss": lambda o, y: F.kl_div(F.log_softmax(o), one_hot(y)),
}


def train(function, loss_function, **settings):
    """Losses of some steps, and the types of operations that gave short values."""
    with (
        paddle.utils.unique_name.guard(),
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
    ):
        main, startup = static.default_main_program(), static.default_startup_program()
        startup.random_seed = 3
        x, y = static.data("x", [None, 8]), static.data("y", [None, 1], "int64")
        hidden = paddle.flatten(function(nn.Linear(8, 32)(x)), 1)
        loss = loss_function(nn.Linear(int(hidden.shape[1]), 4)(hidden), y)
        optimizer = paddle.optimizer.SGD(0.05)
        if settings:
            optimizer = amp.decorate(optimizer, init_loss_scaling=8.0, **settings)
        optimizer.minimize(loss)
        value = loss if loss.dtype == paddle.float32 else paddle.cast(loss, "float32")
        short = {
            op.type
            for op in main.global_block().ops
            for name in op.output_arg_names
            if name != "@EMPTY@"
            and main.global_block().var(name).dtype in (paddle.float16, paddle.bfloat16)
        }
        executor = static.Executor(paddle.CPUPlace())
        executor.run(startup)
        rng = np.random.default_rng(0)
        losses = []
        for _ in range(4):
            feed = {
                "x": rng.standard_normal((16, 8)).astype("float32"),
                "y": rng.integers(0, 4, (16, 1)),
            }
            losses.append(executor.run(feed=feed, fetch_list=[value])[0].item())
        return np.array(losses), short


# As a part of the largest loss.
TOLERANCE = {"float16": 0.01, "bfloat16": 0.05}
ALWAYS_FLOAT32 = {"interpolate", "scatter"}


def check(name, function, loss_function):
    expected, _ = train(function, loss_function)
    for dtype, tolerance in TOLERANCE.items():
        got, short = train(function, loss_function, level="O2", dtype=dtype)
        assert (name in short) == (name not in ALWAYS_FLOAT32), sorted(short)
        assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max(), dtype


@pytest.mark.parametrize("name", OPS)
def test_an_operation_in_short_types(name):
    check(name, OPS[name], F.cross_entropy)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_in_short_types(name):
    check(name, lambda h: h, LOSSES[name])
