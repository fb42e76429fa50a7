# SPDX-License-Identifier: Apache-2.0
"""Jobs over several hosts: that they train and agree, which way the bytes took, and
what users are told when hosts do not fit together."""

import re
import sys
import time

import pytest

from tests.collective_hosts.hosts import FLEETRUN, Hosts

TRAIN = """
import hashlib
import paddle
import paddle.nn as nn
import paddle.distributed as dist
from paddle.distributed import fleet

fleet.init(is_collective=True)
paddle.seed(100 + fleet.worker_index())
layer = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1))
optimizer = fleet.distributed_optimizer(
    paddle.optimizer.Adam(0.01, parameters=layer.parameters()))
model = fleet.distributed_model(layer)
for step in range(20):
    loss = nn.MSELoss()(model(paddle.randn([8, 10])), paddle.randn([8, 1]))
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
data = b"".join(p.numpy().tobytes() for p in layer.parameters())
print("SUM", hashlib.sha256(data).hexdigest())
print("BACKEND", dist.get_backend())
print("SIZE", fleet.worker_num(), "NODES", fleet.node_num())
"""

FOR_EVER = """
import paddle
import paddle.distributed as dist
dist.init_parallel_env()
x = paddle.zeros([100])
print("READY", flush=True)
while True:
    dist.all_reduce(x)
"""


@pytest.fixture
def hosts(tmp_path):
    made = []

    def make(count, networks=1):
        made.append(Hosts(tmp_path, count, networks))
        return made[-1]

    yield make
    for h in made:
        h.close()


def finish(processes, seconds=120):
    """Output and exit status of each."""
    outputs = [p.communicate(timeout=seconds)[0] for p in processes]
    return outputs, [p.returncode for p in processes]


def check_training(made, ranks, backend):
    logs = [log for host in range(len(made.names)) for log in made.logs(host)]
    text = "".join(logs)
    assert len(logs) == ranks, text
    sums = re.findall(r"SUM (\w+)", text)
    assert len(sums) == ranks and len(set(sums)) == 1, text
    assert set(re.findall("BACKEND (.*)", text)) == {backend}, text
    assert set(re.findall("SIZE (.*)", text)) == {f"{ranks} NODES {len(made.names)}"}, (
        text
    )


SECRET = {"FLEET_SECRET": "in every host's environment"}


@pytest.mark.parametrize("channel", ["tcp", "ucx"])
@pytest.mark.parametrize(
    "count, local, backend",
    [(2, 2, "shared memory and "), (3, 1, "")],
)
def test_ips(hosts, count, local, backend, channel):
    made = hosts(count)
    flags = [f"--ips={made.addresses()}", f"--nproc_per_node={local}"]
    env = {**SECRET, "FLEET_CHANNEL": channel}
    started = [made.fleetrun(i, TRAIN, *flags, **env) for i in range(count)]
    outputs, statuses = finish(started)
    assert statuses == [0] * count, outputs
    check_training(made, count * local, backend + channel)
    logs = "".join(log for i in range(count) for log in made.logs(i))
    assert ("what goes over UCX is not encrypted" in logs) == (channel == "ucx")


@pytest.mark.parametrize("count, local", [(2, 2), (3, 1)])
def test_master(hosts, count, local):
    made = hosts(count)
    flags = [
        f"--master={made.address(0)}:7100",
        f"--nnodes={count}",
        f"--nproc_per_node={local}",
    ]
    started = [made.fleetrun(i, TRAIN, *flags, **SECRET) for i in range(count)]
    outputs, statuses = finish(started)
    assert statuses == [0] * count, outputs
    check_training(made, count * local, "shared memory and tcp" if local > 1 else "tcp")


def test_master_by_name(hosts):
    """The host whose name it is listens, although nobody is told its rank and its name
    means another address there, as on Debian; the one that came first waits for it."""
    made = hosts(2)
    flags = ["--master=first:7100", "--nnodes=2", "--nproc_per_node=1"]
    started = []
    for i, first in ((1, made.address(0)), (0, "127.0.1.1")):
        folder = made.folder / made.names[i]
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{first} first\n")
        (folder / "train.py").write_text(TRAIN)
        (folder / "named.sh").write_text('mount --bind hosts /etc/hosts\nexec "$@"\n')
        command = ["sh", "named.sh", FLEETRUN, *flags, "train.py"]
        env = {**SECRET, "FLEET_START_TIMEOUT": "60"}
        started.append(made.start(i, *command, **env))
    outputs, statuses = finish(started)
    assert statuses == [0, 0], outputs
    check_training(made, 2, "tcp")


