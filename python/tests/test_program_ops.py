# SPDX-License-Identifier: Apache-2.0
"""Ops that programs hold under Paddle's older names. They are called eagerly here; a
program runs the same kernels."""

import numpy as np
import paddle
import pytest
import torch
from op_check import check, check_numpy, floats, ints
from paddle import _ops

F = torch.nn.functional


def _probabilities(*shape):
    x = np.exp(floats(*shape))
    return x / x.sum(-1, keepdims=True)


# ---- elementwise with an axis


@pytest.mark.parametrize(
    "name, theirs",
    [
        ("add", torch.add),
        ("sub", torch.sub),
        ("mul", torch.mul),
        ("div", torch.div),
        ("max", torch.maximum),
        ("min", torch.minimum),
    ],
)
@pytest.mark.parametrize(
    "shape, axis, aligned",
    [
        ((3,), 1, (3, 1, 1)),
        ((3, 4), 1, (3, 4, 1)),
        ((2, 3), 0, (2, 3, 1, 1)),
        ((5,), -1, (5,)),
        ((2, 3, 4, 5), -1, (2, 3, 4, 5)),
        ((4, 5, 1), 2, (4, 5)),
    ],
)
def test_elementwise_axis(name, theirs, shape, axis, aligned):
    ours = getattr(_ops, "elementwise_" + name)
    x, y = floats(2, 3, 4, 5), floats(*shape, low=0.5, seed=1)
    check(lambda a, b: ours(a, b, axis), lambda a, b: theirs(a, b.view(aligned)), x, y)


def test_elementwise_axis_of_the_left_operand():
    x, y = floats(3), floats(2, 3, 4)
    check(
        lambda a, b: _ops.elementwise_mul(a, b, 1),
        lambda a, b: a.view(3, 1) * b,
        x,
        y,
        second=True,
    )


def test_elementwise_axis_that_does_not_fit():
    x, y = paddle.ones([2, 3, 4]), paddle.ones([3])
    with pytest.raises(ValueError, match="axis is 7"):
        _ops.elementwise_add(x, y, 7)
    with pytest.raises(ValueError, match="do not broadcast"):
        _ops.elementwise_add(x, y, 2)


def test_minus():
    check(_ops.minus, torch.sub, floats(2, 3), floats(2, 3, seed=1))


# ---- products


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mul(dtype):
    x, y = floats(2, 3, 4, dtype=dtype), floats(4, 5, dtype=dtype)
    check(lambda a, b: _ops.mul(a, b, 2, 1), torch.matmul, x, y)
    x, y = floats(3, 2, 4, dtype=dtype), floats(4, 2, 5, 6, dtype=dtype)

    def theirs(a, b):
        return (a.reshape(3, 8) @ b.reshape(8, 30)).reshape(3, 5, 6)

    check(lambda a, b: _ops.mul(a, b, 1, 2), theirs, x, y)
    check(_ops.mul, torch.matmul, floats(3, 4), floats(4, 5), second=True)


def test_mul_of_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="rows of 12 elements but Y columns of 4"):
        _ops.mul(paddle.ones([2, 3, 4]), paddle.ones([4, 5]))
    with pytest.raises(ValueError, match="leave dimensions on both sides"):
        _ops.mul(paddle.ones([2, 4]), paddle.ones([4, 5]), 2, 1)


def test_matmul_with_alpha():
    x, y = floats(2, 4, 3), floats(2, 5, 4)
    check(
        lambda a, b: _ops.matmul(a, b, True, True, 0.5),
        lambda a, b: 0.5 * a.transpose(1, 2) @ b.transpose(1, 2),
        x,
        y,
    )
    check(_ops.matmul, lambda a, b: a @ b, floats(4, 3), floats(3, 2))


# ---- to one number


def test_mean_and_squared_norm():
    check(_ops.mean, torch.mean, floats(3, 4, 5), second=True)
    check(_ops.mean, torch.mean, floats(30, dtype="float32"))
    check(_ops.squared_l2_norm, lambda x: (x * x).sum(), floats(3, 4), second=True)


