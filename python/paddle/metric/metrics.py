# SPDX-License-Identifier: Apache-2.0
"""Metrics that gather over batches."""

import abc

import numpy as np

import paddle
from paddle import Tensor


class Metric(abc.ABC):
    """What metrics inherit from.

    For each batch `state = metric.compute(outputs, labels)` may do part of the
    work with Tensors, and `metric.update(*state)` adds to the counts, in numpy.
    `accumulate()` is the result over everything since `reset()`.
    """

    @abc.abstractmethod
    def reset(self):
        """Forgets all batches."""

    @abc.abstractmethod
    def update(self, *args):
        """Adds a batch: what `compute` returned, as arrays or Tensors."""

    @abc.abstractmethod
    def accumulate(self):
        """The result over all batches."""

    @abc.abstractmethod
    def name(self):
        """What the result is called; a list where there are several."""

    def compute(self, *args):
        """What `update` is called with: by default the outputs and labels."""
        return args


class Accuracy(Metric):
    """The share of samples whose class is among the k most likely, for each k of
    `topk`."""

    def __init__(self, topk=(1,), name=None, *args, **kwargs):
        super().__init__(*args, **kwargs)
        topk = (topk,) if isinstance(topk, int) else tuple(topk)
        if not topk or min(topk) < 1:
            raise ValueError(f"Accuracy: topk must be positive numbers: {topk}")
        self.topk = topk
        self.maxk = max(topk)
        name = name or "acc"
        self._name = [name]
        if self.maxk != 1:
            self._name = [f"{name}_top{k}" for k in topk]
        self.reset()

    def compute(self, pred, label, *args):
        """[..., max(topk)] of float32: 1 where the class of that rank is right.

        `pred` are scores [..., classes]; `label` classes [..., 1] or [...], or one
        number for each class, of which the largest is the right one.
        """
        _check_numbers("Accuracy", "pred", pred)
        classes = pred.shape[-1]
        if classes < self.maxk:
            raise ValueError(
                f"Accuracy: top {self.maxk} of {classes} classes: pred has shape "
                f"{list(pred.shape)}"
            )
        label_shape = list(label.shape)
        rows = list(pred.shape[:-1])
        if label_shape == rows:
            label = paddle.unsqueeze(label, -1)
        elif label_shape == [*rows, classes] and classes != 1:
            label = paddle.argmax(label, axis=-1, keepdim=True)
        elif label_shape != [*rows, 1]:
            raise ValueError(
                f"Accuracy: label has shape {label_shape}, but pred {list(pred.shape)}"
            )
        _, best = paddle.topk(pred, self.maxk)
        return paddle.cast(paddle.equal(best, paddle.cast(label, "int64")), "float32")

    def update(self, correct, *args):
        """Adds what `compute` returned; returns the accuracy of this batch."""
        correct = _array("Accuracy", "correct", correct)
        num = int(np.prod(correct.shape[:-1]))
        shares = []
        for i, k in enumerate(self.topk):
            hits = float(correct[..., :k].sum())
            shares.append(hits / num if num else 0.0)
            self.total[i] += hits
            self.count[i] += num
        return shares[0] if len(shares) == 1 else shares

    def reset(self):
        self.total = [0.0] * len(self.topk)
        self.count = [0] * len(self.topk)

    def accumulate(self):
        """The accuracy, or a list with one for each k; 0 before any sample."""
        shares = [t / c if c else 0.0 for t, c in zip(self.total, self.count)]
        return shares[0] if len(shares) == 1 else shares

    def name(self):
        return self._name


