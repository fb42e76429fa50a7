# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools against torch."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
import torch
import torch.nn.functional as T
from op_check import check, floats

SPATIAL = {1: (9,), 2: (9, 8), 3: (5, 6, 7)}
CLOSE = {"rtol": 1e-7, "atol": 1e-9}


def ours(name):
    return getattr(F, name)


def theirs(name):
    return getattr(T, name)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1},
        {"dilation": 2, "padding": 2},
        {"groups": 2},
    ],
    ids=str,
)
def test_convolutions(rank, options):
    x = floats(2, 4, *SPATIAL[rank])
    w = floats(6, 4 // options.get("groups", 1), *[3] * rank, seed=1)
    check(
        lambda x, w, b: ours(f"conv{rank}d")(x, w, b, **options),
        lambda x, w, b: theirs(f"conv{rank}d")(x, w, b, **options),
        x,
        w,
        floats(6, seed=2),
        second=rank < 3,
        **CLOSE,
    )


def test_conv2d_of_floats():
    check(
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        lambda x, w, b: T.conv2d(x, w, b, padding=1),
        floats(4, 3, 16, 16, dtype="float32"),
        floats(8, 3, 3, 3, seed=1, dtype="float32"),
        floats(8, seed=2, dtype="float32"),
        rtol=1e-3,
        atol=1e-2,
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2}],
    ids=str,
)
def test_transposed_convolutions(rank, options):
    groups = options.get("groups", 1)
    check(
        lambda x, w, b: ours(f"conv{rank}d_transpose")(x, w, b, **options),
        lambda x, w, b: theirs(f"conv_transpose{rank}d")(x, w, b, **options),
        floats(2, 4, *SPATIAL[rank]),
        floats(4, 6 // groups, *[3] * rank, seed=1),
        floats(6, seed=2),
        second=rank < 3,
        **CLOSE,
    )


@pytest.mark.parametrize(
    "padding, pairs",
    [
        (1, (1, 1, 1, 1)),
        ([2], (2, 2, 2, 2)),
        ([1, 2], (2, 2, 1, 1)),
        ([0, 1, 2, 3], (2, 3, 0, 1)),
        ([[0, 0], [0, 0], [1, 0], [2, 1]], (2, 1, 1, 0)),
        ("VALID", (0, 0, 0, 0)),
        ("SAME", (0, 1, 1, 1)),
    ],
    ids=str,
)
def test_all_ways_to_write_a_padding(padding, pairs):
    check(
        lambda x, w: F.conv2d(x, w, stride=2, padding=padding),
        lambda x, w: T.conv2d(T.pad(x, pairs), w, stride=2),
        floats(2, 3, 9, 8),
        floats(4, 3, 3, 3, seed=1),
        second=True,
        **CLOSE,
    )


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [7, 8])
def test_padding_same_keeps_the_size_over_the_stride(stride, size):
    x = paddle.to_tensor(floats(1, 1, size))
    w = paddle.to_tensor(floats(1, 1, 4))
    assert F.conv1d(x, w, stride=stride, padding="SAME").shape == [
        1,
        1,
        -(-size // stride),
    ]


def test_channels_last():
    def theirs(x, w, b):
        out = T.conv2d(x.permute(0, 3, 1, 2), w, b, padding=1)
        return out.permute(0, 2, 3, 1)

    check(
        lambda x, w, b: F.conv2d(x, w, b, padding=1, data_format="NHWC"),
        theirs,
        floats(2, 7, 6, 3),
        floats(4, 3, 3, 3, seed=1),
        floats(4, seed=2),
        second=True,
        **CLOSE,
    )


def test_transposed_convolution_to_a_wanted_size():
    x = paddle.to_tensor(floats(2, 3, 5, 5))
    w = paddle.to_tensor(floats(3, 4, 3, 3))
    out = F.conv2d_transpose(x, w, stride=2, padding=1, output_size=[10, 9])
    assert out.shape == [2, 4, 10, 9]
    want = T.conv_transpose2d(
        torch.from_numpy(x.numpy()), torch.from_numpy(w.numpy()), None, 2, 1, (1, 0)
    )
    np.testing.assert_allclose(out.numpy(), want.numpy(), rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match=r"output_size 12 must lie in \[9, 11\)"):
        F.conv2d_transpose(x, w, stride=2, padding=1, output_size=12)


def test_transposed_convolution_with_uneven_padding():
    check(
        lambda x, w: F.conv2d_transpose(x, w, padding=[1, 0, 0, 2]),
        lambda x, w: T.conv_transpose2d(x, w)[:, :, 1:, :-2],
        floats(2, 3, 5, 5),
        floats(3, 4, 3, 3, seed=1),
        **CLOSE,
    )


@pytest.mark.parametrize("shape", [(2, 2, 3, 7, 1), (2, 5, 7, 1), (2, 5, 8, 1)])
def test_a_window_with_a_stride_that_fits_in_once(shape):
    """LibTorch's oneDNN reads beyond such an image of one channel, if it is the last."""
    name = f"conv{len(shape) - 2}d"
    kernel = (2, 1, *[1] * (len(shape) - 3), 7)
    stride = [1] * (len(shape) - 3) + [2]
    for seed in range(20):
        x, w = (
            np.random.default_rng([seed, i]).standard_normal(s).astype("float32")
            for i, s in enumerate((shape, kernel))
        )
        image = torch.tensor(x).movedim(-1, 1).double()
        want = theirs(name)(image, torch.tensor(w).double(), stride=stride)
        x, w = paddle.to_tensor(x), paddle.to_tensor(w)
        # What lies behind the image is large.
        freed = [paddle.full([n], 1e30) for n in [*range(1, 20), *range(20, 1100, 20)]]
        del freed
        last = "NHWC" if len(shape) == 4 else "NDHWC"
        got = ours(name)(x, w, stride=stride, data_format=last)
        np.testing.assert_allclose(got.numpy(), want.movedim(1, -1).numpy(), atol=1e-5)


def test_convolution_of_an_empty_batch():
    w = paddle.to_tensor(floats(4, 3, 3, 3, dtype="float32"), stop_gradient=False)
    out = F.conv2d(paddle.to_tensor(np.zeros((0, 3, 8, 8), "float32")), w)
    assert out.shape == [0, 4, 6, 6]
    out.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.zeros((4, 3, 3, 3)))