def test_second_interface(hosts):
    """The addresses that the user names are those that are used."""
    made = hosts(2, networks=2)
    for name in made.names:  # the first network carries nothing
        made.start(made.names.index(name), "ip", "link", "set", "eth0", "down").wait()
    flags = [f"--ips={made.addresses(network=1)}", "--nproc_per_node=1"]
    started = [made.fleetrun(i, TRAIN, *flags, **SECRET) for i in range(2)]
    outputs, statuses = finish(started)
    assert statuses == [0, 0], outputs
    check_training(made, 2, "tcp")


def test_lists_in_another_order(hosts):
    made = hosts(2)
    a, b = made.address(0), made.address(1)
    env = {**SECRET, "FLEET_START_TIMEOUT": "20"}
    started = [
        made.fleetrun(0, TRAIN, f"--ips={a},{b}", "--nproc_per_node=1", **env),
        made.fleetrun(1, TRAIN, f"--ips={b},{a}", "--nproc_per_node=1", **env),
    ]
    outputs, statuses = finish(started)
    assert 0 not in statuses, outputs
    assert any(a in text and b in text and "differ" in text for text in outputs), (
        outputs
    )


def test_address_of_nobody(hosts):
    made = hosts(2)
    process = made.fleetrun(0, TRAIN, "--ips=10.78.0.77,10.78.0.78", **SECRET)
    (output,), (status,) = finish([process])
    assert status != 0
    assert "10.78.0.77" in output


def test_host_that_never_comes(hosts):
    made = hosts(2)
    process = made.fleetrun(
        0,
        TRAIN,
        f"--ips={made.addresses()}",
        "--nproc_per_node=1",
        FLEET_START_TIMEOUT="4",
        **SECRET,
    )
    (output,), (status,) = finish([process])
    assert status != 0
    assert "rank 1" in output and made.address(1) in output, output


def test_host_vanishes(hosts):
    """Cut off in the middle: heartbeats stop, the other host is told who is gone."""
    made = hosts(2)
    flags = [f"--ips={made.addresses()}", "--nproc_per_node=1"]
    env = {**SECRET, "FLEET_HEARTBEAT_TIMEOUT": "5"}
    started = [made.fleetrun(i, FOR_EVER, *flags, **env) for i in range(2)]
    end = time.monotonic() + 60
    while not all("READY" in "".join(made.logs(i)) for i in range(2)):
        assert time.monotonic() < end, [made.logs(i) for i in range(2)]
        time.sleep(0.1)
    made.cut(1)
    outputs, statuses = finish(started)
    assert 0 not in statuses
    assert "rank 1" in outputs[0]
    assert "rank 0" in outputs[1]


@pytest.mark.parametrize("theirs", [{"FLEET_SECRET": "another"}, {}])
def test_wrong_or_missing_secret(hosts, theirs):
    made = hosts(2)
    flags = [f"--ips={made.addresses()}", "--nproc_per_node=1"]
    started = [
        made.fleetrun(0, TRAIN, *flags, FLEET_START_TIMEOUT="15", **SECRET),
        made.fleetrun(1, TRAIN, *flags, FLEET_START_TIMEOUT="15", **theirs),
    ]
    outputs, statuses = finish(started)
    assert 0 not in statuses
    assert "secret" in outputs[1], outputs[1]


def test_no_secret_is_a_warning(hosts):
    made = hosts(2)
    flags = [f"--ips={made.addresses()}", "--nproc_per_node=1"]
    started = [made.fleetrun(i, TRAIN, *flags) for i in range(2)]
    outputs, statuses = finish(started)
    assert statuses == [0, 0], outputs
    assert all("secret" in text for text in outputs)