class Precision(Metric):
    """The share of true ones among samples predicted as positive (0.5 or more)."""

    def __init__(self, name="precision", *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._name = name
        self.reset()

    def update(self, preds, labels):
        """Adds a batch: probabilities, and as many labels 0 or 1."""
        positive, truth = _binary("Precision", preds, labels)
        self.tp += int(np.sum(positive & truth))
        self.fp += int(np.sum(positive & ~truth))

    def reset(self):
        self.tp = 0
        self.fp = 0

    def accumulate(self):
        found = self.tp + self.fp
        return self.tp / found if found else 0.0

    def name(self):
        return self._name


class Recall(Metric):
    """The share of positive samples that are predicted as positive (0.5 or more)."""

    def __init__(self, name="recall", *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._name = name
        self.reset()

    def update(self, preds, labels):
        """Adds a batch: probabilities, and as many labels 0 or 1."""
        positive, truth = _binary("Recall", preds, labels)
        self.tp += int(np.sum(positive & truth))
        self.fn += int(np.sum(~positive & truth))

    def reset(self):
        self.tp = 0
        self.fn = 0

    def accumulate(self):
        there = self.tp + self.fn
        return self.tp / there if there else 0.0

    def name(self):
        return self._name


class Auc(Metric):
    """The area under a curve, from counts in bins of probability.

    Args:
        curve: 'ROC' (false against true positive rate) or 'PR' (recall against
            precision).
        num_thresholds: the number of bins less one. The error is at most the share
            of pairs of a positive and a negative sample that fall into one bin.
    """

    def __init__(self, curve="ROC", num_thresholds=4095, name="auc", *args, **kwargs):
        super().__init__(*args, **kwargs)
        if curve not in ("ROC", "PR"):
            raise ValueError(f"Auc: curve must be 'ROC' or 'PR', not {curve!r}")
        if num_thresholds < 1:
            raise ValueError(f"Auc: num_thresholds must be positive: {num_thresholds}")
        self._curve = curve
        self._num_thresholds = num_thresholds
        self._name = name
        self.reset()

    def update(self, preds, labels):
        """Adds a batch: probabilities of both classes [N, 2], or of the positive
        one [N, 1] or [N]; labels 0 or 1, as many as there are rows."""
        preds = _array("Auc", "preds", preds)
        labels = _array("Auc", "labels", labels).reshape(-1)
        if preds.ndim == 2 and preds.shape[1] == 2:
            preds = preds[:, 1]
        if preds.size != labels.size:
            raise ValueError(
                f"Auc: preds of shape {list(preds.shape)} for {labels.size} labels"
            )
        preds = preds.reshape(-1).astype(np.float64)
        if preds.size and not 0 <= preds.min() <= preds.max() <= 1:
            raise ValueError(
                "Auc: probabilities must be in [0, 1], but there are some from "
                f"{preds.min()} to {preds.max()}"
            )
        bins = (preds * self._num_thresholds).astype(np.int64)
        size = self._num_thresholds + 1
        truth = labels.astype(bool)
        self._stat_pos += np.bincount(bins[truth], minlength=size)
        self._stat_neg += np.bincount(bins[~truth], minlength=size)

    def reset(self):
        self._stat_pos = np.zeros(self._num_thresholds + 1, np.int64)
        self._stat_neg = np.zeros(self._num_thresholds + 1, np.int64)

    def accumulate(self):
        """The area; 0 until there are samples of both classes."""
        # From the highest threshold down, starting where nothing is positive.
        true = np.concatenate([[0], np.cumsum(self._stat_pos[::-1])]).astype(float)
        false = np.concatenate([[0], np.cumsum(self._stat_neg[::-1])]).astype(float)
        if true[-1] == 0 or false[-1] == 0:
            return 0.0
        if self._curve == "ROC":
            return _area(false / false[-1], true / true[-1])
        found = true + false
        precision = np.divide(true, found, out=np.ones_like(true), where=found > 0)
        return _area(true / true[-1], precision)

    def name(self):
        return self._name


def _area(x, y):
    """Under the straight lines through the points."""
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2))


def _binary(what, preds, labels):
    preds = _array(what, "preds", preds).reshape(-1)
    labels = _array(what, "labels", labels).reshape(-1)
    if preds.size != labels.size:
        raise ValueError(f"{what}: {preds.size} predictions for {labels.size} labels")
    return preds >= 0.5, labels == 1


def _array(what, name, value):
    if isinstance(value, Tensor):
        value = value.numpy()
    elif not isinstance(value, (np.ndarray, np.generic)):
        raise ValueError(
            f"{what}: {name} must be an array or a Tensor, not {type(value).__name__}"
        )
    value = np.asarray(value)
    if value.dtype.kind == "f" and np.isnan(value).any():
        raise _nan(what, name)
    return value


def _check_numbers(what, name, tensor):
    if paddle.any(paddle.isnan(tensor)).numpy().item():
        raise _nan(what, name)


def _nan(what, name):
    return ValueError(f"{what}: {name} has a NaN; the model's output is not a number")