def test_convolutions_name_what_does_not_fit():
    x = paddle.to_tensor(floats(2, 3, 8, 8))
    with pytest.raises(ValueError, match="conv2d.*has 3 channels but the weight"):
        F.conv2d(x, paddle.to_tensor(floats(4, 2, 3, 3)))
    with pytest.raises(ValueError, match="must have 4 dimensions"):
        F.conv2d(x[0], paddle.to_tensor(floats(4, 3, 3, 3)))
    with pytest.raises(ValueError, match="window of 9 does not fit into 8"):
        F.conv2d(x, paddle.to_tensor(floats(4, 3, 9, 9)))
    with pytest.raises(ValueError, match="bias has 3 elements for 4"):
        F.conv2d(x, paddle.to_tensor(floats(4, 3, 3, 3)), paddle.to_tensor(floats(3)))
    with pytest.raises(ValueError, match="data_format must be"):
        F.conv2d(x, paddle.to_tensor(floats(4, 3, 3, 3)), data_format="NCL")
    with pytest.raises(ValueError, match="padding must be 'SAME'"):
        F.conv2d(x, paddle.to_tensor(floats(4, 3, 3, 3)), padding="same size")
    with pytest.raises(ValueError, match="float32.* weight|weight.*float32|but the"):
        F.conv2d(x, paddle.to_tensor(floats(4, 3, 3, 3, dtype="float32")))


# ---- pools


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    ],
    ids=str,
)
def test_pools(rank, options):
    x = floats(2, 3, *SPATIAL[rank])
    check(
        lambda x: ours(f"max_pool{rank}d")(x, **options),
        lambda x: theirs(f"max_pool{rank}d")(x, **options),
        x,
        second=True,
    )
    check(
        lambda x: ours(f"avg_pool{rank}d")(x, **options),
        lambda x: theirs(f"avg_pool{rank}d")(x, count_include_pad=False, **options),
        x,
        second=True,
    )
    check(
        lambda x: ours(f"avg_pool{rank}d")(x, exclusive=False, **options),
        lambda x: theirs(f"avg_pool{rank}d")(x, count_include_pad=True, **options),
        x,
    )


@pytest.mark.parametrize("size", [(6, 8), (7, 9)])
@pytest.mark.parametrize("ceil", [False, True])
def test_max_pool_that_halves_images_of_floats(size, ceil):
    check(
        lambda x: F.max_pool2d(x, 2, 2, ceil_mode=ceil),
        lambda x: T.max_pool2d(x, 2, 2, ceil_mode=ceil),
        floats(3, 40, *size, dtype="float32"),
        rtol=1e-6,
    )


def test_max_pool_passes_nan_on():
    x = floats(1, 1, 4, 4, dtype="float32")
    x[0, 0, 1, 0] = x[0, 0, 2, 3] = np.nan
    out = F.max_pool2d(paddle.to_tensor(x), 2).numpy()
    want = T.max_pool2d(torch.from_numpy(x), 2).numpy()
    np.testing.assert_array_equal(out, want)
    assert np.isnan(out).sum() == 2


