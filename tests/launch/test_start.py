# SPDX-License-Identifier: Apache-2.0
"""What fleetrun starts, says, and gives to the processes."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.launch.launcher import FLEETRUN

DUMP = """\
import json, os, sys
print("DUMP" + json.dumps([sys.argv, sys.executable, dict(os.environ)]))
"""


def dumped(log):
    return json.loads(log.split("DUMP")[-1].splitlines()[0])


def test_the_banner_is_three_lines_beside_the_output(launcher):
    launcher.write("t.py", "print('hello')\n")
    done = launcher.run("--gpus=0,1", "--job_id=mine", "t.py", "--lr", "0.1")
    assert done.stdout == "hello\n"
    asked, runs, finds, never_met = done.stderr.splitlines()
    assert asked == (
        "fleetrun: job mine, Configuration Arguments: gpus=0,1 job_id=mine "
        "training_script=t.py training_script_args=['--lr', '0.1']"
    )
    assert runs == (
        "fleetrun: 2 ranks on this host, in CPU mode. Logs are in log; "
        "--print_config shows all settings."
    )
    assert re.fullmatch(
        r"fleetrun: Distributed Envs of rank 0: .*PADDLE_TRAINERS_NUM=2 .*", finds
    )
    assert "never met" in never_met
    quiet = launcher.run("--print_config", "0", "t.py")
    assert (quiet.stdout, quiet.stderr) == ("hello\n", "")


def test_the_level_holds_for_the_launcher_and_its_processes(launcher):
    launcher.write("t.py", "import os\nprint(os.environ.get('FLEET_LOG_LEVEL'))\n")
    said = launcher.run("--log_level=warning", "t.py")
    assert (said.stdout, said.stderr) == ("WARNING\n", "")
    kept = launcher.run("--log_level=ERROR", "t.py", FLEET_LOG_LEVEL="DEBUG")
    assert (kept.stdout, kept.stderr) == ("DEBUG\n", "")
    assert launcher.run("t.py").stdout == "None\n"
    failed = launcher.run("--log_level=ERROR", "sh", "-c", "exit 7")
    assert failed.returncode == 7 and "failed: exit code 7" in failed.stderr
    wrong = launcher.run("--log_level=LOUD", "t.py")
    assert wrong.returncode == 2 and "--log_level" in wrong.stderr


def test_processes_know_the_name_of_the_job(launcher):
    launcher.write("t.py", "import os\nprint(os.environ['PADDLE_JOB_ID'])\n")
    assert launcher.run("--job_id", "night 7", "t.py").stdout == "night 7\n"


def test_the_long_banner_and_table_are_those_of_the_documents(launcher):
    launcher.write("t.py", "print('hello')\n")
    done = launcher.run("--print_config", "--gpus=0,1", "t.py", "--lr", "0.1")
    assert done.returncode == 0
    banner = done.stdout[: done.stdout.index("launch train in")]
    assert banner.splitlines() == [
        "-----------  Configuration Arguments -----------",
        "gpus: 0,1",
        "heter_worker_num: None",
        "heter_workers: ",
        "http_port: None",
        "ips: 127.0.0.1",
        "log_dir: log",
        "nproc_per_node: None",
        "server_num: None",
        "servers: ",
        "training_script: t.py",
        "training_script_args: ['--lr', '0.1']",
        "worker_num: None",
        "workers: ",
        "------------------------------------------------",
    ]
    assert re.search(
        r"INFO \d+-\d+-\d+ [\d:,]+ \S+:\d+\] Local start 2 processes\. First process "
        r"distributed environment info \(Only For Debug\): \n    \+={87}\+\n",
        done.stderr,
    )
    for name, value in {
        "FLAGS_selected_gpus": "0",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ID": "0",
        "PADDLE_CURRENT_ENDPOINT": r"127\.0\.0\.1:\d+",
        "PADDLE_TRAINER_ENDPOINTS": r"127\.0\.0\.1:\d+,127\.0\.0\.1:\d+",
    }.items():
        assert re.search(rf"\| +{name} +{value} +\|", done.stderr), name
    assert "are in log/endpoints.log" in done.stderr


def test_logs_are_in_the_log_folder_and_rank_0_is_on_the_screen(launcher):
    launcher.write("t.py", "import os\nprint('I am', os.environ['RANK'])\n")
    done = launcher.run("--gpus=0,1", "--log_dir", "a/b", "t.py")
    assert "I am 0" in done.stdout and "I am 1" not in done.stdout
    assert launcher.log("workerlog.0", "a/b") == "I am 0\n"
    assert launcher.log("workerlog.1", "a/b") == "I am 1\n"
    lines = launcher.log("endpoints.log", "a/b").splitlines()
    assert lines[0] == "PADDLE_TRAINER_ENDPOINTS: " and len(lines) == 3


def test_the_logs_of_a_job_do_not_continue_those_of_another(launcher):
    launcher.write("t.py", "import sys\nprint('job', sys.argv[1])\n")
    for job in "123":
        launcher.run("t.py", job)
        assert launcher.log("workerlog.0") == f"job {job}\n"
    kept = sorted((launcher.folder / "log" / "earlier").glob("*/workerlog.0"))
    assert sorted(path.read_text() for path in kept) == ["job 1\n", "job 2\n"]


def test_jobs_that_run_at_the_same_time_have_logs_of_their_own(launcher):
    launcher.write(
        "t.sh", "#!/bin/sh\necho job $1\nuntil [ -e go ]; do sleep 0.01; done\n"
    )
    first = launcher.start("./t.sh", "1")
    launcher.wait_for_text("workerlog.0", "job 1\n")
    second = launcher.start("./t.sh", "2")
    launcher.wait_for_text("workerlog.0", "job 2\n", "log.1")
    (launcher.folder / "go").touch()
    first, second = launcher.finish(first), launcher.finish(second)
    assert (first.stdout, second.stdout) == ("job 1\n", "job 2\n")
    assert launcher.log("workerlog.0") == "job 1\n"
    assert (
        "the logs of another job that runs are in log; those of this one are in log.1"
        in second.stderr
    )


def test_a_lot_of_output_reaches_the_screen_whole(launcher):
    launcher.write("t.py", "for i in range(20000): print('line', i)\n")
    done = launcher.run("t.py")
    lines = [line for line in done.stdout.splitlines() if line.startswith("line")]
    assert lines == [f"line {i}" for i in range(20000)]


def test_ranks_find_both_environments(launcher):
    launcher.write("t.py", DUMP)
    launcher.run("--nproc_per_node=2", "t.py", "-x", http_proxy="p", https_proxy="p")
    arguments, python, env = dumped(launcher.log("workerlog.1"))
    assert arguments == ["t.py", "-x"]
    assert python == sys.executable
    endpoints = env["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert env["PADDLE_CURRENT_ENDPOINT"] == endpoints[1]
    assert env["PADDLE_TRAINER_ID"] == env["RANK"] == env["LOCAL_RANK"] == "1"
    assert env["PADDLE_TRAINERS_NUM"] == env["WORLD_SIZE"] == "2"
    assert env["LOCAL_WORLD_SIZE"] == "2" and env["GROUP_RANK"] == "0"
    assert env["MASTER_ADDR"] == "127.0.0.1"
    assert f"127.0.0.1:{env['MASTER_PORT']}" not in endpoints
    assert "FLEET_SECRET" not in env
    cores = len(os.sched_getaffinity(0))
    assert env["OMP_NUM_THREADS"] == str(max(1, cores // 2))
    assert "http_proxy" not in env and "https_proxy" not in env
    other = dumped(launcher.log("workerlog.0"))[2]
    assert other["FLEET_SECRET_FILE"] == env["FLEET_SECRET_FILE"]
    assert other["MASTER_PORT"] == env["MASTER_PORT"]


READ_SECRET = """
import os, pathlib, subprocess, sys
secret = pathlib.Path(os.environ["FLEET_SECRET_FILE"]).read_text()
everything = pathlib.Path("/proc/self/environ").read_bytes()
child = [sys.executable, "-c", "print(open('/proc/self/environ', 'rb').read())"]
everything += subprocess.run(child, capture_output=True).stdout
print("SECRET", secret, secret.encode() in everything)
"""


@pytest.mark.parametrize("given", [None, "xyzzy of a user"], ids=["made", "given"])
def test_the_secret_is_in_no_environment(launcher, given):
    """Neither one that the launcher makes nor one that was in its own."""
    launcher.write("t.py", READ_SECRET)
    env = {} if given is None else {"FLEET_SECRET": given}
    done = launcher.run("--nproc_per_node=2", "t.py", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    texts = {launcher.log(f"workerlog.{i}").strip() for i in range(2)}
    assert len(texts) == 1, texts
    text = texts.pop()
    secret = text.removeprefix("SECRET ").removesuffix(" False")
    assert text == f"SECRET {secret} False"
    assert len(secret) == 64 if given is None else secret == given


def test_logs_are_not_for_everybody(launcher):
    launcher.write("t.py", "print('samples of a patient')\n")
    launcher.run("t.py")
    log = launcher.folder / "log" / "workerlog.0"
    assert log.stat().st_mode & 0o007 == 0


def test_what_the_user_set_stays(launcher):
    launcher.write("t.py", DUMP)
    (launcher.folder / "secret").write_text("s")
    (launcher.folder / "secret").chmod(0o600)
    launcher.run("--secret-file=secret", "t.py", OMP_NUM_THREADS="3")
    env = dumped(launcher.log("workerlog.0"))[2]
    assert env["OMP_NUM_THREADS"] == "3"
    assert env["FLEET_SECRET_FILE"] == str(launcher.folder / "secret")
    assert "FLEET_SECRET" not in env


def test_every_rank_inherits_a_socket_that_listens_at_its_endpoint(launcher):
    launcher.write(
        "t.py",
        "import os, socket\n"
        "s = socket.socket(fileno=int(os.environ['FLEET_LISTEN_FD']))\n"
        "host, port = s.getsockname()\n"
        "assert f'{host}:{port}' == os.environ['PADDLE_CURRENT_ENDPOINT']\n"
        "assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)\n"
        "others = [fd for fd in os.listdir('/proc/self/fd') if int(fd) > 2 and\n"
        "          os.path.exists(f'/proc/self/fd/{fd}')]\n"
        "assert len(others) <= 2, others\n"  # the socket and this listing
        "c = socket.create_connection((host, port))\n"
        "s.accept()\n",
    )
    done = launcher.run("--nproc_per_node=2", "t.py")
    assert done.returncode == 0, done.stderr


def test_torch_gets_the_master_port(launcher):
    """One who asks for it with SO_REUSEADDR, as torch's store does, can listen."""
    launcher.write(
        "t.py",
        "import os, socket\n"
        "s = socket.socket()\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "if os.environ['RANK'] == '0':\n"
        "    s.bind(('', int(os.environ['MASTER_PORT'])))\n"
        "    s.listen()\n",
    )
    done = launcher.run("--nproc_per_node=2", "t.py")
    assert done.returncode == 0, done.stderr


