# SPDX-License-Identifier: Apache-2.0
"""Linear, convolution, embedding, norm, pooling and the like against torch."""

import numpy as np
import paddle
import pytest
import torch
from layer_check import compare, random_array
from paddle import nn

T = torch.nn


def weight_and_bias(ours, theirs, transpose=False):
    pairs = [(ours.weight, theirs.weight, transpose)]
    if theirs.bias is not None:
        pairs.append((ours.bias, theirs.bias, False))
    return pairs


# ---- linear


@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 3)])
def test_linear(shape):
    ours, theirs = nn.Linear(3, 4), T.Linear(3, 4)
    compare(ours, theirs, [random_array(*shape)], weight_and_bias(ours, theirs, True))


def test_linear_without_bias():
    ours = nn.Linear(3, 4, bias_attr=False)
    theirs = T.Linear(3, 4, bias=False)
    assert ours.bias is None
    assert list(ours.state_dict()) == ["weight"]
    compare(ours, theirs, [random_array(2, 3)], [(ours.weight, theirs.weight, True)])


def test_bilinear():
    ours, theirs = nn.Bilinear(3, 4, 5), T.Bilinear(3, 4, 5)
    with torch.no_grad():
        theirs.bias.zero_()
    inputs = [random_array(2, 3), random_array(2, 4, seed=1)]
    compare(ours, theirs, inputs, [(ours.weight, theirs.weight, False)])


def test_identity_ignores_its_arguments():
    x = paddle.ones([2])
    assert nn.Identity(3, what="ever")(x) is x


# ---- convolutions

CONV_CASES = [
    {},
    {"stride": 2, "padding": 1},
    {"padding": 2, "dilation": 2},
    {"groups": 2},
    {"bias": False},
    {"padding": 1, "padding_mode": "circular"},
    {"padding": 1, "padding_mode": "reflect"},
    {"padding": 1, "padding_mode": "replicate"},
]


@pytest.mark.parametrize(
    "dims, ours, theirs",
    [(1, nn.Conv1D, T.Conv1d), (2, nn.Conv2D, T.Conv2d), (3, nn.Conv3D, T.Conv3d)],
)
@pytest.mark.parametrize("case", CONV_CASES, ids=str)
def test_conv(dims, ours, theirs, case):
    case = dict(case)
    theirs = theirs(4, 6, 3, **case)
    bias = None if case.pop("bias", True) else False
    ours = ours(4, 6, 3, bias_attr=bias, **case)
    x = random_array(2, 4, *[7, 6, 5][:dims])
    compare(ours, theirs, [x], weight_and_bias(ours, theirs))


@pytest.mark.parametrize(
    "dims, ours, theirs",
    [
        (1, nn.Conv1DTranspose, T.ConvTranspose1d),
        (2, nn.Conv2DTranspose, T.ConvTranspose2d),
        (3, nn.Conv3DTranspose, T.ConvTranspose3d),
    ],
)
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"stride": 2, "padding": 1},
        {"stride": 2, "output_padding": 1},
        {"groups": 2},
        {"dilation": 2},
    ],
    ids=str,
)
def test_conv_transpose(dims, ours, theirs, case):
    ours, theirs = ours(4, 6, 3, **case), theirs(4, 6, 3, **case)
    x = random_array(2, 4, *[5, 4, 3][:dims])
    compare(ours, theirs, [x], weight_and_bias(ours, theirs))


def test_conv_transpose_with_an_output_size():
    ours = nn.Conv2DTranspose(2, 3, 3, stride=2)
    assert ours(paddle.ones([1, 2, 4, 4])).shape == [1, 3, 9, 9]
    assert ours(paddle.ones([1, 2, 4, 4]), output_size=[10, 10]).shape == [1, 3, 10, 10]


