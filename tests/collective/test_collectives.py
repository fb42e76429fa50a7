# SPDX-License-Identifier: Apache-2.0
"""paddle.distributed with real processes, against numpy."""

import signal

import pytest

from tests.collective.ranks import Job, kill, run
from tests.ports import free_row

SCRIPT = "collective_cases.py"


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("case", ["reductions", "movements", "in_a_row"])
def test_every_type_and_size_gives_what_numpy_gives(case, num_ranks):
    run(num_ranks, SCRIPT, case)


@pytest.mark.parametrize("num_ranks, backend", [(2, "auto"), (3, "auto"), (3, "tcp")])
def test_parts_tasks_objects_and_groups(num_ranks, backend):
    run(
        num_ranks,
        SCRIPT,
        "identity",
        "arrangements",
        "points",
        "objects",
        "groups",
        "threads",
        "tasks",
        env={"FLEET_COMM": backend},
    )


def test_ranks_meet_at_a_place_of_their_own_for_gloo():
    run(3, SCRIPT, f"gloo=127.0.0.1:{free_row(1)}")


def test_different_calls_are_an_error_that_shows_both():
    run(2, SCRIPT, "mismatch")


def test_a_started_call_names_who_was_late():
    run(2, SCRIPT, "late", env={"FLEET_TIMEOUT": "5"})


@pytest.mark.parametrize("backend", ["auto", "tcp"])
def test_a_message_goes_on_when_asked_about(backend):
    run(2, SCRIPT, "polled", env={"FLEET_COMM": backend})


@pytest.mark.parametrize("num_ranks, backend", [(2, "auto"), (3, "auto"), (2, "tcp")])
def test_ranks_leave_a_job_and_begin_another(num_ranks, backend):
    run(num_ranks, SCRIPT, "again", "identity", env={"FLEET_COMM": backend})


def test_threads_may_make_the_first_call_at_once():
    run(2, SCRIPT, "starters")


def test_a_group_has_a_timeout_of_its_own():
    run(2, SCRIPT, "impatient")


def test_a_failed_exit_does_not_wait_for_messages():
    # Waiting would take until FLEET_TIMEOUT, which is later than this test's end.
    with Job(2, SCRIPT, "exits_with_messages", env={"FLEET_TIMEOUT": "600"}) as job:
        codes, outputs = job.wait(60)
    assert codes == [1, 3], outputs
    assert "rank 1" in outputs[0].splitlines()[-1], outputs[0]


def test_a_forked_child_is_no_rank():
    run(2, SCRIPT, "forked", "identity")


def test_control_c_ends_a_wait_and_the_others_are_told():
    with Job(2, SCRIPT, "interrupt") as job:
        job.wait_for_line(0, "WAITING")
        job.ranks[0].signal(signal.SIGINT)
        job.wait_for_line(0, "INTERRUPTED")
        job.ranks[1].signal(signal.SIGINT)
        codes, outputs = job.wait(60)
    assert codes[0] != 0 and "KeyboardInterrupt" in outputs[0], outputs[0]


@pytest.mark.parametrize("case, code", [("fails", 1), ("exits", 3), ("leaves", 0)])
def test_who_ends_early_is_named_by_the_others(case, code):
    with Job(3, SCRIPT, case) as job:
        codes, outputs = job.wait(60)
    assert codes[2] == code, outputs[2]
    for rank in (0, 1):
        assert codes[rank] == 1, outputs[rank]
        assert "rank 2" in outputs[rank].splitlines()[-1], outputs[rank]


def test_a_killed_rank_is_named_by_the_others():
    with Job(3, SCRIPT, "sleeps") as job:
        for rank in range(3):
            job.wait_for_line(rank, "READY")
        kill(job.ranks[1])
        assert job.ranks[0].wait_within(60) == 1, job.ranks[0].output()
        last = job.ranks[0].output().splitlines()[-1]
        assert "rank 1" in last, last


def test_a_rank_that_never_comes_is_named():
    with Job(
        1, SCRIPT, "identity", num_missing=1, env={"FLEET_START_TIMEOUT": "2"}
    ) as job:
        codes, outputs = job.wait(60)
    assert codes == [1] and "rank 1" in outputs[0].splitlines()[-1], outputs[0]