STRANGER = """
import socket, sys, time
# A hello of worker 1 without a secret, in the words of docs/wire.md.
hello = b"FLEETHI\\n" + bytes([2, 0, 0, 0] + [0] * 8 + [1, 0, 0, 0] + [0] * 8) + bytes(32)
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
        break
    except OSError:
        time.sleep(0.01)
try:
    peer.sendall(hello)
    print("ANSWER", len(peer.recv(64)))
except ConnectionError:
    print("ANSWER 0")
"""


def test_a_host_that_was_not_named_is_turned_away_before_its_hello(hosts):
    """A job without a secret, whose second host comes late; a third one comes first,
    and says what the second would."""
    made = hosts(3)
    named = f"{made.address(0)},{made.address(1)}"
    flags = [f"--ips={named}", "--nproc_per_node=1"]
    first = made.fleetrun(0, TRAIN, *flags)
    stranger = made.start(2, sys.executable, "-c", STRANGER, made.address(0), 6070)
    (answer,), _ = finish([stranger])
    assert "ANSWER 0" in answer, answer
    outputs, statuses = finish([first, made.fleetrun(1, TRAIN, *flags)])
    assert statuses == [0, 0], outputs
    assert re.search(
        rf"refused {made.address(2)}:\d+: this job has no secret, and its hosts are "
        rf"{made.address(0)}, {made.address(1)}",
        outputs[0],
    ), outputs[0]


WHISPER = """
import paddle
import paddle.distributed as dist
dist.init_parallel_env()
secret = paddle.to_tensor([0x6B616550] * 1000, dtype="int32")  # "Peak"
for _ in range(3):
    dist.all_reduce(secret, op=dist.ReduceOp.MAX)
found = []
dist.all_gather_object(found, "a word of rank %d" % dist.get_rank())
assert found[1] == "a word of rank 1"
"""


@pytest.mark.parametrize("encryption", [None, "off"])
def test_what_is_overheard_between_hosts(hosts, encryption, tmp_path):
    made = hosts(2)
    made.overhear(0, tmp_path / "heard")
    env = dict(SECRET) if encryption is None else {**SECRET, "FLEET_ENCRYPTION": "off"}
    flags = [f"--ips={made.addresses()}", "--nproc_per_node=1"]
    started = [made.fleetrun(i, WHISPER, *flags, **env) for i in range(2)]
    outputs, statuses = finish(started)
    assert statuses == [0, 0], outputs
    heard = (tmp_path / "heard").read_bytes()
    assert len(heard) > 3 * 4000
    assert (b"PeakPeak" in heard) == (encryption == "off")
    assert (b"a word of rank 1" in heard) == (encryption == "off")


def test_both_hosts_must_encrypt(hosts):
    made = hosts(2)
    flags = [f"--ips={made.addresses()}", "--nproc_per_node=1"]
    started = [
        made.fleetrun(0, TRAIN, *flags, FLEET_START_TIMEOUT="15", **SECRET),
        made.fleetrun(
            1, TRAIN, *flags, FLEET_START_TIMEOUT="15", FLEET_ENCRYPTION="off", **SECRET
        ),
    ]
    outputs, statuses = finish(started)
    assert 0 not in statuses
    assert any("FLEET_ENCRYPTION" in text for text in outputs), outputs


CULPRIT = """
import os, signal, sys
import paddle
import paddle.distributed as dist
dist.init_parallel_env()
x = paddle.ones([100])
dist.all_reduce(x)
if dist.get_rank() == {culprit}:
    {end}
while True:
    dist.all_reduce(x)
"""


@pytest.mark.parametrize("culprit", [0, 3])
@pytest.mark.parametrize(
    "end, code",
    [
        ("raise ValueError('too warm')", 1),
        ("os._exit(6)", 6),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),
    ],
)
def test_the_rank_that_failed_by_itself_is_shown_first_on_all_hosts(
    hosts, culprit, end, code
):
    h = hosts(2)
    flags = ["--ips", h.addresses(), "--nproc_per_node=2"]
    script = CULPRIT.format(culprit=culprit, end=end)
    outputs, codes = finish([h.fleetrun(i, script, *flags, **SECRET) for i in (0, 1)])
    for text, status in zip(outputs, codes):
        assert status == code, text
        shown = re.findall(r"^fleetrun: rank (\d) at .* failed: ", text, re.M)
        assert shown[0] == str(culprit), text
