# SPDX-License-Identifier: Apache-2.0
"""paddle.DataParallel with real processes, against one process with the whole batch."""

import signal
import time

import numpy as np
import pytest

from tests.collective import training
from tests.collective.ranks import Job, run

SCRIPT = "parallel_cases.py"
STEPS = 20


def alone(kind, optimizer, num_ranks=1):
    """What the training gives in this process alone."""
    model = training.make(kind)
    rule = training.make_optimizer(optimizer, model)
    for number in range(STEPS):
        training.step(model, rule, kind, number)
    return training.state(model)


@pytest.mark.parametrize(
    "kind, optimizer, num_ranks, tolerance",
    [
        ("mlp", "SGD", 2, 1e-6),
        ("mlp", "Momentum", 3, 1e-6),
        ("mlp", "Adam", 2, 1e-5),
        ("mlp", "Adagrad", 2, 1e-5),
        ("cnn", "SGD", 2, 1e-6),
        ("cnn", "Momentum", 3, 1e-6),
        ("words", "SGD", 2, 1e-6),
        ("words", "Adam", 3, 1e-5),
        ("dense_words", "Adagrad", 2, 1e-5),
    ],
)
def test_ranks_end_where_one_process_with_the_joined_batch_does(
    tmp_path, kind, optimizer, num_ranks, tolerance
):
    out = tmp_path / "state.npz"
    run(num_ranks, SCRIPT, "train", kind, optimizer, out)
    training.assert_close(np.load(out), alone(kind, optimizer), tolerance)


def test_the_same_over_tcp(tmp_path):
    out = tmp_path / "state.npz"
    run(2, SCRIPT, "train", "cnn", "Momentum", out, env={"FLEET_COMM": "tcp"})
    training.assert_close(np.load(out), alone("cnn", "Momentum"), 1e-6)


def test_no_sync_collects_until_the_next_exchange(tmp_path):
    out = tmp_path / "state.npz"
    run(2, SCRIPT, "no_sync", out)
    training.assert_close(np.load(out), alone("mlp", "SGD"), 1e-6)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_parameters_that_some_ranks_do_not_reach(num_ranks):
    run(num_ranks, SCRIPT, "branches")


def test_join_lets_ranks_have_different_numbers_of_batches(tmp_path):
    out = tmp_path / "state.npz"
    run(2, SCRIPT, "join", out)
    # Three steps of both ranks, then two with zeros from rank 0.
    model = training.make("mlp")
    rule = training.make_optimizer("SGD", model)
    for number in range(3):
        training.step(model, rule, "mlp", number)
    for number in (3, 4):
        x, y = (training.share(a, 1, 2) for a in training.batch("mlp", number))
        (training.nn.functional.mse_loss(model(x), y) / 2).backward()
        rule.step()
        rule.clear_grad()
    training.assert_close(np.load(out), training.state(model), 1e-6)


def test_the_wrapper_keeps_parameters_names_and_other_gradients():
    run(2, SCRIPT, "keeps")


def test_different_models_are_an_error_that_names_the_parameter():
    run(2, SCRIPT, "different")


def test_loader_workers_are_no_ranks():
    run(2, SCRIPT, "loader")


def test_a_rank_that_dies_in_training_is_named():
    with Job(2, SCRIPT, "dies") as job:
        codes, outputs = job.wait(60)
    assert codes == [1, 1], outputs
    assert "ValueError: enough" in outputs[1]
    assert "rank 1" in outputs[0].splitlines()[-1], outputs[0]


def test_control_c_ends_a_backward_that_waits():
    with Job(2, SCRIPT, "waits") as job:
        job.wait_for_line(0, "WAITING")
        time.sleep(0.3)
        job.ranks[0].signal(signal.SIGINT)
        code = job.ranks[0].wait_within(60)
        output = job.ranks[0].output()
    assert code not in (0, None), output
    assert "KeyboardInterrupt" in output.splitlines()[-1], output
