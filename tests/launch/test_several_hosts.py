# SPDX-License-Identifier: Apache-2.0
"""Launchers of several hosts, here at several addresses of loopback."""

import re
import signal
import socket
import time

import pytest

from tests.launch.launcher import wait_until
from tests.ports import free_row

SHOW = "#!/bin/sh\necho $RANK of $WORLD_SIZE at $PADDLE_CURRENT_ENDPOINT, node $GROUP_RANK\n"
SECRET = {"FLEET_SECRET": "known to all hosts"}


def listening_addresses(port):
    """Addresses of IPv4 sockets that listen at `port`, as /proc writes them."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return {
        row[1].split(":")[0]
        for row in rows
        if row[3] == "0A" and int(row[1].split(":")[1], 16) == port
    }


def num_connected(port):
    """How many sockets are ends of connections at `port`."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    ends = [a.split(":")[1] for row in rows if row[3] == "01" for a in row[1:3]]
    return ends.count(f"{port:04X}")


class Cluster:
    """The launchers of hosts 127.0.0.2, 127.0.0.3, ..."""

    def __init__(self, launcher, ports=4):
        self.launcher = launcher
        self.port = free_row(ports)
        self.started = []

    def start(self, host, *flags, script="./t.sh", **env):
        process = self.launcher.start(
            f"--node_ip=127.0.0.{host}",
            f"--started_port={self.port}",
            f"--log_dir=log{host}",
            *flags,
            script,
            **{**SECRET, **env},
        )
        self.started.append(process)
        return process

    def finish(self):
        return [self.launcher.finish(process) for process in self.started]

    def log(self, host, rank):
        return self.launcher.log(f"workerlog.{rank}", f"log{host}")


@pytest.fixture
def cluster(launcher):
    launcher.write("t.sh", SHOW)
    return Cluster(launcher)


def test_ranks_are_counted_over_hosts(cluster):
    for host in (2, 3):
        cluster.start(host, "--ips=127.0.0.2,127.0.0.3", "--gpus=0,1")
    for done in cluster.finish():
        assert done.returncode == 0, done.stderr
    for node, host in enumerate((2, 3)):
        for local in (0, 1):
            assert cluster.log(host, local) == (
                f"{2 * node + local} of 4 at 127.0.0.{host}:{cluster.port + local}, "
                f"node {node}\n"
            )


def test_older_flags(cluster):
    for host in (2, 3):
        cluster.start(
            host, "--cluster_node_ips=127.0.0.2,127.0.0.3", "--selected_gpus=0"
        )
    assert [done.returncode for done in cluster.finish()] == [0, 0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["--ips=127.0.0.2,127.0.0.3"], ["--ips=127.0.0.3,127.0.0.2"]),
        (
            ["--ips=127.0.0.2,127.0.0.3", "--gpus=0"],
            ["--ips=127.0.0.2,127.0.0.3", "--gpus=0,1"],
        ),
        (["--ips=127.0.0.2,127.0.0.3"], ["--ips=127.0.0.2,127.0.0.3,127.0.0.4"]),
    ],
)
def test_hosts_that_were_told_different_things_hear_what_differs(cluster, one, other):
    cluster.start(2, *one)
    cluster.start(3, *other)
    for done in cluster.finish():
        assert done.returncode == 2
        assert re.search(
            r"plans of hosts .* differ; workers are 127.* on 127.* and 127.* on 127",
            done.stderr,
        ), done.stderr


def test_a_host_that_never_comes_is_named(cluster):
    cluster.start(2, "--ips=127.0.0.2,127.0.0.3", "--gpus=0,1", FLEET_START_TIMEOUT="1")
    (done,) = cluster.finish()
    assert done.returncode == 2
    assert "did not come: 127.0.0.3 (rank 2, rank 3)" in done.stderr


def test_a_wrong_secret_is_told(cluster):
    for host, secret in ((2, "right"), (3, "wrong")):
        cluster.start(
            host,
            "--ips=127.0.0.2,127.0.0.3",
            FLEET_SECRET=secret,
            FLEET_START_TIMEOUT="20",
        )
    for done in cluster.finish():
        assert done.returncode == 2
        assert "secret" in done.stderr, done.stderr


