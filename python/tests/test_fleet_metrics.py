# SPDX-License-Identifier: Apache-2.0
import numpy as np
import paddle
import pytest
from paddle.distributed.fleet import metrics


class Worker:
    """Stands for fleet.util on a worker whose one colleague holds `other` for each
    call in turn."""

    def __init__(self, *others):
        self._others = list(others)

    def all_reduce(self, input, mode):
        pair = np.stack([np.asarray(input), np.asarray(self._others.pop(0))])
        return getattr(pair, mode)(axis=0)


class Scope:
    """Holds variables, as that of a program does."""

    def __init__(self, **arrays):
        self._arrays = arrays

    def find_var(self, name):
        array = self._arrays[name]
        return type("Variable", (), {"get_tensor": lambda self: array})()


MINE, THEIRS = np.array([[1.0, 5.0]]), np.array([[3.0, 2.0]])


@pytest.mark.parametrize("kind", [np.asarray, paddle.to_tensor, lambda a: a.tolist()])
def test_elementwise_over_all_workers(kind):
    mine = kind(MINE)
    np.testing.assert_array_equal(metrics.sum(mine, util=Worker(THEIRS)), [[4, 7]])
    np.testing.assert_array_equal(metrics.max(mine, util=Worker(THEIRS)), [[3, 5]])
    np.testing.assert_array_equal(metrics.min(mine, util=Worker(THEIRS)), [[1, 2]])


def test_variables_of_a_scope():
    variable = type("Variable", (), {"name": "x"})()
    for value in ("x", variable):
        total = metrics.sum(value, scope=Scope(x=MINE), util=Worker(THEIRS))
        np.testing.assert_array_equal(total, [[4, 7]])
    with pytest.raises(ValueError, match="no variable x"):
        metrics.sum("x", util=Worker(THEIRS))


def by_pairs(score, label):
    """The area by its definition: how often a positive sample is above a negative
    one, where equal ones count half."""
    above = score[label == 1][:, None] - score[label == 0][None, :]
    return np.mean((above > 0) + 0.5 * (above == 0))


@pytest.mark.parametrize("seed", range(3))
def test_auc_over_all_workers(seed):
    rng = np.random.RandomState(seed)
    buckets = 16
    score = rng.randint(0, buckets, 400)
    label = (rng.rand(400) * buckets < score).astype(int)
    half = np.arange(400) % 2 == 0

    def counts(kind, part):
        return np.bincount(score[part & (label == kind)], minlength=buckets)[None]

    area = metrics.auc(
        counts(1, half),
        counts(0, half),
        util=Worker(counts(1, ~half), counts(0, ~half)),
    )
    assert isinstance(area, float)
    assert area == pytest.approx(by_pairs(score, label), rel=1e-12)


def test_auc_without_one_kind_of_samples():
    none, some = np.zeros((1, 4)), np.ones((1, 4))
    assert metrics.auc(none, some, util=Worker(none, some)) == 0.5
    assert metrics.auc(some, none, util=Worker(some, none)) == 0.5
    assert metrics.auc(none, none, util=Worker(none, none)) == 0.5


def test_auc_counts_beyond_the_range_of_float32():
    positive = np.array([[1, 2**26 + 1]], "float32")
    negative = np.array([[2**26 + 1, 1]], "float32")
    zero = np.zeros((1, 2), "float32")
    area = metrics.auc(positive, negative, util=Worker(zero, zero))
    assert area == pytest.approx(1.0, abs=1e-7)


def test_means_over_all_workers():
    errors, count = [6.0], [4]
    worker = ([10.0], [12])
    assert metrics.mae(errors, count, util=Worker(*worker[::-1])) == 1.0
    assert metrics.mse(errors, count, util=Worker(*worker[::-1])) == 1.0
    errors = [26.0]
    assert metrics.mse(errors, count, util=Worker(*worker[::-1])) == 2.25
    assert metrics.rmse(errors, count, util=Worker(*worker[::-1])) == 1.5
    assert metrics.acc([3], [4], util=Worker([4], [3])) == 6 / 8


def test_alone_a_metric_is_that_of_this_process():
    from paddle.distributed import fleet

    fleet.init(is_collective=True)
    with pytest.warns(UserWarning, match="gloo is not initialized"):
        assert metrics.acc(np.array([3]), paddle.to_tensor([4])) == 0.75
