# SPDX-License-Identifier: Apache-2.0
"""static.nn: layers that make their parameters, with their values and gradients."""

import math

import numpy as np
import paddle
import pytest
import torch
from paddle import static
from static_check import drawn, feed_of, fresh_programs, run, start, value_of

assert fresh_programs  # a fixture
pytestmark = pytest.mark.usefixtures("fresh_programs")


def check(out, feed, peer, tolerance=1e-5):
    """The value of `out`, and the gradients of its weighted sum by all parameters,
    against `peer`, which computes it from tensors of torch by name."""
    shape = [1 if n < 0 else n for n in out.shape]
    weights = drawn(*shape, seed=7)
    loss = paddle.sum(out * paddle.to_tensor(weights))
    pairs = static.append_backward(loss)
    start()
    values = {
        p.name: torch.tensor(value_of(p.name), requires_grad=p.trainable)
        for p in static.default_main_program().all_parameters()
    }
    wanted = peer({k: torch.tensor(v) for k, v in feed.items()}, values)
    (wanted * torch.tensor(weights)).sum().backward()
    got = run([out, *[gradient for _, gradient in pairs]], feed)
    np.testing.assert_allclose(got[0], wanted.detach().numpy(), tolerance, tolerance)
    assert len(pairs) == sum(v.requires_grad for v in values.values())
    for (parameter, _), gradient in zip(pairs, got[1:]):
        np.testing.assert_allclose(
            gradient, values[parameter.name].grad.numpy(), tolerance, 10 * tolerance
        )


F = torch.nn.functional
IMAGES = drawn(3, 4, 7, 6)


def test_fc_over_several_inputs_and_flattened_dimensions():
    x, y = drawn(3, 2, 4), drawn(3, 8, seed=1)
    out = static.nn.fc([feed_of("x", x), feed_of("y", y)], 5, activation="tanh")
    assert out.shape == [-1, 5]
    check(
        out,
        {"x": x, "y": y},
        lambda feed, p: torch.tanh(
            feed["x"].reshape(3, 8) @ p["fc_0.w_0"]
            + feed["y"] @ p["fc_0.w_1"]
            + p["fc_0.b_0"]
        ),
    )


def test_fc_keeps_leading_dimensions():
    x = drawn(3, 2, 4)
    out = static.nn.fc(x=feed_of("x", x), size=5, num_flatten_dims=2, bias_attr=False)
    assert out.shape == [-1, 2, 5]
    check(out, {"x": x}, lambda feed, p: feed["x"] @ p["fc_0.w_0"])


def test_fc_says_what_is_wrong():
    x = static.data("x", [None, 4])
    with pytest.raises(TypeError, match="size"):
        static.nn.fc(x)
    with pytest.raises(TypeError, match="'x' .or 'input'. is missing"):
        static.nn.fc(size=3)
    with pytest.raises(ValueError, match="num_flatten_dims 2"):
        static.nn.fc(x, 3, num_flatten_dims=2)
    with pytest.raises(ValueError, match="2 inputs, but 1 weight_attr"):
        static.nn.fc([x, x], 3, weight_attr=[None])
    with pytest.raises(ValueError, match="must be known"):
        static.nn.fc(static.data("open", [3, None]), 3)
    with pytest.raises(ValueError, match="no activation"):
        static.nn.fc(x, 3, activation="no_such_thing")


def test_embedding():
    ids = np.array([[1], [4], [2]])
    out = static.nn.embedding(feed_of("ids", ids), [6, 3], padding_idx=-2)
    assert out.shape == [-1, 1, 3]

    def peer(feed, p):
        rows = p["embedding_0.w_0"][feed["ids"]]
        return rows * (feed["ids"] != 4).unsqueeze(-1)

    check(out, {"ids": ids}, peer)
    with pytest.raises(ValueError, match="size must be"):
        static.nn.embedding(static.data("more", [None, 1], "int64"), 6)
    with pytest.raises(ValueError, match="padding_idx 9"):
        static.nn.embedding(static.data("n", [None, 1], "int64"), [6, 3], padding_idx=9)


@pytest.mark.parametrize("groups, padding", [(None, 1), (2, "VALID")])
def test_conv2d(groups, padding):
    out = static.nn.conv2d(
        feed_of("x", IMAGES), 6, [3, 2], 2, padding, groups=groups, act="sigmoid"
    )
    assert [p.name for p in static.default_main_program().all_parameters()] == [
        "conv2d_0.w_0",
        "conv2d_0.b_0",
    ]
    check(
        out,
        {"x": IMAGES},
        lambda feed, p: torch.sigmoid(
            F.conv2d(
                feed["x"],
                p["conv2d_0.w_0"],
                p["conv2d_0.b_0"],
                2,
                1 if padding == 1 else 0,
                groups=groups or 1,
            )
        ),
    )