def test_no_secret_is_a_warning(cluster):
    for host in (2, 3):
        cluster.start(host, "--ips=127.0.0.2,127.0.0.3", FLEET_SECRET="")
    for done in cluster.finish():
        assert done.returncode == 0
        assert done.stderr.count("This job has no secret") == 1
        assert "its ports from 127.0.0.2, 127.0.0.3 can join it" in done.stderr


@pytest.mark.parametrize("way", ["--ips=127.0.0.2,127.0.0.3", "--master"])
def test_a_job_that_requires_a_secret_is_not_started_without(cluster, way):
    if way == "--master":
        way = f"--master=127.0.0.2:{cluster.port}"
    flags = [way, "--nnodes=2"] if way.startswith("--master") else [way]
    cluster.start(2, *flags, FLEET_SECRET="", FLEET_REQUIRE_SECRET="1")
    (done,) = cluster.finish()
    assert done.returncode == 2
    assert "FLEET_REQUIRE_SECRET" in done.stderr, done.stderr
    assert "has no secret" in done.stderr, done.stderr


def test_a_signal_ends_the_wait_for_other_hosts(cluster):
    process = cluster.start(2, "--ips=127.0.0.2,127.0.0.3")
    wait_until(lambda: listening_addresses(cluster.port), "the first host")
    process.send_signal(signal.SIGTERM)
    (done,) = cluster.finish()
    assert done.returncode == 128 + signal.SIGTERM
    cluster.launcher.assert_nothing_left()


def test_a_message_for_ranks_does_not_end_the_wait_for_other_hosts(cluster):
    process = cluster.start(2, "--ips=127.0.0.2,127.0.0.3")
    wait_until(lambda: listening_addresses(cluster.port), "the first host")
    process.send_signal(signal.SIGUSR1)
    assert process.stderr.readline().startswith("fleetrun: SIGUSR1 while hosts meet")
    process.send_signal(signal.SIGUSR2)
    assert process.stderr.readline().startswith("fleetrun: SIGUSR2 while hosts meet")
    cluster.start(3, "--ips=127.0.0.2,127.0.0.3")
    for done in cluster.finish():
        assert done.returncode == 0, done.stderr


def test_restarts_are_for_one_host(cluster):
    cluster.launcher.write("t.sh", "#!/bin/sh\nexit 5\n")
    for host in (2, 3):
        cluster.start(host, "--ips=127.0.0.2,127.0.0.3", "--max_restarts=3")
    for done in cluster.finish():
        assert done.returncode == 5
        assert done.stderr.count("--max_restarts=3 is for jobs on one host") == 1
        assert "starting the job again" not in done.stderr


def test_taken_ports_are_named(cluster):
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", cluster.port))
        taken.listen()
        cluster.start(2, "--ips=127.0.0.2,127.0.0.3")
        (done,) = cluster.finish()
    assert done.returncode == 2
    assert f"127.0.0.2:{cluster.port}" in done.stderr


def test_servers_and_workers_of_several_hosts(cluster):
    cluster.launcher.write("t.sh", "#!/bin/sh\necho $TRAINING_ROLE $PADDLE_PORT\n")
    p = cluster.port
    flags = [
        f"--servers=127.0.0.2:{p},127.0.0.3:{p}",
        f"--workers=127.0.0.2:{p + 1},127.0.0.3:{p + 1}",
    ]
    for host in (2, 3):
        cluster.start(host, *flags)
    for done in cluster.finish():
        assert done.returncode == 0, done.stderr
    for host in (2, 3):
        assert cluster.log(host, 0) == f"TRAINER {p + 1}\n"


