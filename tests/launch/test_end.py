# SPDX-License-Identifier: Apache-2.0
"""How jobs end: well, by a failure, by a signal, by kill -9. Nothing is left."""

import os
import pty
import re
import signal
import subprocess
import time

import pytest

from tests.launch.launcher import FLEETRUN, own_shared_memory, wait_until

# A rank with a child in a session of its own, which has a child.
FAMILY = """\
import os, sys, time
def sleep():
    time.sleep(600)
    os._exit(0)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        sleep()
    print("grandchild", flush=True)
    sleep()
"""


def test_a_failing_rank_is_reported_with_its_traceback(launcher):
    launcher.write(
        "t.py",
        "import os, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    for i in range(40): print('line', i)\n"
        "    raise ValueError('too warm')\n"
        "time.sleep(600)\n",
    )
    done = launcher.run("--gpus=0,1", "t.py")
    assert done.returncode == 1
    report = done.stderr[done.stderr.index("fleetrun: rank 1") :]
    assert re.match(
        r"fleetrun: rank 1 at 127\.0\.0\.1:\d+ \(host .*, process \d+\) failed: exit "
        r"code 1 after [\d.]+ s\. Its log, log/workerlog\.1, ends with:\n",
        report,
    )
    assert "  | Traceback (most recent call last):\n" in report
    assert "  | ValueError: too warm\n" in report
    assert "  | line 39\n" in report and "  | line 0\n" not in report
    assert report.endswith(
        "fleetrun: the job has failed because of rank 1; its other processes are ended\n"
    )
    launcher.assert_nothing_left()


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("exit 3", 3, "exit code 3"),
        ("kill -9 $$", 137, r"SIGKILL \(signal 9\)"),
        ("kill -SEGV $$", 139, r"SIGSEGV \(signal 11\)"),
    ],
)
def test_the_exit_code_is_passed_on(launcher, end, code, words):
    launcher.write("t.sh", f"#!/bin/sh\n[ $RANK = 1 ] && {end}\nexec sleep 600\n")
    done = launcher.run("--nproc_per_node=3", "./t.sh")
    assert done.returncode == code
    assert re.search(f"rank 1 .* failed: {words} ", done.stderr)
    launcher.assert_nothing_left()


def test_the_report_does_not_wait_for_ranks_that_do_not_want_to_end(launcher):
    launcher.write(
        "t.sh",
        "#!/bin/sh\ntrap '' TERM\ntouch trapped.$RANK\n"
        "[ $RANK = 1 ] && { until [ -e trapped.0 ]; do sleep 0.01; done; exit 3; }\n"
        "while true; do sleep 1; done\n",
    )
    process = launcher.start("--nproc_per_node=2", "--grace=600", "./t.sh")
    for line in process.stderr:
        if "has failed because of rank 1" in line:
            break
    assert process.poll() is None
    process.kill()
    launcher.assert_nothing_left()


def test_ranks_that_do_not_end_are_killed_after_the_grace(launcher):
    launcher.write(
        "t.sh",
        "#!/bin/sh\ntrap '' TERM\necho ready >>trapped.$RANK\n"
        "[ $RANK = 1 ] && { until [ -e trapped.0 ]; do sleep 0.01; done; exit 3; }\n"
        "while true; do sleep 600; done\n",
    )
    done = launcher.run("--nproc_per_node=2", "--grace=0.2", "./t.sh")
    assert done.returncode == 3
    launcher.assert_nothing_left()


def test_a_rank_that_was_ended_may_say_good_bye(launcher):
    launcher.write(
        "t.sh",
        "#!/bin/sh\ntrap 'echo bye; exit 0' TERM\ntouch trapped.$RANK\n"
        "[ $RANK = 1 ] && { until [ -e trapped.0 ]; do sleep 0.01; done; exit 3; }\n"
        "while true; do sleep 0.01; done\n",
    )
    assert launcher.run("--nproc_per_node=2", "./t.sh").returncode == 3
    assert "bye\n" in launcher.log("workerlog.0")


def test_what_ranks_started_ends_with_the_job(launcher):
    launcher.write("t.py", FAMILY + "print('parent')\n")
    done = launcher.run("--nproc_per_node=2", "t.py")
    assert done.returncode == 0
    launcher.assert_nothing_left()


def test_what_a_failed_rank_started_ends_too(launcher):
    launcher.write("t.py", FAMILY + "os._exit(int(os.environ['RANK']) * 5)\n")
    assert launcher.run("--nproc_per_node=2", "t.py").returncode == 5
    launcher.assert_nothing_left()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_everything(launcher, name):
    launcher.write("t.py", FAMILY + "sleep()\n")
    process = launcher.start("--nproc_per_node=2", "t.py")
    for log in ("workerlog.0", "workerlog.1"):
        launcher.wait_for_text(log, "grandchild")
    number = getattr(signal, name)
    process.send_signal(number)
    done = launcher.finish(process)
    assert done.returncode == 128 + number
    assert f"fleetrun: {name}: ending 2 processes" in done.stderr
    launcher.assert_nothing_left()


def test_ctrl_c_reaches_python_as_keyboard_interrupt(launcher):
    launcher.write(
        "t.py",
        "import time\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        "    print('saved')\n",
    )
    process = launcher.start("t.py")
    launcher.wait_for_text("workerlog.0", "ready")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert launcher.finish(process).returncode == 130
    assert launcher.log("workerlog.0") == "ready\nsaved\n"


