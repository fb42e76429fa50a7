# SPDX-License-Identifier: Apache-2.0
"""Sequences of different lengths in programs: fed, passed on, pooled, cut anew."""

import numpy as np
import paddle
import paddle.fluid as fluid
import pytest
import torch
from paddle import static
from paddle.fluid import layers
from static_check import drawn, fresh_programs, run, start, value_of

assert fresh_programs  # a fixture
pytestmark = pytest.mark.usefixtures("fresh_programs")

LENGTHS = [2, 3, 1]
ROWS = drawn(6, 2)
PARTS = np.split(ROWS, [2, 5])


def sequence(array, lengths=LENGTHS):
    return fluid.create_lod_tensor(array, [list(lengths)], fluid.CPUPlace())


def data(name="x", width=2, dtype="float32"):
    return layers.data(name, [width], dtype=dtype, lod_level=1)


def test_rows_keep_their_sequences_through_layers():
    x = data()
    hidden = layers.fc(x, 3, act="tanh")
    assert hidden.lod_level == 1
    pooled = paddle.nn.functional.sequence_pool(hidden * 2.0, "average")
    assert (pooled.shape, pooled.lod_level) == ([-1, 3], 0)
    start()
    (got,) = run([pooled], {"x": sequence(ROWS)})
    weight = value_of("fc_0.w_0")
    wanted = [2 * np.tanh(part @ weight).mean(0) for part in PARTS]
    np.testing.assert_allclose(got, np.stack(wanted), 1e-5, 1e-6)


def test_offsets_may_be_fed_by_themselves():
    pooled = layers.sequence_pool(data(), "sum")
    wanted = np.stack([part.sum(0) for part in PARTS])
    (got,) = run([pooled], {"x": ROWS, "x@LOD": np.array([0, 2, 5, 6])})
    np.testing.assert_allclose(got, wanted, 1e-5)


def test_values_of_sequences_come_with_their_lengths():
    x = data()
    hidden, pooled = x * 2.0, layers.sequence_pool(x, "sum")
    executor = static.Executor(paddle.CPUPlace())
    got = executor.run(
        feed={"x": sequence(ROWS)},
        fetch_list=[pooled, hidden.name, x],
        return_numpy=False,
    )
    assert isinstance(got[0], paddle.Tensor) and got[0].shape == [3, 2]
    for value, factor in zip(got[1:], (2, 1)):
        assert isinstance(value, fluid.LoDTensor)
        assert value.recursive_sequence_lengths() == [LENGTHS]
        np.testing.assert_array_equal(np.array(value), factor * ROWS)
    (again,) = executor.run(feed={"x": got[1]}, fetch_list=[pooled])
    np.testing.assert_allclose(again, 2 * got[0].numpy(), 1e-5)


def test_lengths_change_from_run_to_run():
    x = data()
    pooled = layers.sequence_pool(x, "max", pad_value=-1.0)
    executor = static.Executor(paddle.CPUPlace())
    for lengths in ([6], [1, 5], [3, 0, 3], [2, 2, 2]):
        fed = sequence(ROWS, lengths)
        (got,) = executor.run(feed={"x": fed}, fetch_list=[pooled])
        ends = np.cumsum(lengths)[:-1]
        wanted = [
            part.max(0) if len(part) else [-1.0, -1.0] for part in np.split(ROWS, ends)
        ]
        np.testing.assert_array_equal(got, np.stack(wanted).astype("float32"))


def test_what_is_computed_within_sequences():
    x, one = data(), data("one", 1)
    numbers = drawn(6, 1, seed=3)
    outs = [
        layers.sequence_softmax(one),
        layers.sequence_reverse(x),
        layers.sequence_enumerate(data("ids", 1, "int64"), 2, pad_value=9),
    ]
    assert all(out.lod_level == 1 for out in outs)
    ids = np.arange(6).reshape(6, 1)
    feed = {"x": sequence(ROWS), "one": sequence(numbers), "ids": sequence(ids)}
    softmax, reverse, windows = run(outs, feed)
    wanted = [np.exp(part) / np.exp(part).sum() for part in np.split(numbers, [2, 5])]
    np.testing.assert_allclose(softmax, np.concatenate(wanted), 1e-5)
    np.testing.assert_array_equal(reverse, np.concatenate([p[::-1] for p in PARTS]))
    np.testing.assert_array_equal(
        windows, [[0, 1], [1, 9], [2, 3], [3, 4], [4, 9], [5, 9]]
    )


