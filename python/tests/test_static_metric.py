# SPDX-License-Identifier: Apache-2.0
"""static.accuracy and static.auc, with the states that they keep."""

import numpy as np
import paddle
import pytest
from paddle import static
from static_check import drawn, feed_of, fresh_programs, run, start, value_of

assert fresh_programs  # a fixture
pytestmark = pytest.mark.usefixtures("fresh_programs")


def area(scores, labels):
    """The share of pairs in the right order, ties half: the area under the ROC curve."""
    positive, negative = scores[labels == 1], scores[labels == 0]
    order = positive[:, None] - negative[None, :]
    return ((order > 0) + 0.5 * (order == 0)).mean()


def test_accuracy_of_the_best_k():
    scores, labels = drawn(6, 5), np.array([[0], [1], [2], [3], [4], [0]])
    x, y = feed_of("x", scores), feed_of("y", labels)
    correct = static.create_global_var([1], 0, "int32", name="correct")
    total = static.create_global_var([1], 0, "int32", name="total")
    best = static.accuracy(input=x, label=y)
    among = static.accuracy(x, y, k=3, correct=correct, total=total)
    start()
    got = run([best, among, correct, total], {"x": scores, "y": labels})
    ranks = np.argsort(-scores, 1)
    assert got[0].shape == (1,)
    np.testing.assert_allclose(got[0], (ranks[:, :1] == labels).mean(), 1e-6)
    hits = (ranks[:, :3] == labels).sum()
    np.testing.assert_allclose(got[1], hits / 6, 1e-6)
    assert (got[2].item(), got[3].item()) == (hits, 6)


def batches(count):
    rng = np.random.default_rng(0)
    for _ in range(count):
        labels = rng.integers(2, size=(40, 1))
        # Whole 256ths, so that no two scores share a bucket that differ.
        scores = rng.integers(100, size=(40, 1)) + 40 * labels
        share = (scores / 256).astype("float32")
        yield np.concatenate([1 - share, share], 1), labels


def test_the_states_of_auc_have_the_names_by_which_scripts_set_them_to_zero():
    x, y = static.data("x", [None, 2]), static.data("y", [None, 1], "int64")
    of_all, _, states = static.auc(x, y, num_thresholds=255)
    names = [f"_generated_var_{i}" for i in range(4)]
    assert [s.name for s in states] == names
    assert static.create_global_var([1], 0, "int64").name == "_generated_var_4"
    start()
    first, second = batches(2)
    run([of_all], {"x": first[0], "y": first[1]})
    for name in names:
        found = static.global_scope().find_var(name).get_tensor()
        found.set(np.zeros(found.shape(), "int64"), paddle.CPUPlace())
    (got,) = run([of_all], {"x": second[0], "y": second[1]})
    np.testing.assert_allclose(got, [area(second[0][:, 1], second[1][:, 0])], 1e-6)


def test_auc_of_all_batches_and_of_the_last_ones():
    x, y = static.data("x", [None, 2]), static.data("y", [None, 1], "int64")
    of_all, of_last, states = static.auc(x, y, num_thresholds=255, slide_steps=2)
    assert [s.shape for s in states] == [[769], [769], [1, 256], [1, 256]]
    assert all(s.persistable for s in states)
    start()
    seen = []
    for scores, labels in batches(4):
        seen.append((scores[:, 1], labels[:, 0]))
        got = run([of_all, of_last], {"x": scores, "y": labels})
        for value, part in zip(got, (seen, seen[-2:])):
            wanted = area(*(np.concatenate(column) for column in zip(*part)))
            np.testing.assert_allclose(value, [wanted], 1e-6)
    assert value_of(states[2].name).sum() == sum(labels.sum() for _, labels in seen)
    start()
    assert value_of(states[2].name).sum() == 0


def test_auc_of_one_batch():
    x, y = static.data("x", [None, 2]), static.data("y", [None, 1], "int64")
    _, of_batch, _ = static.auc(input=x, label=y, num_thresholds=255)
    start()
    for scores, labels in batches(3):
        (got,) = run([of_batch], {"x": scores, "y": labels})
        np.testing.assert_allclose(got, area(scores[:, 1], labels[:, 0]), 1e-6)


def test_auc_says_what_is_wrong():
    x, y = static.data("x", [None, 3]), static.data("y", [None, 1], "int64")
    with pytest.raises(ValueError, match="curve must be"):
        static.auc(x, y, curve="line")
    with pytest.raises(ValueError, match="slide_steps"):
        static.auc(x, y, slide_steps=-1)
    with pytest.raises(ValueError, match=r"\[N, 1\] or \[N, 2\]"):
        static.auc(x, y)


def test_metrics_leave_training_alone():
    x, y = static.data("x", [None, 4]), static.data("y", [None, 1], "int64")
    prediction = static.nn.fc(x, 2, activation="softmax")
    loss = paddle.mean(static.nn.cross_entropy(prediction, y))
    static.accuracy(prediction, y)
    static.auc(prediction, y)
    paddle.optimizer.SGD(0.1).minimize(loss)
    start()
    feed = {"x": drawn(4, 4), "y": np.array([[0], [1], [1], [0]])}
    losses = [run([loss], feed)[0].item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