def test_conv_checks_its_arguments():
    with pytest.raises(ValueError, match="multiples of groups 2"):
        nn.Conv2D(3, 4, 3, groups=2)
    with pytest.raises(ValueError, match="kernel_size must be an integer or 2"):
        nn.Conv2D(3, 4, [3, 3, 3])
    with pytest.raises(ValueError, match="padding_mode must be one of"):
        nn.Conv2D(3, 4, 3, padding_mode="mirror")
    with pytest.raises(ValueError, match="weight_attr must not be False"):
        nn.Conv2D(3, 4, 3, weight_attr=False)
    with pytest.raises(ValueError, match="in_channels must be positive"):
        nn.Conv1D(0, 4, 3)
    with pytest.raises(ValueError) as error:
        nn.Conv2D(3, 4, 3)(paddle.ones([1, 2, 5, 5]))
    assert "conv2d" in str(error.value) and "[1, 2, 5, 5]" in str(error.value)


def test_conv_prints_as_paddle_does():
    assert (
        repr(nn.Conv2D(1, 6, 3, padding=1))
        == "Conv2D(1, 6, kernel_size=[3, 3], padding=1, data_format=NCHW)"
    )
    assert (
        repr(nn.Conv1D(2, 4, 3, stride=2, groups=2))
        == "Conv1D(2, 4, kernel_size=[3], stride=[2], groups=2, data_format=NCL)"
    )


# ---- embedding


def test_embedding():
    ours, theirs = nn.Embedding(7, 3), T.Embedding(7, 3)
    ids = np.array([[1, 2, 1], [6, 0, 2]])
    compare(ours, theirs, [ids], [(ours.weight, theirs.weight, False)])


def test_embedding_with_padding():
    ours = nn.Embedding(5, 3, padding_idx=-3)
    np.testing.assert_array_equal(ours.weight.numpy()[2], 0)
    out = ours(paddle.to_tensor([1, 2, 2]))
    np.testing.assert_array_equal(out.numpy()[1:], 0)
    out.sum().backward()
    gradient = ours.weight.grad.numpy()
    np.testing.assert_array_equal(gradient[2], 0)
    np.testing.assert_array_equal(gradient[1], 1)


def test_embedding_checks_its_arguments():
    with pytest.raises(ValueError, match=r"padding_idx 9 is not within \[-5, 5\)"):
        nn.Embedding(5, 3, padding_idx=9)
    with pytest.raises(ValueError, match="must be positive"):
        nn.Embedding(0, 3)
    with pytest.raises(ValueError):
        nn.Embedding(5, 3)(paddle.to_tensor([5]))


# ---- normalisation


@pytest.mark.parametrize(
    "ours, theirs, shape",
    [
        (nn.BatchNorm1D, T.BatchNorm1d, (6, 4)),
        (nn.BatchNorm1D, T.BatchNorm1d, (6, 4, 5)),
        (nn.BatchNorm2D, T.BatchNorm2d, (3, 4, 5, 2)),
        (nn.BatchNorm3D, T.BatchNorm3d, (3, 4, 5, 2, 2)),
    ],
)
def test_batch_norm(ours, theirs, shape):
    ours, theirs = ours(4, momentum=0.8), theirs(4, momentum=0.2)
    for layer in (ours.weight, ours.bias):
        layer.set_value(random_array(4, seed=5))
    x = random_array(*shape)
    for step in range(2):
        compare(ours, theirs, [x + step], weight_and_bias(ours, theirs), 1e-3, 1e-4)
        ours.clear_gradients(set_to_zero=False)
        theirs.zero_grad()
    np.testing.assert_allclose(
        ours._mean.numpy(), theirs.running_mean.numpy(), rtol=1e-4, atol=1e-5
    )
    # Paddle keeps the plain variance, torch the unbiased one.
    n = x.size // 4
    per_step = x.transpose(1, 0, *range(2, x.ndim)).reshape(4, -1).var(axis=1)
    variance = np.ones(4)
    for _ in range(2):
        variance = 0.8 * variance + 0.2 * per_step
    assert n > 4
    np.testing.assert_allclose(ours._variance.numpy(), variance, rtol=1e-4)

    ours.eval()
    theirs.eval()
    with torch.no_grad():
        theirs.running_var.copy_(torch.tensor(ours._variance.numpy()))
    compare(ours, theirs, [x], weight_and_bias(ours, theirs), 1e-3, 1e-4)