def test_any_executable_can_be_a_rank(launcher):
    launcher.write("train", "#!/bin/sh\necho rank $RANK of $WORLD_SIZE: $*\n")
    done = launcher.run("--nproc_per_node=2", "./train", "--gpus", "x")
    assert done.returncode == 0
    assert launcher.log("workerlog.1") == "rank 1 of 2: --gpus x\n"
    assert launcher.run("sh", "-c", "exit 0").returncode == 0


def test_python_is_the_one_beside_fleetrun_or_the_one_named(launcher):
    launcher.write("t.py", "import sys\nprint(sys.executable)\n")
    launcher.run("t.py")
    assert launcher.log("workerlog.0") == f"{sys.executable}\n"
    launcher.write("other", f'#!/bin/sh\necho other\nexec {sys.executable} "$@"\n')
    launcher.run("--log_dir=l", "t.py", FLEET_PYTHON=str(launcher.folder / "other"))
    assert launcher.log("workerlog.0", "l").startswith("other\n")


def test_a_rank_reads_no_input(launcher):
    launcher.write("t.py", "import sys\nassert sys.stdin.read() == ''\n")
    assert launcher.run("t.py").returncode == 0


@pytest.mark.parametrize(
    "module",
    ["distributed.launch", "distributed.fleet.launch", "distributed.launch_ps"],
)
def test_the_modules_are_the_same_program(launcher, module):
    launcher.write("t.py", "import sys\nprint(sys.executable)\n")
    done = launcher.finish(
        launcher.start(
            "-m",
            f"paddle.{module}",
            "--worker_num=1",
            "--server_num=1",
            "t.py",
            program=sys.executable,
        )
    )
    assert done.returncode == 0, done.stderr
    assert "Configuration Arguments" in done.stderr
    log_dir = "logs" if module.endswith("launch_ps") else "log"
    for name in ("workerlog.0", "serverlog.0"):
        assert launcher.log(name, log_dir) == f"{sys.executable}\n"