def test_a_squared_norm_that_no_float_holds_is_infinite():
    for dtype, want in (("float32", np.inf), ("float64", 3e60)):
        large = paddle.full([3], 1e30, dtype)
        np.testing.assert_allclose(_ops.squared_l2_norm(large).numpy(), [want])


def test_mean_of_integers():
    with pytest.raises(ValueError, match="floating-point"):
        _ops.mean(paddle.ones([2], "int64"))


# The square of the last is no float.
@pytest.mark.parametrize("max_norm", [0.5, 100.0, 1e20])
def test_clip_by_norm(max_norm):
    def theirs(x):
        norm = x.norm()
        return x * max_norm / norm if norm > max_norm else x * 1

    for dtype in ("float32", "float64"):
        check(
            lambda x: _ops.clip_by_norm(x, max_norm), theirs, floats(3, 4, dtype=dtype)
        )


# ---- losses of probabilities


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cross_entropy(dtype):
    p = _probabilities(6, 5).astype(dtype)
    label = ints(6, 1, low=0, high=5)

    def theirs(x, y):
        return -torch.log(x.gather(1, y))

    check(_ops.cross_entropy, theirs, p, label)
    check(lambda x, y: _ops.cross_entropy2(x, y)[0], theirs, p, label)
    flat = label[:, 0]
    check(_ops.cross_entropy, lambda x, y: theirs(x, y[:, None]), p, flat)
    check_numpy(
        lambda x, y: _ops.cross_entropy2(x, y)[1],
        lambda x, y: np.take_along_axis(x, y, 1),
        p,
        label,
        rtol=1e-5,
    )


def test_cross_entropy_that_ignores():
    p, label = _probabilities(4, 3), np.array([[0], [2], [7], [1]])

    def theirs(x, y):
        keep = (y != 7).to(x.dtype)
        return -torch.log(x.gather(1, y * (y != 7))) * keep

    check(lambda x, y: _ops.cross_entropy(x, y, False, 7), theirs, p, label)
    check(lambda x, y: _ops.cross_entropy2(x, y, 7)[0], theirs, p, label)


def test_cross_entropy_of_soft_labels():
    p, label = _probabilities(4, 2, 3), _probabilities(4, 2, 3)[::-1].copy()
    x, y = paddle.to_tensor(p), paddle.to_tensor(label)
    x.stop_gradient = False
    loss = _ops.cross_entropy(x, y, True)
    np.testing.assert_allclose(
        loss.numpy(), -(label * np.log(p)).sum(-1, keepdims=True), 1e-7
    )
    loss.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), -label / p, 1e-7)


def test_cross_entropy_with_a_label_outside():
    with pytest.raises(ValueError, match="label 3 at row 1 is outside"):
        _ops.cross_entropy(paddle.full([2, 3], 0.3), paddle.to_tensor([[0], [3]]))
    with pytest.raises(ValueError, match="label must be an integer"):
        _ops.cross_entropy(paddle.full([2, 3], 0.3), paddle.ones([2, 1]))


# ---- drawn classes


@pytest.mark.parametrize("sampler", [0, 1, 2])
def test_nce(sampler):
    classes, count = 12, 5
    x, w, b = floats(4, 3), floats(classes, 3, seed=1), floats(classes, seed=2)
    label = ints(4, 2, low=0, high=classes)
    weight = floats(4, low=0.5, seed=3)
    probs = np.random.default_rng(4).dirichlet(np.ones(classes))
    k = np.arange(classes)
    expected = [
        np.full(classes, 1 / classes),
        np.log((k + 2) / (k + 1)) / np.log(classes),
        probs,
    ][sampler] * count

    def ours(x, w, b):
        return _ops.nce(
            x,
            paddle.to_tensor(label),
            w,
            b,
            paddle.to_tensor(weight),
            paddle.to_tensor(probs),
            num_total_classes=classes,
            num_neg_samples=count,
            sampler=sampler,
            seed=7,
        )

    drawn = ours(*[paddle.to_tensor(a) for a in (x, w, b)])[2].numpy()
    np.testing.assert_array_equal(drawn[:, :2], label)
    assert drawn.shape == (4, 7) and drawn.min() >= 0 and drawn.max() < classes

    def theirs(x, w, b):
        chosen = torch.from_numpy(drawn)
        o = torch.sigmoid((w[chosen] * x[:, None]).sum(-1) + b[chosen])
        n = torch.from_numpy(expected)[chosen]
        own, others = -torch.log(o / (o + n)), -torch.log(n / (o + n))
        cost = own[:, :2].sum(1) + others[:, 2:].sum(1)
        return (cost * torch.from_numpy(weight))[:, None]

    check(lambda *a: ours(*a)[0], theirs, x, w, b)


