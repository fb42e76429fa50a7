# SPDX-License-Identifier: Apache-2.0
"""Tables and jobs with servers: a click model and the MLP 32-128-128-2 with and without
servers (parameter_server/train.py), tables alone and across the wire
(parameter_server/tables.cc), eight clients of a server (parameter_server/clients.cc),
saves against `dd`, how soon workers notice that a server died and how soon one in Python
(parameter_server/kills.py) is back, geo against async over a
slow link.

    python benchmarks/parameter_server.py [PART ...]

PART is one of those in PARTS; without one, all. The link needs root and iproute2, the
clients need 16 cores; without them their rows are left out, and said so.
"""

import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Row, best_in_turns

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TRAIN = HERE / "parameter_server" / "train.py"
KILLS = HERE / "parameter_server" / "kills.py"
# Of the build: the folder for temporary files may be memory.
DISK = ROOT / "build"
LIBRARIES = ROOT / "build" / "release" / "lib"
FLEETRUN = Path(sys.executable).parent / "fleetrun"
BATCH = 1000
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def checked(name, ours, allowed, unit, higher_is_better=False, note=""):
    """A row whose bar is a number, not a peer."""
    return Row(name, ours, allowed, unit, 1.0, "allowed", higher_is_better, note)


# ---- the click model in one process
def ctr_torch(batches):
    import torch

    nn = torch.nn
    torch.set_num_threads(1)
    rows = nn.Embedding(1_000_001, 16, sparse=True)
    sizes = [26 * 16 + 13, 400, 400, 400]
    layers = []
    for i, o in zip(sizes, sizes[1:]):
        layers += [nn.Linear(i, o), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(400, 2))
    optimizer = torch.optim.SGD([*rows.parameters(), *model.parameters()], lr=0.01)
    loss_layer = nn.CrossEntropyLoss()
    given = [
        [torch.from_numpy(b[k]) for k in ("ids", "features", "click")] for b in batches
    ]
    turn = iter(range(1 << 60))

    def step():
        ids, features, click = given[next(turn) % len(given)]
        x = torch.cat([rows(ids).reshape(BATCH, -1), features], 1)
        loss = loss_layer(model(x), click[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def ctr_ours(batches, build):
    import paddle
    from paddle import static

    paddle.enable_static()
    try:
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup):
            loss = build()
            paddle.optimizer.SGD(learning_rate=0.01).minimize(loss)
        executor, scope = static.Executor(paddle.CPUPlace()), static.Scope()
        executor.run(startup, scope=scope)
    finally:
        paddle.disable_static()
    turn = iter(range(1 << 60))

    def step():
        feed = batches[next(turn) % len(batches)]
        fetched = executor.run(main, feed=feed, fetch_list=[loss], scope=scope)
        return fetched[0].item()

    return step


def one_process_rows():
    sys.path.insert(0, str(HERE / "parameter_server"))
    import train

    batches = list(train.ctr_batches(20, seed=0))
    ours, peer = ctr_ours(batches, train.ctr), ctr_torch(batches)
    for step in (ours, peer):
        loss = step()
        if not 0.5 < loss < 1.0:
            raise AssertionError(f"the click model begins with a loss of {loss}")
    times = best_in_turns([ours, peer], 4, 20)
    yield Row("CTR, one process", times[0] * 1e3, times[1] * 1e3, "ms", 0.85)


# ---- jobs
def train_alone(model, steps, count=1):
    """Times of the steps of `count` processes that begin together, without servers."""
    with tempfile.TemporaryDirectory() as folder:
        started = [
            subprocess.Popen(
                [sys.executable, TRAIN, model, "local", str(steps), folder]
                + [str(i), str(count)],
                env=ONE_THREAD,
                stderr=subprocess.PIPE,
                text=True,
            )
            for i in range(count)
        ]
        for process in started:
            error = process.communicate(timeout=600)[1]
            if process.returncode != 0:
                raise RuntimeError(f"{model} alone:\n{error}")
        return read_times(folder, count)


def train_with_servers(model, mode, steps, count=1, durability="none"):
    """Times of `count` workers that train with as many servers."""
    with tempfile.TemporaryDirectory(dir=DISK) as folder:
        done = subprocess.run(
            [FLEETRUN, f"--server_num={count}", f"--worker_num={count}"]
            + [f"--log_dir={folder}/log", TRAIN, model, mode, str(steps), folder],
            env={**ONE_THREAD, "FLEET_PS_DURABILITY": durability},
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{model}, {mode}, {count} x {count}:\n{done.stderr}")
        return read_times(folder, count)


def read_times(folder, count):
    return [json.loads(Path(folder, f"times.{i}").read_text()) for i in range(count)]


def examples_per_second(times):
    """All examples over the time from the first step to the last."""
    steps = sum(len(t) - 1 for t in times)
    return steps * BATCH / (max(t[-1] for t in times) - min(t[0] for t in times))


def best_stretch(times, length):
    """The least seconds of `length` steps in a row of one process."""
    (t,) = times
    return min(b - a for a, b in zip(t, t[length:])) / length


def ctr_rows():
    turns, steps, length = 3, 100, 20
    alone = served = 0
    for mode, bar in (("async", 0.92), ("sync", 0.88)):
        alone = served = 0.0
        for _ in range(turns):
            times = train_alone("ctr", steps)
            alone = max(alone, BATCH / best_stretch(times, length))
            times = train_with_servers("ctr", mode, steps)
            served = max(served, BATCH / best_stretch(times, length))
        name = f"CTR, {mode}, 1 x 1"
        yield Row(name, served, alone, "ex/s", bar, "one process", True)
    for mode, bar in (("async", 0.88), ("sync", 0.82)):
        alone = served = 0.0
        for _ in range(turns):
            alone = max(alone, examples_per_second(train_alone("ctr", steps, 2)))
            times = train_with_servers("ctr", mode, steps, 2)
            served = max(served, examples_per_second(times))
        name = f"CTR, {mode}, 2 x 2"
        yield Row(name, served, alone, "ex/s", bar, "two processes", True)


def durability_rows():
    """What a log costs, and how soon a killed server acknowledges again."""
    best = {"none": 0.0, "log": 0.0, "log-sync": 0.0}
    for _ in range(3):
        for kind in best:
            times = train_with_servers("ctr", "async", 100, 2, kind)
            best[kind] = max(best[kind], examples_per_second(times))
    for kind, bar in (("log", 0.97), ("log-sync", 0.90)):
        name = f"CTR, async, 2 x 2, durability {kind}"
        yield Row(name, best[kind], best["none"], "ex/s", bar, "none", True)
    sys.path.insert(0, str(ROOT))
    from tests.chaos.run import storm

    # With the log that servers keep by themselves, which has grown for a while when one
    # is killed, and with a small one.
    for log, kind, log_mb, pause_ms in (
        ("log", "log", 0, 1000),
        ("log of 8 MB", "log", 8, 100),
        ("log-sync of 8 MB", "log-sync", 8, 100),
    ):
        code, text = storm(
            seed=1,
            within=DISK,
            durability=kind,
            saves=0,
            events=350,
            rows=100_000,
            dim=16,
            filled=1,
            log_mb=log_mb,
            pause_ms=pause_ms,
            shim=False,
        )
        counts = re.search(r"(\d+) kills.* (\d+) lost, (\d+) applied twice", text)
        if counts is None:
            raise RuntimeError(text)
        kills, lost, twice = map(int, counts.groups())
        if code != 0 and lost + twice == 0:
            raise RuntimeError(text)
        name = f"acknowledged updates lost or applied twice, {log}"
        yield Row(name, lost + twice, kills, "updates", 0.0, "kills")
        if kind != "log":
            continue
        p50, p99 = map(float, re.search(r"p50 (\S+) s, p99 (\S+) s", text).groups())
        name = f"killed server of 100,000 rows, {log}, to its next acknowledgement"
        note = f"{kills} kills"
        yield checked(f"{name}, p50", p50, 0.5, "s", note=note)
        yield checked(f"{name}, p99", p99, 1.5, "s", note=note)


def restart_rows():
    """How soon a killed server that is a script, and imports paddle anew, is back."""
    with tempfile.TemporaryDirectory() as folder:
        job = ["--server_num=2", "--worker_num=1", "--max_restarts=20"]
        done = subprocess.run(
            [FLEETRUN, *job, f"--log_dir={folder}/log", KILLS, folder, "11"],
            env=ONE_THREAD,
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        seconds = json.loads(Path(folder, "kills").read_text())
    name = "killed server in Python of 100,000 rows, to its next acknowledgement"
    yield checked(f"{name}, p50", statistics.median(seconds), 0.5, "s")


def mlp_rows():
    alone = served = float("inf")
    for _ in range(3):
        alone = min(alone, best_stretch(train_alone("mlp", 3000), 300))
        times = train_with_servers("mlp", "async", 3000)
        served = min(served, best_stretch(times, 300))
    name = "MLP 32-128-128-2, async, 1 x 1"
    yield Row(name, served * 1e6, alone * 1e6, "us", 1.25, "one process")


# ---- tables and wire
def build(name):
    program = ROOT / "build" / "bench" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    command = ["g++", "-std=c++20", "-O2", "-I", str(ROOT), "-o", str(program)]
    command += [str(HERE / "parameter_server" / f"{name}.cc")]
    command += [f"-L{LIBRARIES}", f"-Wl,-rpath,{LIBRARIES}", "-lfleet_core"]
    subprocess.run(command, check=True)
    return program


class Tables:
    """parameter_server/tables.cc, which answers a line by a line."""

    def __init__(self, program):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"tables ended when asked to {line}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def table_rows():
    with contextlib.closing(Tables(build("tables"))) as tables:
        (worst,) = tables.ask("memory")  # first: nothing else is there
    yield checked("memory of a row of 16, SGD", float(worst), 110, "bytes")
    with contextlib.closing(Tables(build("tables"))) as tables:
        for _ in range(6):
            words = tables.ask("turn")
    best = {name: float(value) for name, value in zip(words[::2], words[1::2])}
    for call, bar in (("pull", 40), ("push", 20)):
        name = f"wire, {call}, Zipf over 1 M"
        note = f"the table alone {best[f'table_{call}_zipf']:.1f}"
        yield checked(name, best[f"wire_{call}_zipf"], bar, "M keys/s", True, note)
    for call in ("pull", "push"):
        name = f"wire, {call}, uniform over 10 M"
        ours, peer = best[f"wire_{call}_uniform"], best[f"table_{call}_uniform"]
        yield Row(name, ours, peer, "M keys/s", 0.75, "the table", True)
    yield checked("pull of one key, same host", best["one_key"], 5, "us")
    yield checked("pull of one key, TCP", best["one_key_tcp"], 40, "us")


def client_rows():
    """What eight clients get through together, beside one alone."""
    if os.cpu_count() < 16:
        print("eight clients: left out, they need 16 cores", flush=True)
        return
    told = subprocess.run(
        [build("clients")], check=True, capture_output=True, text=True
    )
    for line in told.stdout.splitlines()[1:]:
        name, one, all_eight, _ = line.split()
        name = f"8 clients, {name.replace('_', ' ')}"
        yield Row(name, float(all_eight), float(one), "M keys/s", 5, "one client", True)


def dd_seconds(folder, byte_size):
    done = subprocess.run(
        ["dd", "if=/dev/zero", f"of={folder}/plain", "bs=1M", "conv=fsync"]
        + ["iflag=count_bytes", f"count={byte_size}"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    return float(re.search(r"copied, ([0-9.e-]+) s", done.stderr).group(1))


def save_rows():
    save = load = dd = float("inf")
    with (
        tempfile.TemporaryDirectory(dir=DISK) as folder,
        contextlib.closing(Tables(build("tables"))) as tables,
    ):
        for _ in range(8):
            seconds, byte_size = tables.ask(f"save {folder}")
            save = min(save, float(seconds))
            load = min(load, float(tables.ask(f"load {folder}")[0]))
            dd = min(dd, dd_seconds(folder, byte_size))
    for name, ours in (("save", save), ("load", load)):
        yield Row(f"{name} 1 M rows of 16", ours * 1e3, dd * 1e3, "ms", 1.5, "dd")
    with (
        tempfile.TemporaryDirectory(dir=DISK) as folder,
        contextlib.closing(Tables(build("tables"))) as tables,
    ):
        base, delta, base_seconds, seconds = map(float, tables.ask(f"deltas {folder}"))
    name = "delta after 1 % of 1 M rows changed"
    yield Row(name, delta / 1e6, base / 1e6, "MB", 0.012, "the base")
    name = "load a base and 100 such deltas"
    yield Row(name, seconds * 1e3, base_seconds * 1e3, "ms", 1.5, "the base")
    with (
        tempfile.TemporaryDirectory(dir=DISK) as folder,
        contextlib.closing(Tables(build("tables"))) as tables,
    ):
        before, p99_before, beside, p99 = map(float, tables.ask(f"beside {folder}"))
    name = "step while 1 M rows are written"
    yield Row(f"{name}, median", beside * 1e3, before * 1e3, "ms", 1.15, "before")
    yield Row(f"{name}, p99", p99 * 1e3, p99_before * 1e3, "ms", 1.5, "without")


# ---- a server that dies
def seconds_until_noticed(mode):
    """From the death of one of two servers to the last of two workers' errors. Without
    fleetrun, which would tell and end them."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        endpoints = ["{}:{}".format(*s.getsockname()) for s in sockets]
        job = {
            **ONE_THREAD,
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(endpoints),
            "PADDLE_TRAINERS_NUM": "2",
        }

        def start(own, **more):
            process = subprocess.Popen(
                [sys.executable, TRAIN, "ctr", mode, str(1 << 30), folder],
                env={**job, **own},
                stderr=subprocess.PIPE,
                text=True,
                **more,
            )
            stack.callback(process.communicate, timeout=60)
            stack.callback(process.kill)
            return process

        servers = []
        for s, endpoint in zip(sockets, endpoints):
            ip, port = endpoint.split(":")
            own = {"TRAINING_ROLE": "PSERVER", "POD_IP": ip, "PADDLE_PORT": port}
            own["FLEET_LISTEN_FD"] = str(s.fileno())
            servers.append(start(own, pass_fds=[s.fileno()]))
            s.close()
        workers = [
            start({"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(i)})
            for i in range(2)
        ]
        deadline = time.monotonic() + 120
        while len(list(Path(folder).glob("ready.*"))) < 2:
            if time.monotonic() > deadline or any(w.poll() for w in workers):
                raise RuntimeError(f"workers of {mode} did not begin")
            time.sleep(0.01)
        time.sleep(0.5)  # somewhere in a step
        killed = time.monotonic()
        servers[1].kill()
        failed = []
        for i, worker in enumerate(workers):
            error = worker.communicate(timeout=60)[1]
            path = Path(folder, f"failed.{i}")
            if worker.returncode == 0 or not path.exists():
                raise AssertionError(f"worker {i} of {mode} noticed nothing:\n{error}")
            when, why = json.loads(path.read_text())
            if "server 1" not in why:
                raise AssertionError(f"worker {i} does not name server 1: {why}")
            failed.append(when)
        return max(failed) - killed


def kill_rows():
    for mode in ("async", "sync"):
        worst = max(seconds_until_noticed(mode) for _ in range(3))
        yield checked(f"server killed, noticed, {mode}", worst * 1e3, 2000, "ms")


# ---- a slow link
def over_a_slow_link(mode, steps):
    """Examples a second of two workers on one host and two servers on another, with
    100 Mbit/s between them in each direction."""
    sys.path.insert(0, str(ROOT / "tests" / "collective_hosts"))
    from hosts import Hosts

    with tempfile.TemporaryDirectory() as folder:
        hosts = Hosts(folder, 2)
        try:
            for name in hosts.names:
                shape = ["root", "tbf", "rate", "100mbit", "burst", "64kb"]
                subprocess.run(
                    ["tc", "-n", name, "qdisc", "add", "dev", "eth0"]
                    + [*shape, "latency", "50ms"],
                    check=True,
                )
            a, b = hosts.address(0), hosts.address(1)
            flags = [f"--servers={a}:6170,{a}:6171", f"--workers={b}:6172,{b}:6173"]
            started = [
                hosts.start(
                    i,
                    *[FLEETRUN, *flags, TRAIN, "ctr", mode, steps, folder],
                    FLEET_SECRET="of the benchmark",
                    FLEET_ENCRYPTION="off",
                )
                for i in (0, 1)
            ]
            outputs = [p.communicate(timeout=600)[0] for p in started]
            if any(p.returncode != 0 for p in started):
                raise RuntimeError(f"{mode} over a slow link:\n" + "\n".join(outputs))
            return examples_per_second(read_times(folder, 2))
        finally:
            hosts.close()


def link_rows():
    if os.geteuid() != 0:
        print("geo over a slow link: left out, it needs root", flush=True)
        return
    ours, peer = over_a_slow_link("geo", 400), over_a_slow_link("async", 60)
    name = "CTR, geo, 100 Mbit/s"
    yield Row(name, ours, peer, "ex/s", 4.6, "async", True)


PARTS = {
    "one": one_process_rows,
    "ctr": ctr_rows,
    "mlp": mlp_rows,
    "tables": table_rows,
    "clients": client_rows,
    "save": save_rows,
    "kill": kill_rows,
    "durability": durability_rows,
    "restart": restart_rows,
    "link": link_rows,
}


def run(parts=tuple(PARTS)):
    for part in parts:
        yield from PARTS[part]()


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    begin = time.monotonic()
    for row in run(sys.argv[1:] or tuple(PARTS)):
        print(row, flush=True)
    print(f"{time.monotonic() - begin:.0f} s")