def test_batch_norm_statistics_are_untrained_parameters_of_the_state():
    norm = nn.BatchNorm2D(3)
    assert list(norm.state_dict()) == ["weight", "bias", "_mean", "_variance"]
    assert norm._mean.stop_gradient and norm._variance.stop_gradient
    np.testing.assert_array_equal(norm._mean.numpy(), 0)
    np.testing.assert_array_equal(norm._variance.numpy(), 1)
    mean, address = norm._mean, norm._mean._data_ptr()
    norm(paddle.to_tensor(random_array(2, 3, 4, 4)))
    assert norm._mean is mean and mean._data_ptr() == address
    assert (mean.numpy() != 0).any()


def test_batch_norm_refuses_other_ranks():
    with pytest.raises(ValueError, match=r"BatchNorm2D: .* 4 dimensions.* \[2, 3\]"):
        nn.BatchNorm2D(3)(paddle.ones([2, 3]))
    with pytest.raises(ValueError, match="num_features must be positive"):
        nn.BatchNorm1D(0)


def test_batch_norm_of_paddle_1():
    ours = nn.BatchNorm(3, act="relu", moving_mean_name="m", moving_variance_name="v")
    assert ours._mean.name == "m" and ours._variance.name == "v"
    theirs = T.Sequential(T.BatchNorm2d(3), T.ReLU())
    compare(ours, theirs, [random_array(2, 3, 4, 4)], (), 1e-3, 1e-4)
    assert not nn.BatchNorm(3, is_test=True).training


def test_sync_batch_norm_of_one_process_is_batch_norm():
    plain = nn.Sequential(
        nn.Conv2D(2, 3, 3), nn.BatchNorm2D(3), nn.Sequential(nn.BatchNorm2D(3))
    )
    x = paddle.to_tensor(random_array(2, 2, 6, 6))
    mean = plain[1]._mean
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(plain)
    assert synced is plain
    assert isinstance(synced[1], nn.SyncBatchNorm)
    assert isinstance(synced[2][0], nn.SyncBatchNorm)
    assert synced[1]._mean is mean
    reference = nn.Sequential(
        nn.Conv2D(2, 3, 3), nn.BatchNorm2D(3), nn.Sequential(nn.BatchNorm2D(3))
    )
    reference.set_state_dict(synced.state_dict())
    np.testing.assert_allclose(synced(x).numpy(), reference(x).numpy(), rtol=1e-5)


@pytest.mark.parametrize("shape", [4, [3, 4]])
def test_layer_norm(shape):
    ours, theirs = nn.LayerNorm(shape), T.LayerNorm(shape)
    for p in ours.parameters():
        p.set_value(random_array(*p.shape, seed=3))
    x = random_array(2, 3, 4)
    ours_flat = (ours.weight.numpy(), ours.bias.numpy())
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor(ours_flat[0].reshape(theirs.weight.shape)))
        theirs.bias.copy_(torch.tensor(ours_flat[1].reshape(theirs.bias.shape)))
    compare(ours, theirs, [x])
    np.testing.assert_allclose(
        ours.weight.grad.numpy(),
        theirs.weight.grad.numpy().reshape(-1),
        rtol=1e-3,
        atol=1e-4,
    )


def test_group_norm():
    ours, theirs = nn.GroupNorm(2, 6), T.GroupNorm(2, 6)
    for p in ours.parameters():
        p.set_value(random_array(6, seed=4))
    pairs = weight_and_bias(ours, theirs)
    compare(ours, theirs, [random_array(2, 6, 3, 4)], pairs, 1e-3, 1e-4)
    with pytest.raises(ValueError, match="7 channels cannot be split into 2 groups"):
        nn.GroupNorm(2, 7)