@pytest.mark.parametrize("sampler", [0, 1, 2])
def test_nce_draws_by_its_distribution(sampler):
    classes, count = 8, 20000
    k = np.arange(classes)
    custom = (k + 1) / 36
    want = [
        np.full(classes, 1 / classes),
        np.log((k + 2) / (k + 1)) / np.log(classes),
        custom,
    ][sampler]
    drawn = _ops.nce(
        paddle.ones([1, 2]),
        paddle.zeros([1, 1], "int64"),
        paddle.ones([classes, 2]),
        None,
        None,
        paddle.to_tensor(custom),
        num_total_classes=classes,
        num_neg_samples=count,
        sampler=sampler,
    )[2].numpy()[0, 1:]
    share = np.bincount(drawn, minlength=classes) / count
    if sampler == 1:  # which, as in Paddle, never draws the last class
        want[-1] = 0
    np.testing.assert_allclose(share, want, atol=0.02)


def test_nce_with_wrong_arguments():
    x, w = paddle.ones([2, 3]), paddle.ones([5, 3])
    label = paddle.to_tensor([[1], [5]])
    with pytest.raises(ValueError, match="label 5"):
        _ops.nce(x, label, w, num_total_classes=5)
    with pytest.raises(ValueError, match="sampler must be"):
        _ops.nce(x, label, w, num_total_classes=5, sampler=2)


def test_bilinear_tensor_product():
    check(
        _ops.bilinear_tensor_product,
        lambda x, y, w, b: torch.einsum("ni,kij,nj->nk", x, w, y) + b,
        floats(5, 3),
        floats(5, 4),
        floats(2, 3, 4),
        floats(1, 2),
    )
    with pytest.raises(ValueError, match="do not fit to Weight"):
        _ops.bilinear_tensor_product(
            paddle.ones([2, 3]), paddle.ones([2, 3]), paddle.ones([1, 3, 4])
        )


# ---- look-ups


@pytest.mark.parametrize("padding", [-1, 2])
def test_lookup_table(padding):
    w, ids = floats(7, 3), ints(4, 2, 1, low=0, high=7)
    ids[0, 0, 0] = 2

    def theirs(weight, index):
        keep = (index != padding).to(weight.dtype)
        return weight[index.squeeze(-1)] * keep

    check(lambda a, b: _ops.lookup_table(a, b, padding), theirs, w, ids)


def test_lookup_table_needs_a_last_one():
    with pytest.raises(ValueError, match="last dimension of ids"):
        _ops.lookup_table(paddle.ones([3, 2]), paddle.to_tensor([[0, 1]]))


def test_top_k():
    check(
        lambda x: _ops.top_k(x, None, 2)[0],
        lambda x: torch.topk(x, 2)[0],
        floats(3, 4, 5),
    )
    check_numpy(
        lambda x: _ops.top_k(x, paddle.to_tensor([3]))[1],
        lambda x: np.argsort(-x, -1)[..., :3],
        floats(4, 5),
    )
    with pytest.raises(ValueError, match="k is 6"):
        _ops.top_k(paddle.ones([2, 5]), None, 6)


# ---- pools


def _pool(x, ksize, **kwargs):
    return _ops.pool2d(x, ksize, **kwargs)[0]