def test_help_and_errors_of_the_command_line(launcher):
    done = launcher.run("--help")
    assert done.returncode == 0 and "Examples:" in done.stdout
    for arguments, text in {
        (): "no script",
        ("--gpuz=0", "t.py"): "--gpuz",
        ("missing.py",): "missing.py",
        ("no-such-program",): "no-such-program",
        ("--ips=192.0.2.1", "true"): "Can't find your local ip",
        ("--secret-file=missing", "true"): "missing",
        ("--worker_num=2", "true"): "server_num",
    }.items():
        done = launcher.run(*arguments)
        assert done.returncode == 2, (arguments, done)
        assert done.stderr.startswith("fleetrun: ") and text in done.stderr, done.stderr


def test_ports_by_number_are_taken_or_an_error_says_who_has_them(launcher):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = launcher.run(f"--started_port={port}", "true")
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr and "rank 0" in done.stderr


def test_a_hundred_launchers_at_once_do_not_take_each_others_ports(launcher):
    launcher.write(
        "rank.sh",
        "#!/bin/sh\n"
        # One line in /proc/net/tcp, in the state of listening, with our port.
        'port=$(printf %04X "${PADDLE_CURRENT_ENDPOINT##*:}")\n'
        'grep -q ":$port 00000000:0000 0A" /proc/net/tcp || exit 1\n'
        "echo $PADDLE_CURRENT_ENDPOINT\n",
    )
    jobs = [
        launcher.start("--nproc_per_node=2", f"--log_dir=log{i}", "./rank.sh")
        for i in range(100)
    ]
    done = [launcher.finish(job) for job in jobs]
    assert [d.stderr for d in done if d.returncode != 0] == []
    for i in range(100):
        endpoints = {launcher.log(f"workerlog.{k}", f"log{i}") for k in (0, 1)}
        assert len(endpoints) == 2
    launcher.assert_nothing_left()


def test_one_host_of_several_listens_where_it_was_told(launcher):
    """Without the others it is only seen that ports come from --started_port on."""
    launcher.write("t.sh", "#!/bin/sh\necho $PADDLE_TRAINER_ENDPOINTS\n")
    done = launcher.run("--ips=127.0.0.2", "--gpus=0,1", "./t.sh")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"127\.0\.0\.2:\d+,127\.0\.0\.2:\d+\n", launcher.log("workerlog.0")
    )


def test_fleetrun_is_relocatable():
    needed = subprocess.run(
        ["readelf", "-d", FLEETRUN], capture_output=True, text=True, check=True
    ).stdout
    assert not re.search(r"NEEDED.*(libfleet|torch|c10)", needed)
