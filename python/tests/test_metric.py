# SPDX-License-Identifier: Apache-2.0
"""paddle.metric against numpy and counting by hand."""

import numpy as np
import paddle
import pytest
from paddle.metric import Accuracy, Auc, Metric, Precision, Recall, accuracy


def scores(num=50, classes=7, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((num, classes)).astype(np.float32)
    return logits, rng.integers(0, classes, num)


def top_share(logits, labels, k):
    best = np.argsort(-logits, axis=-1)[..., :k]
    return np.mean((best == labels[..., None]).any(-1))


# -- accuracy of one batch


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("shape", [(-1, 1), (-1,)])
def test_accuracy_counts_labels_among_the_best(k, shape):
    logits, labels = scores()
    label = paddle.to_tensor(labels.reshape(shape))
    out = accuracy(paddle.to_tensor(logits), label, k=k)
    assert out.shape == [1] and out.dtype == paddle.float32
    np.testing.assert_allclose(out.numpy()[0], top_share(logits, labels, k), 1e-6)


def test_accuracy_tells_correct_and_total():
    logits, labels = scores()
    correct = paddle.to_tensor(np.zeros(1, np.int32))
    total = paddle.to_tensor(np.zeros(1, np.int32))
    accuracy(paddle.to_tensor(logits), paddle.to_tensor(labels), 2, correct, total)
    assert correct.numpy().tolist() == [round(50 * top_share(logits, labels, 2))]
    assert total.numpy().tolist() == [50]


def test_accuracy_names_what_is_wrong_with_its_input():
    logits, labels = scores(4)
    label = paddle.to_tensor(labels)
    with pytest.raises(ValueError, match="accuracy.*label"):
        accuracy(paddle.to_tensor(logits[:3]), label)
    with pytest.raises(ValueError, match="accuracy.*label"):
        accuracy(paddle.to_tensor(logits), paddle.to_tensor(np.zeros((4, 2), "int64")))
    with pytest.raises(ValueError, match="empty"):
        accuracy(paddle.to_tensor(logits[:0]), label[:0])
    with pytest.raises(ValueError, match="k"):
        accuracy(paddle.to_tensor(logits), label, k=8)
    logits[2, 5] = np.nan
    with pytest.raises(ValueError, match="accuracy.*NaN"):
        accuracy(paddle.to_tensor(logits), label)


# -- Accuracy


def test_accuracy_gathers_over_batches():
    metric = Accuracy(topk=(1, 3))
    assert metric.name() == ["acc_top1", "acc_top3"]
    everything = []
    for seed, num in enumerate((30, 20, 7)):
        logits, labels = scores(num, seed=seed)
        everything.append((logits, labels))
        correct = metric.compute(
            paddle.to_tensor(logits), paddle.to_tensor(labels[:, None])
        )
        assert correct.shape == [num, 3] and correct.dtype == paddle.float32
        shares = metric.update(correct)
        expected = [top_share(logits, labels, k) for k in (1, 3)]
        np.testing.assert_allclose(shares, expected)
    logits, labels = (np.concatenate(part) for part in zip(*everything))
    expected = [top_share(logits, labels, k) for k in (1, 3)]
    np.testing.assert_allclose(metric.accumulate(), expected)
    metric.reset()
    assert metric.accumulate() == [0.0, 0.0]


def test_accuracy_takes_flat_and_one_hot_labels():
    logits, labels = scores()
    expected = top_share(logits, labels, 1)
    for label in (labels, labels[:, None], np.eye(7, dtype="float32")[labels]):
        metric = Accuracy(name="right")
        correct = metric.compute(paddle.to_tensor(logits), paddle.to_tensor(label))
        np.testing.assert_allclose(metric.update(correct.numpy()), expected)
        np.testing.assert_allclose(metric.accumulate(), expected)
        assert metric.name() == ["right"]


def test_accuracy_of_sequences():
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((3, 5, 4)).astype(np.float32)
    labels = rng.integers(0, 4, (3, 5))
    metric = Accuracy()
    metric.update(metric.compute(paddle.to_tensor(logits), paddle.to_tensor(labels)))
    np.testing.assert_allclose(metric.accumulate(), top_share(logits, labels, 1))


def test_accuracy_refuses_what_it_cannot_count():
    logits, labels = scores(4)
    metric = Accuracy(topk=(1, 8))
    with pytest.raises(ValueError, match="top 8 of 7 classes"):
        metric.compute(paddle.to_tensor(logits), paddle.to_tensor(labels))
    metric = Accuracy()
    with pytest.raises(ValueError, match="label has shape"):
        metric.compute(paddle.to_tensor(logits), paddle.to_tensor(labels[:3]))
    logits[0, 0] = np.nan
    with pytest.raises(ValueError, match="Accuracy: pred has a NaN"):
        metric.compute(paddle.to_tensor(logits), paddle.to_tensor(labels))
    with pytest.raises(ValueError, match="Accuracy: correct has a NaN"):
        metric.update(np.array([[np.nan]]))
    with pytest.raises(ValueError, match="topk"):
        Accuracy(topk=(0,))


def test_an_empty_batch_adds_nothing():
    metric = Accuracy()
    assert metric.update(np.zeros((0, 1), np.float32)) == 0.0
    metric.update(np.ones((3, 1), np.float32))
    assert metric.accumulate() == 1.0


# -- Precision and Recall


@pytest.mark.parametrize("column", [False, True])
def test_precision_and_recall_count_pairs(column):
    rng = np.random.default_rng(1)
    precision, recall = Precision(), Recall()
    assert (precision.name(), recall.name()) == ("precision", "recall")
    assert precision.accumulate() == recall.accumulate() == 0.0
    hits = found = there = 0
    for _ in range(3):
        preds = rng.random(40).astype(np.float32)
        preds[0] = 0.5  # counts as positive
        labels = rng.integers(0, 2, 40)
        hits += sum(p >= 0.5 and y == 1 for p, y in zip(preds, labels))
        found += sum(p >= 0.5 for p in preds)
        there += sum(labels)
        if column:
            preds, labels = preds[:, None], labels[:, None]
        precision.update(preds, labels)
        recall.update(paddle.to_tensor(preds), paddle.to_tensor(labels))
    np.testing.assert_allclose(precision.accumulate(), hits / found)
    np.testing.assert_allclose(recall.accumulate(), hits / there)
    precision.reset()
    recall.reset()
    assert precision.accumulate() == recall.accumulate() == 0.0


@pytest.mark.parametrize("kind", [Precision, Recall, Auc])
def test_binary_metrics_refuse_bad_input(kind):
    metric = kind()
    with pytest.raises(ValueError, match="preds has a NaN"):
        metric.update(np.array([0.1, np.nan]), np.array([0, 1]))
    with pytest.raises(ValueError, match="3 labels"):
        metric.update(np.array([0.1, 0.2]), np.array([0, 1, 1]))
    with pytest.raises(ValueError, match="must be an array or a Tensor, not list"):
        metric.update([0.1], np.array([0]))


# -- Auc


def pairwise_auc(preds, labels):
    """The share of pairs in the right order; ties count half."""
    above = preds[labels == 1][:, None] - preds[labels == 0][None, :]
    return np.mean((above > 0) + 0.5 * (above == 0))


def test_auc_is_the_share_of_ordered_pairs():
    rng = np.random.default_rng(2)
    metric = Auc()
    assert metric.name() == "auc" and metric.accumulate() == 0.0
    labels = rng.integers(0, 2, 300)
    # Whole multiples of a bin's width, so that binning changes nothing.
    preds = np.clip(rng.normal(0.4 + 0.2 * labels, 0.2), 0, 1)
    preds = np.round(preds * 64) / 64
    metric = Auc(num_thresholds=64)
    for part in np.array_split(np.arange(300), 4):
        both = np.stack([1 - preds[part], preds[part]], 1)
        metric.update(both, labels[part][:, None])
    np.testing.assert_allclose(metric.accumulate(), pairwise_auc(preds, labels))
    fine = Auc()
    fine.update(paddle.to_tensor(preds), paddle.to_tensor(labels))
    np.testing.assert_allclose(fine.accumulate(), pairwise_auc(preds, labels), 1e-3)
    metric.reset()
    assert metric.accumulate() == 0.0


def test_auc_of_perfect_and_useless_predictions():
    labels = np.array([0, 0, 1, 1])
    for preds, area in [
        ([0.1, 0.2, 0.8, 0.9], 1.0),
        ([0.9, 0.8, 0.2, 0.1], 0.0),
        ([0.5, 0.5, 0.5, 0.5], 0.5),
    ]:
        metric = Auc()
        metric.update(np.array(preds), labels)
        assert metric.accumulate() == pytest.approx(area)


def test_auc_under_precision_and_recall():
    metric = Auc(curve="PR", num_thresholds=10)
    metric.update(np.array([0.9, 0.8, 0.7, 0.6]), np.array([1, 0, 1, 0]))
    # (recall, precision): (0, 1) (1/2, 1) (1/2, 1/2) (1, 2/3) (1, 1/2)
    assert metric.accumulate() == pytest.approx(0.5 + 0.5 * (1 / 2 + 2 / 3) / 2)


def test_auc_refuses_what_are_no_probabilities():
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        Auc().update(np.array([0.5, 1.5]), np.array([0, 1]))
    with pytest.raises(ValueError, match="curve"):
        Auc(curve="XYZ")
    with pytest.raises(ValueError, match="num_thresholds"):
        Auc(num_thresholds=0)


# -- Metric


def test_a_metric_of_ones_own_passes_outputs_through():
    class Mean(Metric):
        def __init__(self):
            self.reset()

        def reset(self):
            self.values = []

        def update(self, output, label):
            self.values.append(float(np.mean(output - label)))

        def accumulate(self):
            return float(np.mean(self.values))

        def name(self):
            return "mean"

    metric = Mean()
    metric.update(*metric.compute(np.array([3.0]), np.array([1.0])))
    assert metric.accumulate() == 2.0
    with pytest.raises(TypeError, match="abstract"):
        Metric()
