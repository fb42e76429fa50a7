# SPDX-License-Identifier: Apache-2.0
"""Blocking all-reduce over two ranks by TCP on loopback, as hosts use it
(collectives/tcp.cc), against Gloo of torch, in turns of a process pair each.

    python benchmarks/tcp_collectives.py
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LIBRARIES = ROOT / "build" / "release" / "lib"

# Bytes: the largest ratio to Gloo's time. Large ones are bound by the kernel's
# copies on both sides.
BARS = {
    4: 0.6,
    4 << 10: 0.6,
    64 << 10: 0.8,
    1 << 20: 1.2,
    4 << 20: 1.2,
    32 << 20: 1.2,
}
TURNS = 2


def build():
    program = ROOT / "build" / "bench" / "tcp_collectives"
    program.parent.mkdir(parents=True, exist_ok=True)
    command = ["g++", "-std=c++20", "-O2", "-I", str(ROOT), "-o", str(program)]
    command += [str(HERE / "collectives" / "tcp.cc")]
    command += [f"-L{LIBRARIES}", f"-Wl,-rpath,{LIBRARIES}", "-lfleet_core"]
    subprocess.run(command, check=True)
    return program


def measure_ours(program):
    """{bytes: microseconds}."""
    done = subprocess.run(
        [program, *map(str, BARS)],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return {
        int(size): float(best)
        for size, best in map(str.split, done.stdout.splitlines())
    }


def run():
    from collectives import measure_gloo, size_name
    from measure import Row

    program = build()
    ours = dict.fromkeys(BARS, float("inf"))
    gloo = dict(ours)
    for _ in range(TURNS):
        for best, times in ((ours, measure_ours(program)), (gloo, measure_gloo())):
            for size in BARS:
                best[size] = min(best[size], times[size])
    for size, bar in BARS.items():
        name = f"all-reduce {size_name(size)}, tcp"
        yield Row(name, ours[size], gloo[size], "us", bar, "Gloo")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    for row in run():
        print(row, flush=True)