def test_servers_stay_until_the_workers_of_all_hosts_have_ended(cluster):
    cluster.launcher.write(
        "t.sh",
        "#!/bin/sh\n"
        "trap 'echo ended; exit 0' TERM\n"
        "case $TRAINING_ROLE in\n"
        "  PSERVER) touch server.$POD_IP; while true; do sleep 0.01; done ;;\n"
        "esac\n"
        "[ $PADDLE_TRAINER_ID = 0 ] && exit 0\n"
        "until [ -e go ]; do sleep 0.01; done\n",
    )
    flags = ["--ips=127.0.0.2,127.0.0.3", "--worker_num=1", "--server_num=1"]
    for host in (2, 3):
        cluster.start(host, *flags, "--server_grace=0.1")
    launcher = cluster.launcher
    for host in (2, 3):
        path = launcher.folder / f"server.127.0.0.{host}"
        wait_until(path.exists, f"server of {host}")
    # The only worker of the first host has ended long ago.
    time.sleep(1)
    assert [p.poll() for p in cluster.started] == [None, None]
    (launcher.folder / "go").touch()
    for done in cluster.finish():
        assert done.returncode == 0, done.stderr
        assert "all workers have ended; waiting for the servers" in done.stderr
    for host in (2, 3):
        assert "ended\n" in launcher.log("serverlog.0", f"log{host}")


FAIL_WHERE_TOLD = """\
#!/bin/sh
touch up.$RANK
until [ -e up.0 ] && [ -e up.1 ] && [ -e up.2 ]; do sleep 0.01; done
[ $RANK = $FAILS ] && exit 6
exec sleep 600
"""


@pytest.mark.parametrize("fails", [0, 2])
def test_a_failure_on_one_host_ends_the_ranks_of_all(cluster, fails):
    cluster.launcher.write("t.sh", FAIL_WHERE_TOLD)
    ips = "--ips=127.0.0.2,127.0.0.3,127.0.0.4"
    for host in (2, 3, 4):
        cluster.start(host, ips, FAILS=str(fails))
    done = cluster.finish()
    assert [d.returncode for d in done] == [6, 6, 6]
    for host, d in enumerate(done):
        words = f"fleetrun: rank {fails} at 127.0.0.{fails + 2}:{cluster.port} "
        assert words in d.stderr and "failed: exit code 6" in d.stderr, d.stderr
        assert ("failed because of" in d.stderr) == (host == fails)
    cluster.launcher.assert_nothing_left()


def test_a_launcher_that_vanishes_ends_the_job_on_the_other_hosts(cluster):
    cluster.launcher.write("t.sh", "#!/bin/sh\ntouch up.$RANK\nexec sleep 600\n")
    for host in (2, 3):
        cluster.start(host, "--ips=127.0.0.2,127.0.0.3")
    for rank in (0, 1):
        wait_until((cluster.launcher.folder / f"up.{rank}").exists, f"rank {rank}")
    cluster.started[1].kill()
    done = cluster.finish()
    assert done[0].returncode == 1
    assert "fleetrun: the launcher on 127.0.0.3 is gone" in done[0].stderr
    cluster.launcher.assert_nothing_left()


def test_a_signal_on_one_host_ends_the_job_on_all(cluster):
    cluster.launcher.write("t.sh", "#!/bin/sh\ntouch up.$RANK\nexec sleep 600\n")
    for host in (2, 3):
        cluster.start(host, "--ips=127.0.0.2,127.0.0.3")
    for rank in (0, 1):
        wait_until((cluster.launcher.folder / f"up.{rank}").exists, f"rank {rank}")
    cluster.started[1].send_signal(signal.SIGINT)
    done = cluster.finish()
    assert [d.returncode for d in done] == [130, 130]
    assert "was ended by SIGINT" in done[0].stderr
    cluster.launcher.assert_nothing_left()


def test_a_host_that_is_done_ends_nobody(cluster):
    cluster.launcher.write(
        "t.sh", "#!/bin/sh\n[ $RANK = 0 ] && exit 0\nsleep 0.5\necho slept\n"
    )
    for host in (2, 3):
        cluster.start(host, "--ips=127.0.0.2,127.0.0.3")
    assert [d.returncode for d in cluster.finish()] == [0, 0]
    assert cluster.log(3, 0) == "slept\n"


# --master


def start_at_master(launcher, place, index, *flags, host="127.0.0.1", **env):
    return launcher.start(
        f"--master={host}:{place}",
        "--nproc_per_node=2",
        f"--log_dir=log{index}",
        *flags,
        "./t.sh",
        **{**SECRET, **env},
    )


def ranks_of(launcher, index):
    text = "".join(launcher.log(f"workerlog.{k}", f"log{index}") for k in (0, 1))
    return [int(rank) for rank in re.findall(r"(\d) of 6 at 127\.0\.0\.1:\d+", text)]


