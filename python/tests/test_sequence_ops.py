# SPDX-License-Identifier: Apache-2.0
"""Ops on sequences of different lengths: rows of all sequences in one tensor, and the
offsets at which they begin in a second one."""

import numpy as np
import paddle
import pytest
import torch
from op_check import check, check_numpy, floats, ints
from paddle import _ops

OFFSETS = [0, 2, 2, 5, 6]


def _lod(offsets=OFFSETS):
    return paddle.to_tensor(np.array(offsets, "int64"))


def _parts(x, offsets=OFFSETS):
    return [x[a:b] for a, b in zip(offsets, offsets[1:])]


def _expect_error(match, function, *args, **kwargs):
    with pytest.raises(ValueError, match=match):
        function(*args, **kwargs)


# ---- pools


@pytest.mark.parametrize(
    "kind, one",
    [
        ("SUM", lambda p: p.sum(0)),
        ("AVERAGE", lambda p: p.mean(0)),
        ("SQRT", lambda p: p.sum(0) / len(p) ** 0.5),
        ("MAX", lambda p: p.max(0)[0]),
        ("FIRST", lambda p: p[0]),
        ("LAST", lambda p: p[-1]),
    ],
)
@pytest.mark.parametrize("pad", [0.0, 3.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pool(kind, one, pad, dtype):
    def theirs(x):
        empty = torch.full(x.shape[1:], pad, dtype=x.dtype)
        return torch.stack([one(p) if len(p) else empty for p in _parts(x)])

    for shape in [(6, 3), (6, 2, 3)]:
        check(
            lambda x: _ops.sequence_pool(x, _lod(), kind, pad)[0],
            theirs,
            floats(*shape, dtype=dtype),
        )


def test_pool_tells_which_rows_were_largest():
    x = floats(6, 3)
    index = _ops.sequence_pool(paddle.to_tensor(x), _lod(), "MAX")[1].numpy()
    assert index.dtype == np.int32
    np.testing.assert_array_equal(index[1], [-1] * 3)
    np.testing.assert_array_equal(index[2], 2 + x[2:5].argmax(0))


def test_pool_of_no_rows():
    out = _ops.sequence_pool(paddle.zeros([0, 3]), _lod([0, 0, 0]), "SUM", 1.5)[0]
    np.testing.assert_array_equal(out.numpy(), np.full((2, 3), 1.5, "float32"))


def test_pool_with_wrong_arguments():
    x = paddle.ones([6, 3])
    _expect_error("pooltype must be", _ops.sequence_pool, x, _lod(), "MEDIAN")
    _expect_error(
        "offsets end at 5 but there are 6", _ops.sequence_pool, x, _lod([0, 5])
    )
    _expect_error("never fall", _ops.sequence_pool, x, _lod([0, 4, 2, 6]))
    _expect_error("begin with 0", _ops.sequence_pool, x, _lod([1, 6]))


# ---- one row for each row


def test_softmax():
    def theirs(x):
        return torch.cat([torch.softmax(p, 0) for p in _parts(x)])

    check(lambda x: _ops.sequence_softmax(x, _lod()), theirs, floats(6))
    check(lambda x: _ops.sequence_softmax(x, _lod()), theirs, floats(6, 1))
    _expect_error(
        "X must have shape", _ops.sequence_softmax, paddle.ones([6, 2]), _lod()
    )


def test_reverse():
    check(
        lambda x: _ops.sequence_reverse(x, _lod()),
        lambda x: torch.cat([p.flip(0) for p in _parts(x)]),
        floats(6, 3),
    )


@pytest.mark.parametrize("start", [-1, 0, 1])
def test_conv(start):
    def theirs(x, w):
        rows = []
        for part in _parts(x):
            for i in range(len(part)):
                around = [
                    part[i + start + k]
                    if 0 <= i + start + k < len(part)
                    else torch.zeros(2, dtype=x.dtype)
                    for k in range(3)
                ]
                rows.append(torch.cat(around) @ w)
        return torch.stack(rows)

    check(
        lambda x, w: _ops.sequence_conv(x, w, _lod(), 3, start),
        theirs,
        floats(6, 2),
        floats(6, 4, seed=1),
    )


def test_conv_with_a_filter_that_does_not_fit():
    _expect_error(
        "must have 6 rows",
        _ops.sequence_conv,
        paddle.ones([6, 2]),
        paddle.ones([5, 4]),
        _lod(),
        3,
    )


def test_row_conv():
    def theirs(x, w):
        rows = []
        for part in _parts(x):
            for i in range(len(part)):
                follows = part[i : i + 3]
                rows.append((follows * w[: len(follows)]).sum(0))
        return torch.stack(rows)

    check(
        lambda x, w: _ops.row_conv(x, w, _lod()),
        theirs,
        floats(6, 4),
        floats(3, 4, seed=1),
    )
    _expect_error(
        "must have the width",
        _ops.row_conv,
        paddle.ones([6, 2]),
        paddle.ones([3, 4]),
        _lod(),
    )


def test_enumerate():
    x = ints(6, 1, low=1, high=9)

    def theirs(x):
        rows = []
        for part in _parts(x[:, 0]):
            padded = np.append(part, [0, 0])
            rows += [padded[i : i + 3] for i in range(len(part))]
        return np.array(rows)

    check_numpy(lambda x: _ops.sequence_enumerate(x, _lod(), 3), theirs, x)


# ---- other numbers of rows


def test_expand_rows():
    def ours(x):
        return _ops.sequence_expand(x, paddle.ones([6, 1]), None, _lod())

    def theirs(x):
        return x.repeat_interleave(torch.tensor(np.diff(OFFSETS)), 0)

    x = floats(4, 3)
    check(lambda x: ours(x)[0], theirs, x)
    np.testing.assert_array_equal(ours(paddle.to_tensor(x))[1].numpy(), OFFSETS)
    check(lambda x: _ops.sequence_expand_as(x, paddle.ones([6, 1]), _lod()), theirs, x)


def test_expand_sequences():
    mine = [0, 1, 3, 4, 4]

    def ours(x):
        return _ops.sequence_expand(x, paddle.ones([6, 1]), _lod(mine), _lod())

    def theirs(x):
        parts = _parts(x, mine)
        times = np.diff(OFFSETS)
        return torch.cat([p for p, n in zip(parts, times) for _ in range(n)])

    x = floats(4, 3)
    check(lambda x: ours(x)[0], theirs, x)
    lengths = np.repeat(np.diff(mine), np.diff(OFFSETS))
    np.testing.assert_array_equal(
        ours(paddle.to_tensor(x))[1].numpy(), np.append(0, np.cumsum(lengths))
    )
    _expect_error(
        "X has 3 sequences but Y has 4",
        _ops.sequence_expand,
        paddle.ones([3, 1]),
        paddle.ones([6, 1]),
        None,
        _lod(),
    )


def test_concat():
    other = [0, 1, 2, 2, 4]

    def ours(x, y):
        return _ops.sequence_concat([x, y], [_lod(), _lod(other)])

    def theirs(x, y):
        pairs = zip(_parts(x), _parts(y, other))
        return torch.cat([p for pair in pairs for p in pair])

    x, y = floats(6, 3), floats(4, 3, seed=1)
    check(lambda x, y: ours(x, y)[0], theirs, x, y)
    offsets = ours(paddle.to_tensor(x), paddle.to_tensor(y))[1].numpy()
    np.testing.assert_array_equal(offsets, np.add(OFFSETS, other))


@pytest.mark.parametrize("length", [-1, 5])
def test_pad_and_unpad(length):
    def theirs(x):
        width = length if length > 0 else 3
        rows = [
            torch.cat([p, torch.full((width - len(p), 2), 1.5, dtype=x.dtype)])
            for p in _parts(x)
        ]
        return torch.stack(rows)

    value = paddle.to_tensor(np.array([1.5]))
    x = floats(6, 2)
    check(lambda x: _ops.sequence_pad(x, value, _lod(), length)[0], theirs, x)
    padded, lengths = _ops.sequence_pad(paddle.to_tensor(x), value, _lod(), length)
    np.testing.assert_array_equal(lengths.numpy(), np.diff(OFFSETS))
    back, offsets = _ops.sequence_unpad(padded, lengths)
    np.testing.assert_array_equal(back.numpy(), x)
    np.testing.assert_array_equal(offsets.numpy(), OFFSETS)


def test_unpad():
    lengths = paddle.to_tensor(np.array([2, 0, 3]))
    check(
        lambda x: _ops.sequence_unpad(x, lengths)[0],
        lambda x: torch.cat([x[0, :2], x[2, :3]]),
        floats(3, 4, 2),
    )
    _expect_error(
        "length 5 of sequence 0",
        _ops.sequence_unpad,
        paddle.ones([1, 4, 2]),
        paddle.to_tensor([5]),
    )


def test_pad_to_less_than_the_longest():
    _expect_error(
        "less than the longest sequence, 3",
        _ops.sequence_pad,
        paddle.ones([6, 2]),
        paddle.zeros([1]),
        _lod(),
        2,
    )


def test_mask():
    lengths = np.array([[1, 3], [0, 2]])

    def theirs(x, n):
        return (np.arange(n) < x[..., None]).astype("int64")

    check_numpy(_ops.sequence_mask, lambda x: theirs(x, 3), lengths)
    check_numpy(
        lambda x: _ops.sequence_mask(x, None, 5), lambda x: theirs(x, 5), lengths
    )
    out = _ops.sequence_mask(
        paddle.to_tensor(lengths), paddle.to_tensor([4]), -1, paddle.float32
    )
    assert out.dtype == paddle.float32
    np.testing.assert_array_equal(out.numpy(), theirs(lengths, 4))


def test_reshape():
    offsets = [0, 2, 4, 6]
    x = floats(6, 2)
    check(
        lambda x: _ops.sequence_reshape(x, _lod(offsets), 4)[0],
        lambda x: x.reshape(3, 4),
        x,
    )
    out = _ops.sequence_reshape(paddle.to_tensor(x), _lod(offsets), 4)[1]
    np.testing.assert_array_equal(out.numpy(), [0, 1, 2, 3])
    _expect_error(
        "cannot have rows of 4",
        _ops.sequence_reshape,
        paddle.ones([3, 2]),
        _lod([0, 3]),
        4,
    )


def test_slice():
    offset, length = paddle.to_tensor([0, 0, 1, 0]), paddle.to_tensor([1, 0, 2, 1])
    x = floats(6, 3)
    check(
        lambda x: _ops.sequence_slice(x, offset, length, _lod())[0],
        lambda x: torch.cat([x[0:1], x[3:5], x[5:6]]),
        x,
    )
    offsets = _ops.sequence_slice(paddle.to_tensor(x), offset, length, _lod())[1]
    np.testing.assert_array_equal(offsets.numpy(), [0, 1, 1, 3, 4])
    _expect_error(
        "rows 0 to 4 are not in sequence 2",
        _ops.sequence_slice,
        paddle.to_tensor(x),
        paddle.to_tensor([0, 0, 0, 0]),
        paddle.to_tensor([0, 0, 4, 0]),
        _lod(),
    )


def test_lod_reset():
    x = floats(6, 2)
    check(lambda x: _ops.lod_reset(x, None, None, [0, 3, 6])[0], lambda x: x * 1, x)
    for args in [
        (None, None, [0, 3, 6]),
        (paddle.to_tensor([0, 3, 6]), None),
        (paddle.ones([6, 1]), _lod([0, 3, 6])),
    ]:
        offsets = _ops.lod_reset(paddle.to_tensor(x), *args)[1]
        np.testing.assert_array_equal(offsets.numpy(), [0, 3, 6])
    _expect_error("neither Y nor", _ops.lod_reset, paddle.to_tensor(x))