def test_conv2d_begins_with_a_deviation_by_its_inputs():
    static.nn.conv2d(feed_of("x", drawn(1, 16, 9, 9)), 64, 3)
    start()
    weight = value_of("conv2d_0.w_0")
    assert abs(weight.std() - math.sqrt(2 / (9 * 16))) < 0.01
    assert not value_of("conv2d_0.b_0").any()


def test_conv2d_transpose_by_filter_and_by_output_size():
    x = feed_of("x", IMAGES)
    out = static.nn.conv2d_transpose(x, 5, filter_size=3, stride=2, padding=1)
    check(
        out,
        {"x": IMAGES},
        lambda feed, p: F.conv_transpose2d(
            feed["x"],
            p["conv2d_transpose_0.w_0"],
            p["conv2d_transpose_0.b_0"],
            2,
            1,
        ),
    )
    sized = static.nn.conv2d_transpose(x, 5, output_size=[15, 13], stride=2)
    assert sized.shape == [-1, 5, 15, 13]
    with pytest.raises(ValueError, match="filter_size or output_size"):
        static.nn.conv2d_transpose(x, 5)


def test_conv3d_and_its_transpose():
    volumes = drawn(2, 3, 4, 5, 4)
    x = feed_of("x", volumes)
    out = static.nn.conv3d_transpose(static.nn.conv3d(x, 4, 3, padding=1), 2, None, 2)
    check(
        out,
        {"x": volumes},
        lambda feed, p: F.conv_transpose3d(
            F.conv3d(feed["x"], p["conv3d_0.w_0"], p["conv3d_0.b_0"], padding=1),
            p["conv3d_transpose_0.w_0"],
            p["conv3d_transpose_0.b_0"],
        ),
        1e-4,
    )


def test_convolutions_say_what_is_wrong():
    x = feed_of("x", IMAGES)
    with pytest.raises(ValueError, match="groups"):
        static.nn.conv2d(x, 6, 3, groups=3)
    with pytest.raises(ValueError, match="4 dimensions"):
        static.nn.conv2d(static.data("flat", [None, 4]), 6, 3)
    with pytest.raises(ValueError, match="number of channels must be known"):
        static.nn.conv2d(static.data("open", [None, None, 5, 5]), 6, 3)


def test_batch_norm_moves_its_statistics_and_tests_by_them():
    out = static.nn.batch_norm(feed_of("x", IMAGES), momentum=0.8, act="relu")
    names = [p.name for p in static.default_main_program().all_parameters()]
    assert names == [f"batch_norm_0.{n}" for n in ("w_0", "b_0", "w_1", "w_2")]
    test = static.default_main_program().clone(for_test=True)
    start()
    (got,) = run([out], {"x": IMAGES})
    peer = torch.nn.BatchNorm2d(4, momentum=0.2)
    wanted = torch.relu(peer(torch.tensor(IMAGES)))
    np.testing.assert_allclose(got, wanted.detach().numpy(), 1e-4, 1e-5)
    mean = IMAGES.mean((0, 2, 3))
    np.testing.assert_allclose(value_of("batch_norm_0.w_1"), 0.2 * mean, 1e-4, 1e-6)
    (tested,) = run([out.name], {"x": IMAGES}, test)
    variance = value_of("batch_norm_0.w_2")
    scaled = (IMAGES - 0.2 * mean[:, None, None]) / np.sqrt(
        variance[:, None, None] + 1e-5
    )
    np.testing.assert_allclose(tested, np.maximum(scaled, 0), 1e-4, 1e-5)
    np.testing.assert_allclose(value_of("batch_norm_0.w_1"), 0.2 * mean, 1e-4, 1e-6)


def test_layer_norm():
    out = static.nn.layer_norm(feed_of("x", IMAGES), begin_norm_axis=2, epsilon=1e-3)

    def peer(feed, p):
        scale = p["layer_norm_0.w_0"].reshape(7, 6)
        shift = p["layer_norm_0.b_0"].reshape(7, 6)
        return F.layer_norm(feed["x"], [7, 6], scale, shift, 1e-3)

    check(out, {"x": IMAGES}, peer, 1e-4)
    static.nn.layer_norm(feed_of("y", IMAGES), scale=False, shift=False)
    assert len(static.default_main_program().all_parameters()) == 2


def test_group_norm_and_instance_norm():
    x = feed_of("x", IMAGES)
    out = static.nn.instance_norm(static.nn.group_norm(x, 2))

    def peer(feed, p):
        grouped = F.group_norm(
            feed["x"], 2, p["group_norm_0.w_0"], p["group_norm_0.b_0"]
        )
        return F.instance_norm(
            grouped, weight=p["instance_norm_0.w_0"], bias=p["instance_norm_0.b_0"]
        )

    check(out, {"x": IMAGES}, peer, 1e-4)