@pytest.mark.parametrize(
    "dims, ours, theirs",
    [
        (1, nn.InstanceNorm1D, T.InstanceNorm1d),
        (2, nn.InstanceNorm2D, T.InstanceNorm2d),
        (3, nn.InstanceNorm3D, T.InstanceNorm3d),
    ],
)
def test_instance_norm(dims, ours, theirs):
    ours, theirs = ours(4), theirs(4, affine=True)
    ours.scale.set_value(random_array(4, seed=6))
    pairs = [(ours.scale, theirs.weight, False), (ours.bias, theirs.bias, False)]
    compare(ours, theirs, [random_array(2, 4, *[5, 4, 3][:dims])], pairs, 1e-3, 1e-4)
    with pytest.raises(ValueError, match="dimensions"):
        ours(paddle.ones([2, 4]))


def test_local_response_norm():
    ours = nn.LocalResponseNorm(3, alpha=0.1)
    theirs = T.LocalResponseNorm(3, alpha=0.1)
    compare(ours, theirs, [random_array(2, 5, 3, 3)])


def test_spectral_norm_divides_by_the_largest_singular_value():
    x = random_array(4, 3, 2)
    norm = nn.SpectralNorm([4, 3, 2], dim=1, power_iters=50)
    matrix = x.transpose(1, 0, 2).reshape(3, -1)
    top = np.linalg.svd(matrix, compute_uv=False)[0]
    tensor = paddle.to_tensor(x)
    np.testing.assert_allclose(norm(tensor).numpy(), x / top, rtol=1e-4)
    with pytest.raises(ValueError, match="was announced"):
        norm(paddle.ones([2, 2]))


# ---- dropout


def test_dropout_keeps_the_mean_and_rests_in_evaluation():
    paddle.seed(5)
    layer = nn.Dropout(0.3)
    x = paddle.ones([200, 200])
    out = layer(x).numpy()
    assert abs((out == 0).mean() - 0.3) < 0.01
    np.testing.assert_allclose(out[out != 0], 1 / 0.7, rtol=1e-6)
    layer.eval()
    np.testing.assert_array_equal(layer(x).numpy(), 1)
    down = nn.Dropout(0.25, mode="downscale_in_infer")
    assert set(np.unique(down(x).numpy())) == {0.0, 1.0}
    np.testing.assert_allclose(down.eval()(x).numpy(), 0.75)


def test_dropout_of_channels():
    paddle.seed(5)
    out = nn.Dropout2D(0.5)(paddle.ones([20, 30, 4, 4])).numpy().reshape(600, -1)
    assert (out.min(axis=1) == out.max(axis=1)).all()
    assert set(np.unique(out)) == {0.0, 2.0}
    out = nn.Dropout3D(0.5)(paddle.ones([9, 9, 2, 2, 2])).numpy().reshape(81, -1)
    assert (out.min(axis=1) == out.max(axis=1)).all()


def test_alpha_dropout_keeps_mean_and_variance():
    paddle.seed(5)
    layer = nn.AlphaDropout(0.2)
    x = paddle.to_tensor(random_array(300, 300))
    out = layer(x).numpy()
    assert abs(out.mean()) < 0.02 and abs(out.std() - 1) < 0.02
    np.testing.assert_array_equal(layer.eval()(x).numpy(), x.numpy())


def test_dropout_checks_its_probability():
    with pytest.raises(ValueError, match="between 0 and 1, but is 1.5"):
        nn.Dropout(1.5)
    with pytest.raises(TypeError, match="p must be a number"):
        nn.Dropout2D("half")


# ---- pooling


POOLS = [
    (1, nn.MaxPool1D, T.MaxPool1d, {}),
    (2, nn.MaxPool2D, T.MaxPool2d, {}),
    (3, nn.MaxPool3D, T.MaxPool3d, {}),
    (1, nn.AvgPool1D, T.AvgPool1d, {"count_include_pad": False}),
    (2, nn.AvgPool2D, T.AvgPool2d, {"count_include_pad": False}),
    (3, nn.AvgPool3D, T.AvgPool3d, {"count_include_pad": False}),
]