def test_max_pool_says_where_it_found_the_maximum():
    x = floats(2, 3, 6, 7)
    out, mask = F.max_pool2d(paddle.to_tensor(x), 2, return_mask=True)
    _, want = T.max_pool2d(torch.from_numpy(x), 2, return_indices=True)
    np.testing.assert_array_equal(mask.numpy(), want.numpy())
    flat = x.reshape(2, 3, -1)
    np.testing.assert_array_equal(
        np.take_along_axis(flat, mask.numpy().reshape(2, 3, -1), 2).reshape(out.shape),
        out.numpy(),
    )


@pytest.mark.parametrize("padding", [[1, 0, 2, 1], "SAME"], ids=str)
def test_pools_with_uneven_padding(padding):
    pairs = (2, 1, 1, 0) if padding != "SAME" else (0, 1, 1, 1)
    x = floats(2, 3, 7, 8)
    check(
        lambda x: F.max_pool2d(x, 3, 2, padding),
        lambda x: T.max_pool2d(T.pad(x, pairs, value=-np.inf), 3, 2),
        x,
        second=True,
    )
    check(
        lambda x: F.avg_pool2d(x, 3, 2, padding, exclusive=False),
        lambda x: T.avg_pool2d(T.pad(x, pairs), 3, 2),
        x,
        second=True,
    )
    check(
        lambda x: F.avg_pool2d(x, 3, 2, padding),
        lambda x: (
            T.avg_pool2d(T.pad(x, pairs), 3, 2)
            / T.avg_pool2d(T.pad(torch.ones_like(x), pairs), 3, 2)
        ),
        x,
    )


def test_pools_with_channels_last():
    x = floats(2, 6, 7, 3)

    def turned(pool):
        return lambda x: pool(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)

    check(
        lambda x: F.max_pool2d(x, 2, data_format="NHWC"),
        turned(T.max_pool2d),
        x,
        second=True,
    )
    check(lambda x: F.avg_pool2d(x, 2, data_format="NHWC"), turned(T.avg_pool2d), x)
    check(
        lambda x: F.adaptive_avg_pool2d(x, 2, data_format="NHWC"),
        turned(T.adaptive_avg_pool2d),
        x,
    )


def test_average_with_a_divisor_of_the_users():
    check(
        lambda x: F.avg_pool2d(x, 2, divisor_override=3),
        lambda x: T.avg_pool2d(x, 2, divisor_override=3),
        floats(2, 3, 6, 6),
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 3])
def test_adaptive_pools(rank, size):
    x = floats(2, 3, *SPATIAL[rank])
    check(
        lambda x: ours(f"adaptive_avg_pool{rank}d")(x, size),
        lambda x: theirs(f"adaptive_avg_pool{rank}d")(x, size),
        x,
        second=True,
    )
    check(
        lambda x: ours(f"adaptive_max_pool{rank}d")(x, size),
        lambda x: theirs(f"adaptive_max_pool{rank}d")(x, size),
        x,
        second=True,
    )


def test_adaptive_pools_keep_a_size_of_none():
    x = floats(2, 3, 6, 7)
    check(
        lambda x: F.adaptive_avg_pool2d(x, [None, 2]),
        lambda x: T.adaptive_avg_pool2d(x, (None, 2)),
        x,
    )
    out, mask = F.adaptive_max_pool2d(paddle.to_tensor(x), 2, return_mask=True)
    _, want = T.adaptive_max_pool2d(torch.from_numpy(x), 2, return_indices=True)
    np.testing.assert_array_equal(mask.numpy(), want.numpy())


def test_pools_of_an_empty_batch():
    x = paddle.to_tensor(np.zeros((0, 3, 8, 8), "float32"), stop_gradient=False)
    assert F.max_pool2d(x, 2).shape == [0, 3, 4, 4]
    assert F.avg_pool2d(x, 2).shape == [0, 3, 4, 4]
    assert F.adaptive_avg_pool2d(x, 1).shape == [0, 3, 1, 1]


def test_pools_name_what_does_not_fit():
    x = paddle.to_tensor(floats(2, 3, 4, 4))
    with pytest.raises(ValueError, match="window of 5 does not fit into 4"):
        F.max_pool2d(x, 5)
    with pytest.raises(ValueError, match="must have 5 dimensions"):
        F.avg_pool3d(x, 2)
    with pytest.raises(ValueError, match="kernel_size .* must have 2 numbers"):
        F.max_pool2d(x, [2, 2, 2])
    with pytest.raises(ValueError, match="return_mask needs"):
        F.max_pool2d(x, 2, padding="SAME", return_mask=True)