def test_data_norm_adds_every_batch_to_its_sums():
    x = drawn(5, 3)
    out = static.nn.data_norm(feed_of("x", x), name="dn", summary_decay_rate=0.5)
    start()
    (got,) = run([out], {"x": x})
    np.testing.assert_allclose(got, x, 1e-5)  # mean 0, deviation 1 at first
    np.testing.assert_allclose(value_of("dn.batch_size"), [5005.0] * 3)
    np.testing.assert_allclose(value_of("dn.batch_sum"), x.sum(0), 1e-5)
    np.testing.assert_allclose(
        value_of("dn.batch_square_sum"), 5000 + (x**2).sum(0) + 5e-5, 1e-5
    )
    (again,) = run([out], {"x": x})
    sums = [5005.0, x.sum(0), 5000 + (x**2).sum(0)]
    mean, scale = sums[1] / sums[0], np.sqrt(sums[0] / sums[2])
    np.testing.assert_allclose(again, (x - mean) * scale, 1e-4)
    test = static.default_main_program().clone(for_test=True)
    before = value_of("dn.batch_size")
    run([out.name], {"x": x}, test)
    np.testing.assert_array_equal(value_of("dn.batch_size"), before)


def test_data_norm_has_sums_of_its_own_rank(monkeypatch):
    x = static.data("x", [None, 3])
    static.nn.data_norm(x, sync_stats=True)
    monkeypatch.setattr(paddle.distributed.parallel, "get_world_size", lambda: 2)
    with pytest.raises(NotImplementedError, match="sync_stats=True.*sync_batch_norm"):
        static.nn.data_norm(x, sync_stats=True)


def test_data_norm_with_scale_and_shift():
    x = drawn(5, 3)
    first = {"batch_size": 4.0, "batch_sum": 8.0, "batch_square": 16.0, "scale_w": 3.0}
    out = static.nn.data_norm(
        feed_of("x", x), name="dn", param_attr=first, enable_scale_and_shift=True
    )
    check(
        out,
        {"x": x},
        lambda feed, p: (feed["x"] - 2.0) * 0.5 * p["dn.scale_w"] + p["dn.bias"],
    )


@pytest.mark.parametrize(
    "mode, shape", [("all", [1]), ("channel", [4]), ("element", [1, 4, 7, 6])]
)
def test_prelu(mode, shape):
    out = static.nn.prelu(feed_of("x", IMAGES), mode)
    assert static.default_main_program().all_parameters()[0].shape == shape

    def peer(feed, p):
        alpha = p["prelu_0.w_0"]
        alpha = alpha.reshape(4, 1, 1) if mode == "channel" else alpha
        return torch.where(feed["x"] > 0, feed["x"], feed["x"] * alpha)

    check(out, {"x": IMAGES}, peer)
    with pytest.raises(ValueError, match="mode must be"):
        static.nn.prelu(static.data("y", [None, 4]), "some")


def test_spectral_norm():
    weight = static.create_parameter([4, 3, 2], "float32", name="w")
    out = static.nn.spectral_norm(weight, dim=1, power_iters=3)
    start()

    def peer(feed, p):
        matrix = p["w"].permute(1, 0, 2).reshape(3, 8)
        u = p["spectral_norm_0.w_0"]
        with torch.no_grad():
            for _ in range(3):
                v = matrix.T @ u
                v = v / (v.norm() + 1e-12)
                u = matrix @ v
                u = u / (u.norm() + 1e-12)
        return p["w"] / (u.T @ matrix @ v)

    check(out, {}, peer)


def test_row_conv_looks_ahead():
    x = drawn(2, 5, 3)
    out = static.nn.row_conv(feed_of("x", x), 2)

    def peer(feed, p):
        padded = F.pad(feed["x"], [0, 0, 0, 2])
        weight = p["row_conv_0.w_0"]
        return sum(padded[:, i : i + 5] * weight[i] for i in range(3))

    check(out, {"x": x}, peer)
    with pytest.raises(ValueError, match=r"\[N, T, D\]"):
        static.nn.row_conv(static.data("flat", [None, 3]), 2)


def test_bilinear_tensor_product():
    x, y = drawn(3, 4), drawn(3, 5, seed=1)
    out = static.nn.bilinear_tensor_product(
        feed_of("x", x), feed_of("y", y), 2, act="tanh"
    )
    check(
        out,
        {"x": x, "y": y},
        lambda feed, p: torch.tanh(
            torch.einsum(
                "na,oab,nb->no",
                feed["x"],
                p["bilinear_tensor_product_0.w_0"],
                feed["y"],
            )
            + p["bilinear_tensor_product_0.b_0"]
        ),
    )