def test_pool2d():
    x = floats(2, 3, 6, 8)
    check(lambda a: _pool(a, [2, 2]), lambda a: F.max_pool2d(a, 2), x)
    check(
        lambda a: _pool(a, [3, 3], strides=[2, 2], paddings=[1, 1]),
        lambda a: F.max_pool2d(a, 3, 2, 1),
        x,
    )
    for exclusive in (True, False):
        check(
            lambda a: _pool(
                a,
                [3, 3],
                strides=[2, 2],
                paddings=[1, 1],
                pooling_type="avg",
                exclusive=exclusive,
            ),
            lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=not exclusive),
            x,
        )
    check(
        lambda a: _pool(a, [1, 1], global_pooling=True, pooling_type="avg"),
        lambda a: a.mean((2, 3), keepdim=True),
        x,
    )
    check(
        lambda a: _pool(a, [1, 1], global_pooling=True),
        lambda a: a.amax((2, 3), keepdim=True),
        x,
    )
    check(
        lambda a: _pool(a, [3, 4], adaptive=True, pooling_type="avg"),
        lambda a: F.adaptive_avg_pool2d(a, (3, 4)),
        x,
    )
    check(
        lambda a: _pool(a, [3, 4], adaptive=True),
        lambda a: F.adaptive_max_pool2d(a, (3, 4)),
        x,
    )


def test_pool3d():
    x = floats(2, 3, 4, 6, 8)
    check(lambda a: _ops.pool3d(a, [2, 2, 2])[0], lambda a: F.max_pool3d(a, 2), x)


def test_pool2d_of_an_unknown_type():
    with pytest.raises(ValueError, match="pooling_type must be"):
        _pool(paddle.ones([1, 1, 4, 4]), [2, 2], pooling_type="sum")


@pytest.mark.parametrize("size", range(4, 12))
@pytest.mark.parametrize("paddings", [[0, 1, 0, 1], [1, 0, 2, 1], [2, 2, 2, 2]])
def test_ceil_mode_with_uneven_paddings(size, paddings):
    """Windows that begin inside the input or the padding before it count."""
    x = floats(1, 1, size, size)
    before, behind = paddings[0], paddings[1]
    kernel, stride = 3, 2
    count = -(-(size + before + behind - kernel) // stride) + 1
    if (count - 1) * stride >= size + before:
        count -= 1
    out = _ops.max_pool2d_with_index(
        paddle.to_tensor(x), [kernel], [stride], paddings, True
    )[0]
    assert out.shape[2] == count
    starts = np.arange(count) * stride - before
    lefts = np.arange(out.shape[3]) * stride - paddings[2]
    want = [
        [x[0, 0, max(s, 0) : s + kernel, max(t, 0) : t + kernel].max() for t in lefts]
        for s in starts
    ]
    np.testing.assert_allclose(out.numpy()[0, 0], want)


def test_depthwise_conv2d():
    check(
        lambda x, w: _ops.depthwise_conv2d(x, w, None, groups=3),
        lambda x, w: F.conv2d(x, w, groups=3),
        floats(2, 3, 5, 5),
        floats(6, 1, 3, 3),
    )


# ---- ops of programs for Paddle 1.8


def test_flatten2():
    x = floats(2, 3, 4)
    for axis, shape in [(0, (1, 24)), (1, (2, 12)), (2, (6, 4)), (3, (24, 1))]:
        check(lambda a: _ops.flatten2(a, axis), lambda a: a.reshape(shape), x)
    with pytest.raises(ValueError, match="axis is 4"):
        _ops.flatten2(paddle.to_tensor(x), 4)


def test_one_hot():
    check_numpy(
        lambda x: _ops.one_hot(x, 5),
        lambda x: np.eye(5, dtype="float32")[x[..., 0]],
        ints(3, 2, 1, low=0, high=5),
    )
    with pytest.raises(ValueError, match="index 5"):
        _ops.one_hot(paddle.to_tensor([[5]]), 5)
    with pytest.raises(ValueError, match="last dimension of X"):
        _ops.one_hot(paddle.to_tensor([1, 2]), 5)


def test_expand():
    check(
        lambda x: _ops.expand(x, [2, 1, 3]),
        lambda x: x.repeat(2, 1, 3),
        floats(2, 3, 4),
    )
    with pytest.raises(ValueError, match="expand_times has 1 numbers"):
        _ops.expand(paddle.ones([2, 3]), [2])


def test_pad():
    check(
        lambda x: _ops.pad(x, [1, 0, 2, 3], 0.5),
        lambda x: F.pad(x, (2, 3, 1, 0), value=0.5),
        floats(2, 3),
    )


@pytest.mark.parametrize(
    "mode, theirs",
    [("constant", "constant"), ("reflect", "reflect"), ("edge", "replicate")],
)
def test_pad2d(mode, theirs):
    check(
        lambda x: _ops.pad2d(x, [1, 2, 3, 0], mode=mode),
        lambda x: F.pad(x, (3, 0, 1, 2), mode=theirs),
        floats(2, 3, 4, 5),
    )
    check(
        lambda x: _ops.pad2d(x, [1, 2, 3, 0], mode=mode, data_format="NHWC"),
        lambda x: F.pad(x.permute(0, 3, 1, 2), (3, 0, 1, 2), mode=theirs).permute(
            0, 2, 3, 1
        ),
        floats(2, 4, 5, 3),
    )


def test_norm():
    check(
        lambda x: _ops.norm(x, 1)[0],
        lambda x: x / torch.sqrt((x * x).sum(1, keepdim=True) + 1e-10),
        floats(3, 4, 2),
    )


@pytest.mark.parametrize("rows", [4, 1])
def test_cos_sim(rows):
    check(
        lambda x, y: _ops.cos_sim(x, y)[0],
        lambda x, y: F.cosine_similarity(x, y)[:, None],
        floats(4, 3),
        floats(rows, 3, seed=1),
    )


def test_label_smooth():
    x = floats(3, 5)
    check(lambda x: _ops.label_smooth(x, None, 0.1), lambda x: x * 0.9 + 0.02, x)
    prior = floats(1, 5)
    check_numpy(
        lambda x: _ops.label_smooth(x, paddle.to_tensor(prior), 0.1),
        lambda x: x * 0.9 + prior * 0.1,
        x,
    )


def test_huber_loss():
    check(
        lambda x, y: _ops.huber_loss(x, y, 0.7)[0],
        lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.7),
        floats(4, 1),
        floats(4, 1, seed=1),
    )


