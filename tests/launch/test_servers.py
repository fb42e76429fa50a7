# SPDX-License-Identifier: Apache-2.0
"""Jobs of workers and parameter servers."""

import re

from tests.ports import free_row

BY_ROLE = """\
#!/bin/sh
case $TRAINING_ROLE in
  PSERVER) echo server $POD_IP:$PADDLE_PORT; {server} ;;
  TRAINER) echo worker $PADDLE_TRAINER_ID; {worker} ;;
  HETER_TRAINER) echo heter $POD_IP:$PADDLE_PORT ;;
esac
"""
WAIT_FOR_FILE = "until [ -e done ]; do sleep 0.01; done"


def test_servers_end_by_themselves_after_the_last_worker(launcher):
    launcher.write(
        "t.sh",
        BY_ROLE.format(
            server=WAIT_FOR_FILE + "; echo flushed",
            worker="[ $PADDLE_TRAINER_ID = 0 ] && { sleep 0.2; touch done; }; exit 0",
        ),
    )
    done = launcher.run("--worker_num=2", "--server_num=2", "./t.sh")
    assert done.returncode == 0, done.stderr
    for i in (0, 1):
        assert launcher.log(f"workerlog.{i}") == f"worker {i}\n"
        assert re.fullmatch(
            r"server 127\.0\.0\.1:\d+\nflushed\n", launcher.log(f"serverlog.{i}")
        )
    assert done.stderr.endswith(
        "fleetrun: all workers have ended; waiting for the servers\n"
        "fleetrun: all servers have ended\n"
    )
    assert "worker 0" in done.stdout


def test_servers_that_stay_are_ended(launcher):
    launcher.write("t.sh", BY_ROLE.format(server="exec sleep 600", worker="exit 0"))
    done = launcher.run(
        "--worker_num=2", "--server_num=2", "--server_grace=0.2", "./t.sh"
    )
    assert done.returncode == 0, done.stderr
    assert "the servers did not end by themselves and were ended\n" in done.stderr
    assert "all servers have ended" not in done.stderr
    launcher.assert_nothing_left()


def test_a_crashed_worker_fails_the_job(launcher):
    launcher.write(
        "t.sh",
        BY_ROLE.format(
            server="exec sleep 600",
            worker="[ $PADDLE_TRAINER_ID = 1 ] && exit 9; exec sleep 600",
        ),
    )
    done = launcher.run("--worker_num=2", "--server_num=1", "./t.sh")
    assert done.returncode == 9
    assert re.search(r"fleetrun: worker 1 at .* failed: exit code 9", done.stderr)
    assert "servers have ended" not in done.stderr
    launcher.assert_nothing_left()


def test_a_crashed_server_fails_the_job(launcher):
    launcher.write("t.sh", BY_ROLE.format(server="kill -9 $$", worker="exec sleep 600"))
    done = launcher.run("--worker_num=1", "--server_num=1", "./t.sh")
    assert done.returncode == 137
    assert re.search(r"fleetrun: server 0 at .* failed: SIGKILL", done.stderr)
    launcher.assert_nothing_left()


def test_a_server_that_fails_at_the_end_fails_the_job(launcher):
    launcher.write(
        "t.sh",
        BY_ROLE.format(
            server=WAIT_FOR_FILE + "; sleep 0.2; exit 6", worker="touch done"
        ),
    )
    done = launcher.run("--worker_num=1", "--server_num=1", "./t.sh")
    assert done.returncode == 6


def test_notes_of_servers_are_of_their_job_alone(launcher):
    """A second job in the same folder neither removes nor reads them."""
    launcher.write(
        "t.sh",
        BY_ROLE.format(
            server="echo $1 >$FLEET_PS_LAST_SAVE; " + WAIT_FOR_FILE,
            worker=WAIT_FOR_FILE,
        ),
    )
    flags = ("--worker_num=1", "--server_num=1", "--max_restarts=1", "./t.sh")
    started = [launcher.start(*flags, "first")]
    launcher.wait_for_text("serverlog.0.saved", "first\n")
    started.append(launcher.start(*flags, "second"))
    launcher.wait_for_text("serverlog.0.saved", "second\n", "log.1")
    assert launcher.log("serverlog.0.saved") == "first\n"
    (launcher.folder / "done").touch()
    assert [launcher.finish(p).returncode for p in started] == [0, 0]


def test_a_server_knows_how_often_it_was_started(launcher):
    launcher.write(
        "t.sh",
        BY_ROLE.format(
            server="echo epoch $FLEET_SERVER_EPOCH; echo x >$FLEET_PS_LAST_SAVE; "
            "[ $FLEET_SERVER_EPOCH = 1 ] && exit 3; touch done; exit 0",
            worker="echo epoch $FLEET_SERVER_EPOCH; " + WAIT_FOR_FILE,
        ),
    )
    flags = ("--worker_num=1", "--server_num=1", "--max_restarts=1", "./t.sh")
    done = launcher.run(*flags, FLEET_SERVER_EPOCH="of another job")
    assert done.returncode == 0, done.stderr
    said = re.findall("epoch (.*)", launcher.log("serverlog.0"))
    assert said == ["1", "2"]
    assert "epoch\n" in launcher.log("workerlog.0")


def test_places_can_be_named(launcher):
    first = free_row(3)
    ports = [first, first + 1, first + 2]
    launcher.write("t.sh", BY_ROLE.format(server="exit 0", worker="exit 0"))
    done = launcher.run(
        f"--servers=127.0.0.1:{ports[0]}",
        f"--workers=127.0.0.1:{ports[1]}",
        f"--heter_workers=127.0.0.1:{ports[2]}",
        "./t.sh",
    )
    assert done.returncode == 0, done.stderr
    assert launcher.log("serverlog.0") == f"server 127.0.0.1:{ports[0]}\n"
    assert launcher.log("heterlog.0") == f"heter 127.0.0.1:{ports[2]}\n"