def test_sequences_are_expanded_joined_and_cut():
    x, y = data(), data("y")
    row = layers.data("row", [2])
    starts = layers.data("starts", [1], dtype="int64")
    counts = layers.data("counts", [1], dtype="int64")
    outs = {
        "expand": layers.sequence_expand(row, x),
        "expand_as": layers.sequence_expand_as(row, x),
        "concat": layers.sequence_pool(layers.sequence_concat([x, y]), "first"),
        "last": layers.sequence_pool(layers.sequence_concat([x, y]), "last"),
        "slice": layers.sequence_slice(x, starts, counts),
        "wide": layers.sequence_reshape(data("z"), 4),
        "reset": layers.sequence_pool(layers.lod_reset(x, target_lod=[0, 4, 6]), "sum"),
        "as y": layers.sequence_pool(layers.lod_reset(x, y), "sum"),
    }
    rows, other = drawn(3, 2, seed=4), drawn(6, 2, seed=5)
    feed = {
        "x": sequence(ROWS),
        "y": sequence(other, [1, 1, 4]),
        "z": sequence(ROWS, [2, 4]),
        "row": rows,
        "starts": np.array([[1], [0], [0]]),
        "counts": np.array([[1], [2], [1]]),
    }
    got = dict(zip(outs, run(list(outs.values()), feed)))
    repeated = np.repeat(rows, LENGTHS, 0)
    np.testing.assert_array_equal(got["expand"], repeated)
    np.testing.assert_array_equal(got["expand_as"], repeated)
    np.testing.assert_array_equal(got["concat"], ROWS[[0, 2, 5]])
    np.testing.assert_array_equal(got["last"], other[[0, 1, 5]])
    np.testing.assert_array_equal(got["slice"], ROWS[[1, 2, 3, 5]])
    np.testing.assert_array_equal(got["wide"], ROWS.reshape(3, 4))
    np.testing.assert_allclose(
        got["reset"], np.stack([ROWS[:4].sum(0), ROWS[4:].sum(0)]), 1e-5
    )
    wanted = [ROWS[:1].sum(0), ROWS[1:2].sum(0), ROWS[2:].sum(0)]
    np.testing.assert_allclose(got["as y"], np.stack(wanted), 1e-5)
    with pytest.raises(ValueError, match="must say where to cut"):
        layers.lod_reset(x)


def test_padding_and_back():
    x = data()
    value = layers.fill_constant([1], "float32", -1.0)
    padded, lengths = layers.sequence_pad(x, value)
    back = layers.sequence_unpad(padded, lengths)
    wider, _ = layers.sequence_pad(x, value, maxlen=4)
    got = run([padded, lengths, back, wider], {"x": sequence(ROWS)})
    wanted = np.full((3, 3, 2), -1.0, "float32")
    for i, part in enumerate(PARTS):
        wanted[i, : len(part)] = part
    np.testing.assert_array_equal(got[0], wanted)
    np.testing.assert_array_equal(got[1], LENGTHS)
    np.testing.assert_array_equal(got[2], ROWS)
    assert got[3].shape == (3, 4, 2)


def test_sequence_conv_trains_as_in_torch():
    x = data()
    out = layers.sequence_conv(x, 3, filter_size=3, act="tanh")
    pooled = layers.sequence_pool(out, "sum")
    pairs = static.append_backward(layers.mean(pooled))
    start()
    got = run([pooled, *[g for _, g in pairs]], {"x": sequence(ROWS)})
    names = ["sequence_conv_0.w_0", "sequence_conv_0.b_0"]
    weight, bias = (torch.tensor(value_of(n), requires_grad=True) for n in names)
    sums = []
    for part in PARTS:
        edge = np.zeros((1, 2), "float32")
        rows = np.concatenate([edge, part, edge])
        windows = np.stack([rows[i : i + 3].ravel() for i in range(len(part))])
        sums.append(torch.tanh(torch.tensor(windows) @ weight + bias).sum(0))
    wanted = torch.stack(sums)
    wanted.mean().backward()
    np.testing.assert_allclose(got[0], wanted.detach().numpy(), 1e-5, 1e-6)
    gradients = {p.name: g for (p, _), g in zip(pairs, got[1:])}
    np.testing.assert_allclose(gradients[names[0]], weight.grad.numpy(), 1e-4, 1e-6)
    np.testing.assert_allclose(gradients[names[1]], bias.grad.numpy(), 1e-4, 1e-6)


def test_sequences_say_what_is_wrong():
    x = data()
    with pytest.raises(ValueError, match="pool_type must be one of"):
        layers.sequence_pool(x, "median")
    with pytest.raises(TypeError, match="Variables of a program"):
        layers.sequence_pool(ROWS, "sum")
    plain = layers.data("plain", [2])
    with pytest.raises(ValueError, match="plain"):
        layers.sequence_pool(plain, "sum")
    pooled = layers.sequence_pool(x, "sum")
    bad = sequence(ROWS)
    bad.set_recursive_sequence_lengths([[2, 2]])
    with pytest.raises(ValueError, match="end at 4, but it has 6 rows"):
        run([pooled], {"x": bad})
    with pytest.raises(RuntimeError, match="x@LOD"):
        run([pooled], {"x": ROWS})