def test_hosts_meet_at_the_master(launcher):
    launcher.write("t.sh", SHOW)
    place = free_row(1)
    started = [start_at_master(launcher, place, i, "--nnodes=3") for i in range(3)]
    for process in started:
        done = launcher.finish(process)
        assert done.returncode == 0, done.stderr
    ranks = [ranks_of(launcher, i) for i in range(3)]
    assert sorted(ranks) == [[0, 1], [2, 3], [4, 5]]


def test_hosts_can_choose_their_rank(launcher):
    launcher.write("t.sh", SHOW)
    place = free_row(1)
    started = [
        start_at_master(launcher, place, i, "--nnodes=3", f"--rank={i}")
        for i in (2, 1, 0)
    ]
    for process in started:
        done = launcher.finish(process)
        assert done.returncode == 0, done.stderr
    assert [ranks_of(launcher, i) for i in range(3)] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (["--nnodes=2"], ["--nnodes=3"], "--nnodes is"),
        (["--nnodes=2"], ["--nnodes=2", "--nproc_per_node=1"], "ranks on the first"),
        (["--nnodes=3", "--rank=0"], ["--nnodes=2", "--rank=1"], "--nnodes is"),
    ],
)
def test_the_master_tells_what_differs(launcher, one, other, words):
    launcher.write("t.sh", SHOW)
    place = free_row(1)
    started = [
        start_at_master(launcher, place, i, *flags, FLEET_START_TIMEOUT="20")
        for i, flags in enumerate((one, other))
    ]
    for process in started:
        done = launcher.finish(process)
        assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.parametrize("host", ["localhost", socket.gethostname()])
def test_hosts_meet_at_a_master_by_name(launcher, host):
    launcher.write("t.sh", SHOW)
    place = free_row(1)
    one = start_at_master(launcher, place, 0, "--nnodes=2", host=host)
    wait_until(lambda: listening_addresses(place), "the master")
    if host == "localhost":  # for nobody outside
        assert listening_addresses(place) == {"0100007F"}
    other = start_at_master(launcher, place, 1, "--nnodes=2", host=host)
    for process in (one, other):
        done = launcher.finish(process)
        assert done.returncode == 0, done.stderr
    text = "".join(
        launcher.log(f"workerlog.{k}", f"log{i}") for i in (0, 1) for k in (0, 1)
    )
    ranks = re.findall(rf"(\d) of 4 at {re.escape(host)}:\d+, node (\d)", text)
    assert ranks == [("0", "0"), ("1", "0"), ("2", "1"), ("3", "1")], text


def test_a_launcher_that_starts_anew_is_counted_once(launcher):
    launcher.write("t.sh", SHOW)
    place = free_row(1)
    master = start_at_master(launcher, place, 0, "--nnodes=3", "--rank=0")
    wait_until(lambda: listening_addresses(place), "the master")
    gone = start_at_master(launcher, place, 1, "--nnodes=3", "--rank=1")
    wait_until(lambda: num_connected(place) == 2, "both ends of a connection")
    gone.kill()
    gone.communicate()
    wait_until(lambda: num_connected(place) == 0, "the end of the connection")
    later = [
        start_at_master(launcher, place, i, "--nnodes=3", f"--rank={i}") for i in (1, 2)
    ]
    for process in (master, *later):
        done = launcher.finish(process)
        assert done.returncode == 0, done.stderr
    assert [ranks_of(launcher, i) for i in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_the_master_names_who_came(launcher):
    launcher.write("t.sh", SHOW)
    process = start_at_master(
        launcher, free_row(1), 0, "--nnodes=2", FLEET_START_TIMEOUT="1"
    )
    done = launcher.finish(process)
    assert done.returncode == 2
    assert "1 of 2 hosts came" in done.stderr and "127.0.0.1" in done.stderr


def test_hosts_can_be_named(launcher):
    """A name is listened for at all addresses: it may mean another one elsewhere."""
    launcher.write("t.sh", "#!/bin/sh\necho $PADDLE_CURRENT_ENDPOINT\n")
    done = launcher.run("--ips=localhost", "./t.sh")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"localhost:\d+\n", launcher.log("workerlog.0"))