@pytest.mark.parametrize("sampler", ["uniform", "log_uniform", "custom_dist"])
def test_nce_is_the_expected_loss_on_average(sampler):
    classes, negatives = 6, 4
    shares = [0.3, 0.1, 0.2, 0.1, 0.1, 0.2]
    x, labels = drawn(4, 3), np.array([[0], [5], [2], [3]])
    loss = static.nn.nce(
        feed_of("x", x),
        feed_of("y", labels),
        classes,
        num_neg_samples=negatives,
        sampler=sampler,
        custom_dist=shares if sampler == "custom_dist" else None,
    )
    assert loss.shape == [-1, 1]
    paddle.optimizer.SGD(0.0).minimize(paddle.mean(loss))
    start()
    if sampler == "uniform":
        shares = [1 / classes] * classes
    elif sampler == "log_uniform":
        shares = [math.log((c + 2) / (c + 1)) / math.log(classes) for c in range(6)]
    weight, bias = value_of("nce_0.w_0"), value_of("nce_0.b_0")
    score = 1 / (1 + np.exp(-(x @ weight.T + bias[:, 0])))
    noise = negatives * np.array(shares)
    if sampler == "log_uniform":
        shares[-1] = 0.0  # as in Paddle, the last class is never drawn
    rows = np.arange(4)
    right = -np.log(score / (score + noise))[rows, labels[:, 0]]
    wrong = negatives * (np.array(shares) * -np.log(noise / (score + noise))).sum(1)
    executor = static.Executor(paddle.CPUPlace())
    paddle.seed(3)
    runs = [
        executor.run(feed={"x": x, "y": labels}, fetch_list=[loss])[0]
        for _ in range(400)
    ]
    assert np.std([r[0, 0] for r in runs]) > 0
    np.testing.assert_allclose(np.mean(runs, 0)[:, 0], right + wrong, 0.08)
    with pytest.raises(ValueError, match="sampler must be"):
        static.nn.nce(feed_of("z", x), feed_of("l", labels), 6, sampler="other")
    with pytest.raises(ValueError, match="custom_dist"):
        static.nn.nce(feed_of("u", x), feed_of("v", labels), 6, custom_dist=[1.0])


def test_weight_norm_begins_at_the_length_of_its_direction():
    x = drawn(3, 4)
    attr = static.WeightNormParamAttr(dim=1, name="w")
    out = static.nn.fc(feed_of("x", x), 5, weight_attr=attr, bias_attr=False)
    start()
    names = [p.name for p in static.default_main_program().all_parameters()]
    assert sorted(names) == ["w.weight_norm_g", "w.weight_norm_v"]
    direction = value_of("w.weight_norm_v")
    np.testing.assert_allclose(
        value_of("w.weight_norm_g"), np.sqrt((direction**2).sum(0)), 1e-5
    )

    def peer(feed, p):
        v = p["w.weight_norm_v"]
        return feed["x"] @ (
            p["w.weight_norm_g"] * v / (v**2).sum(0, keepdim=True).sqrt()
        )

    check(out, {"x": x}, peer)


def test_create_parameter_and_global_variables():
    weight = static.create_parameter(
        [2, 3], "float32", name="w", attr=paddle.ParamAttr(learning_rate=0.5)
    )
    assert weight.optimize_attr == {"learning_rate": 0.5}
    total = static.create_global_var([1], 2.5, "float32", persistable=True, name="t")
    assert static.create_global_var([1], 0.0, "float32", name="t") is total
    grown = paddle.assign(total + 1.0, total)
    start()
    assert [run([grown])[0].item() for _ in range(3)] == [3.5, 4.5, 5.5]
    assert value_of("t") == 5.5


def test_names_that_belong_to_other_parts():
    executor = static.Executor(paddle.CPUPlace())
    for method in (executor.train_from_dataset, executor.infer_from_dataset):
        with pytest.raises(RuntimeError, match="dataset is need"):
            method(static.default_main_program(), None)
    with pytest.raises(AttributeError):
        static.nn.no_such_layer


def test_input_specs():
    spec = static.InputSpec([None, 3], "int64", "ids")
    assert (spec.shape, spec.dtype, spec.name) == ((-1, 3), paddle.int64, "ids")
    assert static.InputSpec.from_tensor(static.data("x", [None, 2])).shape == (-1, 2)
    assert static.InputSpec.from_numpy(drawn(2, 3), "a").dtype == paddle.float32
    assert spec.batch(4).shape == (4, -1, 3)
    assert spec.unbatch() == static.InputSpec([None, 3], "int64", "ids")
    with pytest.raises(ValueError, match="no dimension"):
        static.InputSpec([]).unbatch()


def test_the_seed_of_a_program_and_its_blocks():
    program = static.default_main_program()
    program.random_seed = 7
    assert program.random_seed == 7 and program.num_blocks == 1
    assert program.block(0).idx == program.current_block().idx == 0