@pytest.mark.parametrize("dims, ours, theirs, extra", POOLS)
@pytest.mark.parametrize(
    "case",
    [{}, {"stride": 1, "padding": 1}, {"ceil_mode": True}],
    ids=str,
)
def test_pooling(dims, ours, theirs, extra, case):
    x = random_array(2, 3, *[5, 6, 7][:dims])
    compare(ours(2, **case), theirs(2, **case, **extra), [x])


def test_average_pooling_can_count_the_padding():
    x = random_array(2, 3, 5, 6)
    compare(nn.AvgPool2D(3, 2, padding=1, exclusive=False), T.AvgPool2d(3, 2, 1), [x])
    compare(
        nn.AvgPool2D(3, 2, divisor_override=5),
        T.AvgPool2d(3, 2, divisor_override=5),
        [x],
    )


def test_max_pool_tells_where():
    x = random_array(2, 3, 4, 6)
    out, where = nn.MaxPool2D(2, return_mask=True)(paddle.to_tensor(x))
    expected, indices = T.MaxPool2d(2, return_indices=True)(torch.tensor(x))
    np.testing.assert_array_equal(out.numpy(), expected.numpy())
    np.testing.assert_array_equal(where.numpy(), indices.numpy())


@pytest.mark.parametrize(
    "dims, ours, theirs",
    [
        (1, nn.AdaptiveMaxPool1D, T.AdaptiveMaxPool1d),
        (2, nn.AdaptiveMaxPool2D, T.AdaptiveMaxPool2d),
        (3, nn.AdaptiveMaxPool3D, T.AdaptiveMaxPool3d),
        (1, nn.AdaptiveAvgPool1D, T.AdaptiveAvgPool1d),
        (2, nn.AdaptiveAvgPool2D, T.AdaptiveAvgPool2d),
        (3, nn.AdaptiveAvgPool3D, T.AdaptiveAvgPool3d),
    ],
)
def test_adaptive_pooling(dims, ours, theirs):
    compare(ours(3), theirs(3), [random_array(2, 3, *[5, 6, 7][:dims])])


def test_pooling_prints_as_paddle_does():
    assert repr(nn.MaxPool2D(2, 2)) == "MaxPool2D(kernel_size=2, stride=2, padding=0)"
    assert repr(nn.AdaptiveAvgPool2D(1)) == "AdaptiveAvgPool2D(output_size=1)"


# ---- shapes


def test_flatten():
    x = paddle.ones([2, 3, 4, 5])
    assert nn.Flatten()(x).shape == [2, 60]
    assert nn.Flatten(2, 3)(x).shape == [2, 3, 20]


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(mode):
    x1, x2 = random_array(2, 3, 6), random_array(2, 3, 5, 6)
    for layer, x, pad in (
        (nn.Pad1D([1, 2], mode=mode), x1, (1, 2)),
        (nn.Pad2D([1, 2, 0, 3], mode=mode), x2, (1, 2, 0, 3)),
    ):
        compare(layer, lambda t, p=pad: T.functional.pad(t, p, mode=mode), [x])


def test_zero_pad_and_pad_3d():
    x = random_array(2, 3, 4, 4)
    compare(nn.ZeroPad2D([1, 0, 2, 1]), T.ZeroPad2d((1, 0, 2, 1)), [x])
    x = random_array(1, 2, 3, 3, 3)
    compare(
        nn.Pad3D(1, value=2.0),
        lambda t: T.functional.pad(t, (1,) * 6, value=2.0),
        [x],
    )


def test_upsampling():
    x = random_array(2, 3, 4, 5)
    compare(nn.Upsample(scale_factor=2), T.Upsample(scale_factor=2), [x])
    compare(
        nn.Upsample(size=[7, 9], mode="bilinear"),
        T.Upsample(size=(7, 9), mode="bilinear"),
        [x],
    )
    compare(
        nn.UpsamplingNearest2D(scale_factor=2),
        T.UpsamplingNearest2d(scale_factor=2),
        [x],
    )
    compare(
        nn.UpsamplingBilinear2D(size=[8, 10]),
        T.UpsamplingBilinear2d(size=(8, 10)),
        [x],
    )