def test_instance_norm():
    check(
        lambda x, s, b: _ops.instance_norm(x, s, b)[0],
        lambda x, s, b: F.instance_norm(x, weight=s, bias=b),
        floats(2, 3, 4, 5),
        floats(3),
        floats(3, seed=1),
    )
    with pytest.raises(ValueError, match="Scale must have 3 elements"):
        _ops.instance_norm(paddle.ones([2, 3, 4]), paddle.ones([2]))


# ---- integers


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (_ops.relu6, lambda x: np.clip(x, 0, 6)),
        (_ops.swish, lambda x: x / (1 + np.exp(-x))),
        (_ops.hard_sigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
        (_ops.logsumexp, lambda x: np.log(np.exp(x).sum())),
        (lambda x: _ops.pow(x, 0.5), np.sqrt),
        (lambda x: _ops.pow(x, 2.0), np.square),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_shape_rules_know_what_becomes_of_integers(ours, theirs, dtype):
    """The tests compare every result with its op's shape rule."""
    check_numpy(ours, theirs, ints(3, 4, low=0, high=9, dtype=dtype), rtol=1e-5)


# ---- tensors made of numbers


def test_batch_size_like():
    x = paddle.ones([7, 2])
    out = _ops.fill_constant_batch_size_like(x, [-1, 3], value=2.5)
    np.testing.assert_array_equal(out.numpy(), np.full((7, 3), 2.5, "float32"))
    out = _ops.fill_constant_batch_size_like(
        x, [4, -1], output_dim_idx=1, dtype=paddle.int64, value=3
    )
    assert out.shape == [4, 7] and out.dtype == paddle.int64
    uniform = _ops.uniform_random_batch_size_like(x, [-1, 500], min=2.0, max=3.0)
    assert uniform.shape == [7, 500]
    assert 2 <= uniform.numpy().min() < 2.05 and 2.95 < uniform.numpy().max() <= 3
    normal = _ops.gaussian_random_batch_size_like(x, [-1, 500], mean=4.0, std=0.5)
    assert normal.shape == [7, 500]
    assert abs(normal.numpy().mean() - 4) < 0.05
    assert abs(normal.numpy().std() - 0.5) < 0.05


def test_assign_value():
    out = _ops.assign_value([2, 2], paddle.float32, fp32_values=[1.0, 2.5, -3.0, 0.0])
    np.testing.assert_array_equal(out.numpy(), [[1, 2.5], [-3, 0]])
    assert out.dtype == paddle.float32
    big = 2**62 + 1
    out = _ops.assign_value([1], paddle.int64, int64_values=[big])
    assert out.numpy()[0] == big
    out = _ops.assign_value([2], paddle.bool, bool_values=[1, 0])
    np.testing.assert_array_equal(out.numpy(), [True, False])
    with pytest.raises(ValueError, match="has 4 elements but 1 are given"):
        _ops.assign_value([2, 2], paddle.int32, int32_values=[1])


def test_fill_zeros_like():
    out = _ops.fill_zeros_like(paddle.ones([2, 3], "int64"))
    np.testing.assert_array_equal(out.numpy(), np.zeros((2, 3), "int64"))


# ---- auc


def _area(scores, labels):
    """By counting pairs; a tie is half a pair."""
    pos, neg = scores[labels == 1], scores[labels == 0]
    if not len(pos) or not len(neg):
        return 0.0
    diff = pos[:, None] - neg[None, :]
    return ((diff > 0).sum() + (diff == 0).sum() / 2) / diff.size


def test_auc_over_all_batches():
    rng = np.random.default_rng(0)
    states = [paddle.zeros([1, 1001], "int64") for _ in range(2)]
    seen = np.zeros(0), np.zeros(0, "int64")
    for _ in range(3):
        # On the thresholds, so that buckets lose nothing.
        scores = rng.integers(0, 1001, 50) / 1000
        labels = rng.integers(0, 2, 50)
        predict = np.stack([1 - scores, scores], 1)
        auc, pos, neg = _ops.auc(
            paddle.to_tensor(predict),
            paddle.to_tensor(labels[:, None]),
            *states,
            num_thresholds=1000,
            slide_steps=0,
        )
        seen = np.append(seen[0], scores), np.append(seen[1], labels)
        np.testing.assert_allclose(auc.numpy(), [_area(*seen)], 1e-9)
    assert states[0].numpy().sum() == seen[1].sum()
    assert pos.numpy().sum() == states[0].numpy().sum()


@pytest.mark.parametrize("steps", [1, 3])
def test_auc_over_the_last_batches(steps):
    rng = np.random.default_rng(1)
    states = [paddle.zeros([(steps + 1) * 101 + 1], "int64") for _ in range(2)]
    batches = []
    for _ in range(6):
        scores = (rng.integers(0, 101, 40) / 100).astype("float32")
        labels = rng.integers(0, 2, 40)
        batches.append((np.floor(scores.astype("float64") * 100), labels))
        auc = _ops.auc(
            paddle.to_tensor(scores[:, None]),
            paddle.to_tensor(labels[:, None]),
            *states,
            num_thresholds=100,
            slide_steps=steps,
        )[0]
        last = batches[-steps:]
        want = _area(
            np.concatenate([b[0] for b in last]), np.concatenate([b[1] for b in last])
        )
        np.testing.assert_allclose(auc.numpy(), [want], 1e-9)


def test_auc_with_wrong_arguments():
    states = [paddle.zeros([1, 11], "int64") for _ in range(2)]
    label = paddle.to_tensor([[1]])
    with pytest.raises(ValueError, match="prediction 0 is 1.5"):
        _ops.auc(
            paddle.to_tensor([[1.5]]), label, *states, num_thresholds=10, slide_steps=0
        )
    with pytest.raises(ValueError, match="StatPos must have 12 elements"):
        _ops.auc(
            paddle.to_tensor([[0.5]]), label, *states, num_thresholds=11, slide_steps=0
        )
    with pytest.raises(ValueError, match="curve must be 'ROC'"):
        _ops.auc(paddle.to_tensor([[0.5]]), label, *states, curve="PR")
