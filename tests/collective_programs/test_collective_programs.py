# SPDX-License-Identifier: Apache-2.0
"""Programs trained by several workers, against one process with the whole batch."""

import signal
import time

import numpy as np
import pytest

from tests.collective_programs import workers


def assert_close(got, expected, tolerance):
    assert list(got) == list(expected)
    for name in expected:
        scale = np.abs(expected[name]).max()
        error = np.abs(got[name] - expected[name]).max()
        assert error <= tolerance * scale, (name, error, scale)


@pytest.mark.parametrize(
    "kind, optimizer, num_workers, tolerance",
    [
        ("mlp", "SGD", 2, 1e-6),
        ("mlp", "SGD", 3, 1e-6),
        ("mlp", "Momentum", 2, 1e-6),
        ("cnn", "Momentum", 3, 1e-6),
        ("norm", "SGD", 2, 1e-5),
        ("norm", "Momentum", 3, 1e-5),
        ("mlp", "Adam", 2, 1e-5),
        ("words", "Adam", 3, 1e-5),
        ("mlp", "Adagrad", 3, 1e-5),
        ("words", "Adagrad", 2, 1e-5),
        ("rows", "SGD", 2, 1e-6),
        ("rows", "Adam", 3, 1e-5),
        ("mlp", "clipped", 2, 1e-6),
        ("mlp", "scheduled", 2, 1e-6),
    ],
)
def test_workers_end_where_one_process_with_the_joined_batch_does(
    tmp_path, kind, optimizer, num_workers, tolerance
):
    together, alone = tmp_path / "together.npz", tmp_path / "alone.npz"
    workers.run(num_workers, tmp_path, "train", kind, optimizer, together)
    workers.run_alone("train", kind, optimizer, alone)
    assert_close(np.load(together), np.load(alone), tolerance)


def test_a_bucket_for_every_gradient(tmp_path):
    together, alone = tmp_path / "together.npz", tmp_path / "alone.npz"
    workers.run(2, tmp_path, "train", "mlp", "SGD", together, "single")
    workers.run_alone("train", "mlp", "SGD", alone)
    assert_close(np.load(together), np.load(alone), 1e-6)


def test_the_same_over_tcp(tmp_path):
    together, alone = tmp_path / "together.npz", tmp_path / "alone.npz"
    workers.run(2, tmp_path, "train", "mlp", "Momentum", together, FLEET_COMM="tcp")
    workers.run_alone("train", "mlp", "Momentum", alone)
    assert_close(np.load(together), np.load(alone), 1e-6)


# Sums of a share and of the whole batch are rounded to eleven bits.
@pytest.mark.parametrize(
    "kind, optimizer, num_workers, tolerance",
    [("mlp", "SGD", 2, 4e-3), ("cnn", "Momentum", 3, 1e-2)],
)
def test_mixed_precision(tmp_path, kind, optimizer, num_workers, tolerance):
    together, alone = tmp_path / "together.npz", tmp_path / "alone.npz"
    workers.run(num_workers, tmp_path, "scaled", kind, optimizer, together)
    workers.run_alone("scaled", kind, optimizer, alone)
    assert_close(np.load(together), np.load(alone), tolerance)


@pytest.mark.parametrize("scaled, tolerance", [("plain", 1e-6), ("scaled", 4e-3)])
def test_gradients_of_several_steps(tmp_path, scaled, tolerance):
    together, alone = tmp_path / "together.npz", tmp_path / "alone.npz"
    workers.run(2, tmp_path, "merged", scaled, together)
    workers.run_alone("merged", scaled, alone)
    assert_close(np.load(together), np.load(alone), tolerance)


def test_checkpoints(tmp_path):
    together, alone = tmp_path / "together.npz", tmp_path / "alone.npz"
    workers.run(2, tmp_path, "recomputed", together)
    workers.run_alone("train", "mlp", "Momentum", alone)
    assert_close(np.load(together), np.load(alone), 1e-6)


def test_shares_of_different_and_changing_sizes(tmp_path):
    workers.run(2, tmp_path, "uneven", tmp_path / "out.npz")


@pytest.mark.parametrize("kind", ["mlp", "norm"])
def test_a_clone_for_test_is_of_one_worker(tmp_path, kind):
    workers.run(2, tmp_path, "evaluate", kind)


@pytest.mark.parametrize("kind", ["mlp", "norm"])
def test_what_one_worker_saves_is_read_without_a_job(tmp_path, kind):
    workers.run(2, tmp_path, "save", kind, tmp_path)
    workers.run_alone("load", kind, tmp_path)


def test_a_fetched_gradient_is_the_mean(tmp_path):
    workers.run(2, tmp_path, "gradients")


def test_paddles_collectives(tmp_path):
    workers.run(3, tmp_path, "plain_ops")
    workers.run_alone("plain_ops")


def test_functions_of_paddle_distributed_in_programs(tmp_path):
    workers.run(3, tmp_path, "functions")
    workers.run_alone("functions")


def test_different_models_are_an_error_that_names_the_variable(tmp_path):
    for text in workers.fails(2, tmp_path, "different_model"):
        assert "not the same on all ranks" in text, text
        assert "fc_0.w_0" in text, text


@pytest.mark.parametrize(
    "case, kind", [("different_optimizer", "velocity"), ("different_setting", "lamb")]
)
def test_different_optimizers_are_an_error(tmp_path, case, kind):
    for text in workers.fails(2, tmp_path, case):
        assert "not the same on all ranks" in text, text
        assert kind in text, text


@pytest.mark.parametrize("how, num_workers", [("raises", 2), ("killed", 3)])
def test_a_worker_that_dies_is_named(tmp_path, how, num_workers):
    last = num_workers - 1
    texts = workers.fails(num_workers, tmp_path, "dies", how)
    errors = [line for line in texts[0].splitlines() if "Error" in line]
    assert errors and f"rank {last}" in errors[-1], texts[0]


def test_control_c_ends_a_run_that_waits(tmp_path):
    process = workers.start(2, tmp_path, "waits")
    end = time.monotonic() + 60
    while "WAITING" not in workers.log(tmp_path, 0):
        assert time.monotonic() < end, workers.log(tmp_path, 0)
        assert process.poll() is None, workers.log(tmp_path, 0)
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    code, _ = workers.finish(process, 30)
    assert code != 0
