# SPDX-License-Identifier: Apache-2.0
"""What safety costs: TLS against plain connections in turns of one run, and a member's
hello among a thousand strangers that say nothing (security/security.cc).

    python benchmarks/security.py [PART ...]

PART is one of those in PARTS; without one, all. What goes between two hosts needs root
and iproute2; without them its rows are left out, and said so.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Row

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LIBRARIES = ROOT / "build" / "release" / "lib"
MEGABYTE = 1 << 20


def build():
    program = ROOT / "build" / "bench" / "security"
    program.parent.mkdir(parents=True, exist_ok=True)
    command = ["g++", "-std=c++20", "-O2", "-I", str(ROOT), "-o", str(program)]
    command += [str(HERE / "security" / "security.cc")]
    command += [f"-L{LIBRARIES}", f"-Wl,-rpath,{LIBRARIES}", "-lfleet_core"]
    subprocess.run(command, check=True)
    return program


def measure(*arguments):
    """The values that the program prints, by name."""
    done = subprocess.run(
        [build(), *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return {k: float(v) for k, v in map(str.split, done.stdout.splitlines())}


@contextlib.contextmanager
def two_hosts():
    """Two network namespaces with 10 Gbit/s between them in each direction, and a folder
    for both."""
    sys.path.insert(0, str(ROOT / "tests" / "collective_hosts"))
    from hosts import Hosts

    with tempfile.TemporaryDirectory() as folder:
        hosts = Hosts(folder, 2)
        try:
            for name in hosts.names:
                # A burst that a whole call fits into would be no limit.
                shape = ["root", "tbf", "rate", "10gbit", "burst", "256kb"]
                subprocess.run(
                    ["tc", "-n", name, "qdisc", "add", "dev", "eth0"]
                    + [*shape, "latency", "50ms"],
                    check=True,
                )
            yield hosts, folder
        finally:
            hosts.close()


def can_make_hosts(what):
    if os.geteuid() == 0:
        return True
    print(f"{what}: left out, it needs root", flush=True)
    return False


def speed_row(name, microseconds, bar):
    plain, tls = (MEGABYTE / microseconds[k] for k in ("plain", "tls"))
    return Row(name, tls, plain, "MB/s", bar, "plain", True)


def loopback_rows():
    name = "TLS, all-reduce 1 MB, loopback"
    yield speed_row(name, measure("allreduce", MEGABYTE), 0.33)


def hosts_rows():
    name = "TLS, all-reduce 1 MB, 10 Gbit/s"
    if not can_make_hosts(name):
        return
    with two_hosts() as (hosts, _):
        places = [w for i, n in enumerate(hosts.names) for w in (n, hosts.address(i))]
        yield speed_row(name, measure("allreduce", MEGABYTE, *places), 0.9)


def push_rows():
    speed = measure("push")
    name = "TLS, pushes, loopback"
    yield Row(name, speed["tls"], speed["plain"], "M keys/s", 0.6, "plain", True)


def ctr_rows():
    """A worker on one host and a server on the other."""
    from parameter_server import BATCH, FLEETRUN, TRAIN, best_stretch, read_times

    name = "TLS, CTR async, 10 Gbit/s"
    if not can_make_hosts(name):
        return
    best = {"off": 0.0, "hosts": 0.0}
    with two_hosts() as (hosts, folder):
        server, worker = hosts.address(0), hosts.address(1)
        flags = [f"--servers={server}:6170", f"--workers={worker}:6172"]
        for _ in range(3):
            for encryption in best:
                started = [
                    hosts.start(
                        i,
                        *[FLEETRUN, *flags, TRAIN, "ctr", "async", "60", folder],
                        FLEET_SECRET="of the benchmark",
                        FLEET_ENCRYPTION=encryption,
                    )
                    for i in (0, 1)
                ]
                outputs = [p.communicate(timeout=300)[0] for p in started]
                if any(p.returncode != 0 for p in started):
                    raise RuntimeError(f"{name}:\n" + "\n".join(outputs))
                speed = BATCH / best_stretch(read_times(folder, 1), 15)
                best[encryption] = max(best[encryption], speed)
    yield Row(name, best["hosts"], best["off"], "ex/s", 0.95, "plain", True)


def stranger_rows():
    times = measure("strangers")
    name = "hello among 1,000 silent strangers"
    note = f"alone {times['alone']:.1f} ms"
    yield Row(name, times["strangers"], 50, "ms", 1.0, "allowed", note=note)


PARTS = {
    "loopback": loopback_rows,
    "hosts": hosts_rows,
    "push": push_rows,
    "ctr": ctr_rows,
    "strangers": stranger_rows,
}


def run(parts=tuple(PARTS)):
    for part in parts:
        yield from PARTS[part]()


if __name__ == "__main__":
    begin = time.monotonic()
    for row in run(sys.argv[1:] or tuple(PARTS)):
        print(row, flush=True)
    print(f"{time.monotonic() - begin:.0f} s")
