# SPDX-License-Identifier: Apache-2.0
"""How the benchmarks measure: ours and the peer take turns in one run, the best of
several turns counts, and what is printed is their ratio. Times on a shared machine
mean little; a ratio of two bests of the same minute means more."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Row:
    """One line of the table. `ratio` is ours / peer in time, or in speed where
    `higher_is_better`; `bar` is what it must not pass."""

    name: str
    ours: float
    peer: float
    unit: str
    bar: float
    peer_name: str = "torch"
    higher_is_better: bool = False
    note: str = ""

    @property
    def ratio(self):
        return self.ours / self.peer

    @property
    def ok(self):
        return (
            self.ratio >= self.bar if self.higher_is_better else self.ratio <= self.bar
        )

    def __str__(self):
        sign = ">=" if self.higher_is_better else "<="
        return (
            f"{self.name:34} ours {self.ours:10.1f} {self.unit:9} "
            f"{self.peer_name} {self.peer:10.1f}  ratio {self.ratio:5.2f}  "
            f"bar {sign} {self.bar:4.2f}  {'ok' if self.ok else 'MISSED'}"
            + (f"\n    {self.note}" if self.note else "")
        )


def seconds_of(function, repeat):
    start = time.perf_counter()
    for _ in range(repeat):
        function()
    return (time.perf_counter() - start) / repeat


def best_in_turns(functions, repeat, turns):
    """For each function its best time of one call in seconds, over `turns` turns of
    `repeat` calls; the functions alternate, and the order turns around."""
    best = [float("inf")] * len(functions)
    order = list(range(len(functions)))
    for _ in range(turns):
        for i in order:
            best[i] = min(best[i], seconds_of(functions[i], repeat))
        order.reverse()
    return best


def run_two_ranks(script, *arguments):
    """Starts `script` as two ranks of one thread under fleetrun, with `arguments` and
    a folder; returns what rank 0 and rank 1 wrote there as JSON, under their number."""
    with tempfile.TemporaryDirectory() as folder:
        fleetrun = Path(sys.executable).parent / "fleetrun"
        done = subprocess.run(
            [fleetrun, "--nproc_per_node=2", f"--log_dir={folder}/log", script]
            + [*arguments, folder],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{script} under fleetrun:\n{done.stderr}")
        return [json.loads(Path(folder, str(r)).read_text()) for r in (0, 1)]