def test_ctrl_c_at_a_terminal(launcher):
    """Also where the terminal stops those that write to it from the background."""
    launcher.write("t.sh", "#!/bin/sh\necho up\nexec sleep 600\n")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(launcher.folder)
        subprocess.run(["stty", "tostop"], check=True)
        os.execve(FLEETRUN, ["fleetrun", "./t.sh"], launcher.environment())
    screen = b""
    while b"up\r\n" not in screen:
        screen += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(terminal)
    launcher.assert_nothing_left()


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_signals_for_scripts_are_passed_on(launcher, name):
    launcher.write(
        "t.py",
        "import signal, sys, time\n"
        f"signal.signal(signal.{name}, lambda *_: sys.exit('told'))\n"
        "print('ready')\n"
        "time.sleep(600)\n",
    )
    process = launcher.start("t.py")
    launcher.wait_for_text("workerlog.0", "ready")
    process.send_signal(getattr(signal, name))
    assert launcher.finish(process).returncode == 1
    assert "told" in launcher.log("workerlog.0")


@pytest.mark.parametrize("victim", ["fleetrun", "its child"])
def test_kill_9_of_the_launcher_leaves_no_orphan(launcher, victim):
    launcher.write("t.py", FAMILY + "sleep()\n")
    process = launcher.start("--nproc_per_node=2", "t.py")
    for log in ("workerlog.0", "workerlog.1"):
        launcher.wait_for_text(log, "grandchild")
    assert len(launcher.processes()) == 2 + 2 * 3
    pid = process.pid
    if victim == "its child":
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            pid = int(children.read())
    os.kill(pid, signal.SIGKILL)
    process.wait()
    launcher.assert_nothing_left()


def test_kill_9_of_the_process_group_leaves_no_orphan(launcher):
    launcher.write("t.py", FAMILY + "sleep()\n")
    process = launcher.start("--nproc_per_node=2", "t.py")
    launcher.wait_for_text("workerlog.1", "grandchild")
    os.killpg(process.pid, signal.SIGKILL)
    launcher.assert_nothing_left()


def test_a_stopped_rank_does_not_keep_the_job(launcher):
    launcher.write(
        "t.sh",
        "#!/bin/sh\n[ $RANK = 0 ] && { echo $$ >pid; kill -STOP $$; }\n"
        "until [ -s pid ]; do sleep 0.01; done\nsleep 0.1\nexit 4\n",
    )
    done = launcher.run("--nproc_per_node=2", "--grace=0.2", "./t.sh")
    assert done.returncode == 4
    launcher.assert_nothing_left()


def test_signals_that_were_ignored_stay_ignored(launcher):
    """nohup fleetrun ... survives the end of its terminal."""
    launcher.write(
        "t.sh", "#!/bin/sh\necho ready\nuntil [ -e go ]; do sleep 0.01; done\n"
    )
    process = launcher.start(
        "-c", f"trap '' HUP; exec {FLEETRUN} ./t.sh", program="/bin/sh"
    )
    launcher.wait_for_text("workerlog.0", "ready")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert process.poll() is None
    (launcher.folder / "go").touch()
    assert launcher.finish(process).returncode == 0


def test_a_screen_that_nobody_reads_holds_up_nobody(launcher):
    launcher.write("t.py", "print('x' * 1000000)\nopen('written', 'w').close()\n")
    process = launcher.start("t.py")
    written = launcher.folder / "written"
    wait_until(written.exists, "the rank to write all of its output")
    done = launcher.finish(process)
    assert done.returncode == 0 and done.stdout.count("x") >= 1000000


def test_a_screen_that_is_gone_does_not_end_the_job(launcher):
    launcher.write(
        "t.py",
        "import time\nfor i in range(20):\n"
        "    print('line', i)\n    time.sleep(0.02)\n",
    )
    process = launcher.start("t.py")
    process.stdout.close()
    process.wait(60)
    assert process.returncode == 0
    assert "line 19" in launcher.log("workerlog.0")


def test_a_failed_job_is_started_again(launcher):
    launcher.write(
        "t.sh",
        "#!/bin/sh\n"
        "if [ $RANK = 1 ]; then\n"
        "  echo try >>tries\n"
        "  [ $(wc -l <tries) -lt 3 ] && exit 3\n"
        "  exit 0\n"
        "fi\n"
        "until [ -e tries ] && [ $(wc -l <tries) -ge 3 ]; do sleep 0.01; done\n",
    )
    done = launcher.run("--nproc_per_node=2", "--max_restarts=2", "./t.sh")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("fleetrun: starting the job again") == 2
    assert done.stderr.count("Configuration Arguments") == 1


def test_restarts_are_counted(launcher):
    done = launcher.run("--max_restarts=1", "sh", "-c", "exit 7")
    assert done.returncode == 7
    assert done.stderr.count("the job has failed because of rank 0") == 2


def test_nothing_is_left_in_shared_memory(launcher):
    folder = launcher.folder / "shm"
    folder.mkdir()
    launcher.write("t.sh", "#!/bin/sh\nexit $RANK\n")
    program, *words = own_shared_memory(folder)
    command = [*words, FLEETRUN, "--nproc_per_node=2", "./t.sh"]
    assert launcher.run(*command, program=program).returncode == 1
    assert os.listdir(folder) == []
