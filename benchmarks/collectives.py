# SPDX-License-Identifier: Apache-2.0
"""Blocking all-reduce over two ranks of one host, against Open MPI in the same
processes, call by call in turns (collectives/collectives.cc). Gloo of torch is
measured as well and shown below each row.

    python benchmarks/collectives.py
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SOURCES = HERE / "collectives"
LIBRARIES = ROOT / "build" / "release" / "lib"

# (where the data lies, bytes, the largest ratio to Open MPI's time).
BARS = {
    ("anywhere", 4): 1.0,
    ("anywhere", 4 << 10): 0.6,
    ("anywhere", 64 << 10): 0.6,
    ("allocated", 1 << 20): 0.2,
    ("allocated", 4 << 20): 0.2,
    ("allocated", 32 << 20): 0.2,
    ("anywhere", 1 << 20): 0.6,
    ("anywhere", 4 << 20): 0.6,
    ("anywhere", 32 << 20): 0.6,
}
GLOO_SIZES = [4, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 32 << 20]


def size_name(size):
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def build():
    """The program, linked with MPI where there is one."""
    with_mpi = shutil.which("mpirun") and shutil.which("mpicc")
    program = ROOT / "build" / "bench" / "collectives"
    program.parent.mkdir(parents=True, exist_ok=True)
    command = ["g++", "-std=c++20", "-O2", "-I", str(ROOT), "-o", str(program)]
    command += [str(SOURCES / "collectives.cc")]
    command += [str(SOURCES / ("mpi.cc" if with_mpi else "alone.cc"))]
    command += [f"-L{LIBRARIES}", f"-Wl,-rpath,{LIBRARIES}", "-lfleet_core"]
    if with_mpi:
        command += ["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"]
        for what in ("compile", "link"):
            flags = subprocess.run(
                ["mpicc", f"--showme:{what}"],
                check=True,
                capture_output=True,
                text=True,
            )
            command += shlex.split(flags.stdout)
    subprocess.run(command, check=True)
    return ["mpirun", "-np", "2", str(program)] if with_mpi else [str(program)]


def measure():
    """{(where, bytes): (ours, peer)} in microseconds; the peer is 0 without MPI."""
    # Open MPI asks root whether it is meant.
    env = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    times = {}
    command = build()
    # Twice: where the pages of a process lie is a matter of luck.
    for _ in range(2):
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env=env, timeout=600
        )
        for line in done.stdout.splitlines():
            where, size, ours, peer = line.split()
            key = (where, int(size))
            best = times.get(key, (float("inf"), float("inf")))
            times[key] = (min(best[0], float(ours)), min(best[1], float(peer)))
    return times


def gloo_rank(rank, meeting_file):
    """Prints the best time of each size, in microseconds."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"file://{meeting_file}", rank=rank, world_size=2
    )
    for size in GLOO_SIZES:
        tensor = torch.zeros(size // 4)
        best = float("inf")
        for _ in range(8):
            repeat = max(2, min(50, (8 << 20) // size))
            start = time.perf_counter()
            for _ in range(repeat):
                dist.all_reduce(tensor)
            best = min(best, (time.perf_counter() - start) / repeat)
        if rank == 0:
            print(size, best * 1e6, flush=True)
    dist.destroy_process_group()


def measure_gloo():
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--gloo", str(i), f"{folder}/meeting"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for i in range(2)
        ]
        try:
            lines = ranks[0].communicate(timeout=300)[0].splitlines()
            ranks[1].wait(timeout=60)
        finally:
            for rank in ranks:
                rank.kill()
    return {int(size): float(best) for size, best in map(str.split, lines)}


def run():
    from measure import Row

    times = measure()
    gloo = measure_gloo()
    for (where, size), bar in BARS.items():
        ours, peer = times[where, size]
        name = f"all-reduce {size_name(size)}, {where}"
        if peer == 0:
            print(f"{name:34} ours {ours:10.2f} us  (no MPI to compare with)")
            continue
        note = f"Gloo of torch {gloo[size]:.0f} us"
        renewed = times.get((where + "_new", size))
        if renewed:
            note += (
                f"; data rewritten before each call: ours {renewed[0]:.1f} us, "
                f"Open MPI {renewed[1]:.1f} us"
            )
        # Below a microsecond the table shows nanoseconds.
        scale, unit = (1000, "ns") if size < 4096 else (1, "us")
        yield Row(name, ours * scale, peer * scale, unit, bar, "Open MPI", note=note)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--gloo":
        gloo_rank(int(sys.argv[2]), sys.argv[3])
    else:
        sys.path.insert(0, str(HERE))
        for row in run():
            print(row, flush=True)