def test_pixel_shuffle_and_unfold():
    x = random_array(2, 8, 3, 4)
    compare(nn.PixelShuffle(2), T.PixelShuffle(2), [x])
    compare(
        nn.Unfold(2, strides=1, paddings=1),
        T.Unfold(2, stride=1, padding=1),
        [x],
    )
    compare(nn.Unfold(2, 2, 1, 3), T.Unfold(2, 2, 1, 3), [x])
    with pytest.raises(TypeError, match="upscale_factor must be an integer"):
        nn.PixelShuffle(1.5)


# ---- distances


def test_distances():
    x, y = random_array(4, 6), random_array(4, 6, seed=1)
    compare(nn.CosineSimilarity(axis=1), T.CosineSimilarity(dim=1), [x, y])
    compare(nn.PairwiseDistance(), T.PairwiseDistance(), [x, y])
    compare(
        nn.PairwiseDistance(p=1.0, keepdim=True),
        T.PairwiseDistance(p=1.0, keepdim=True),
        [x, y],
    )


# ---- nothing in the batch


@pytest.mark.parametrize(
    "layer, shape, dtype, expected",
    [
        (nn.Linear(3, 4), [0, 3], "float32", [0, 4]),
        (nn.Conv2D(3, 4, 3), [0, 3, 8, 8], "float32", [0, 4, 6, 6]),
        (nn.Embedding(3, 4), [0, 2], "int64", [0, 2, 4]),
        (nn.LayerNorm(3), [0, 3], "float32", [0, 3]),
        (nn.MaxPool2D(2), [0, 3, 8, 8], "float32", [0, 3, 4, 4]),
        (nn.Dropout(0.5), [0, 3], "float32", [0, 3]),
        (nn.ReLU(), [0, 3], "float32", [0, 3]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_empty_batch_gives_an_empty_result(layer, shape, dtype, expected):
    out = layer(paddle.zeros(shape, dtype))
    assert out.shape == expected
    if layer.parameters():
        out.sum().backward()
        for parameter in layer.parameters():
            np.testing.assert_array_equal(parameter.grad.numpy(), 0)


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: nn.PairwiseDistance(1.0), "PairwiseDistance(p=1.0)"),
        (lambda: nn.CosineSimilarity(2), "CosineSimilarity(axis=2, eps=1e-08)"),
        (lambda: nn.Dropout(0.3), "Dropout(p=0.3, axis=None, mode=upscale_in_train)"),
        (lambda: nn.Dropout2D(0.3), "Dropout2D(p=0.3, data_format=NCHW)"),
        (lambda: nn.Dropout3D(0.2), "Dropout3D(p=0.2, data_format=NCDHW)"),
        (lambda: nn.AlphaDropout(0.4), "AlphaDropout(p=0.4)"),
        (
            lambda: nn.BatchNorm2D(3),
            "BatchNorm2D(num_features=3, momentum=0.9, epsilon=1e-05)",
        ),
        (
            lambda: nn.LayerNorm([3]),
            "LayerNorm(normalized_shape=[3], epsilon=1e-05)",
        ),
        (
            lambda: nn.GroupNorm(1, 3),
            "GroupNorm(num_groups=1, num_channels=3, epsilon=1e-05)",
        ),
        (
            lambda: nn.InstanceNorm2D(3),
            "InstanceNorm2D(num_features=3, epsilon=1e-05)",
        ),
        (
            lambda: nn.LocalResponseNorm(3),
            "LocalResponseNorm(size=3, alpha=0.0001, beta=0.75, k=1.0)",
        ),
        (lambda: nn.LSTMCell(2, 3), "LSTMCell(2, 3)"),
        (
            lambda: nn.Pad2D(1),
            "Pad2D(padding=[1, 1, 1, 1], mode=constant, value=0.0, data_format=NCHW)",
        ),
        (lambda: nn.PixelShuffle(2), "PixelShuffle(upscale_factor=2)"),
    ],
)
def test_layers_say_their_settings(make, text):
    assert repr(make()) == text
