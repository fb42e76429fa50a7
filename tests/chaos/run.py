# SPDX-License-Identifier: Apache-2.0
"""Kills, stops and cuts off servers and workers while they train, for as long as asked,
and says what was lost.

usage: python tests/chaos/run.py [--time 10m] [--seed 1] [--events 50] [--rows 100000]
                                 [--kinds kill,stop] [--durability log] [--sync 0]
                                 [--busy-seconds 10] [--heartbeat-timeout 10]

Each round has a seed of its own, which is printed: `--seed` with it, and `--time 0s`,
draws the same events again. Exit code 1 when an acknowledged update was lost or applied
twice, when a pull read what docs/modes.md does not allow, when somebody waited for
ever, or was declared dead while others took all cores (the kind `busy`).
"""

import argparse
import contextlib
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARIES = ROOT / "build/release/bin"
SHIM = ROOT / "build/release/lib/tests/libchaos_shim.so"
UNITS = {"s": 1, "m": 60, "h": 3600}
DURABILITIES = ("log", "log-sync")
# What a round draws from. Where steps are joined, a push that finds a full disk ends
# the job.
SETS = (
    (False, "kill,killall,stop,worker,full,disk,clock"),
    (True, "kill,killall,stop,worker,disk,clock"),
    (False, "kill,stop,worker,cut,delay,full"),
    (True, "kill,stop,worker,cut,delay"),
)


@contextlib.contextmanager
def small_disk(folder):
    """A file system of 256 MB, where this user may mount one; else nothing."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256m", "none", disk]
    may = os.geteuid() == 0
    if not may or subprocess.run(mount, capture_output=True).returncode != 0:
        yield None
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def storm(seed, kinds="kill", timeout=900, shim=True, within=None, **options):
    """One round; the driver's line, or its failure with the ends of all logs. `within`
    is the folder that has the logs."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="fleet-chaos-", dir=within))
    options = {"server": BINARIES / "fleet_server", "folder": folder, **options}
    options |= {"seed": seed, "kinds": kinds}
    if shim:
        options["shim"] = SHIM
    try:
        with contextlib.ExitStack() as stack:
            note = ""
            if "full" in kinds:
                disk = stack.enter_context(small_disk(folder))
                if disk is not None:
                    options["disk"] = disk
                else:
                    note = " (no disk could be mounted: the shim says it is full)"
            command = [BINARIES / "storm"]
            for name, value in options.items():
                command += [f"--{name.replace('_', '-')}", value]
            done = subprocess.run(
                [str(word) for word in command],
                capture_output=True,
                text=True,
                timeout=timeout,
            )
            text = (done.stdout + done.stderr).strip() + note
            if done.returncode != 0:
                for log in sorted(folder.glob("*.txt")):
                    text += f"\n{log.name}:\n" + log.read_text()[-2000:]
            return done.returncode, text
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--time", default="10m", help="how long: 30s, 10m, 1h")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--events", type=int, default=50, help="in each round")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--kinds", help="what may happen; else what the seed says")
    parser.add_argument("--durability", choices=DURABILITIES)
    parser.add_argument("--sync", type=int, choices=(0, 1))
    parser.add_argument(
        "--busy-seconds", type=int, default=10, help="how long `busy` lasts"
    )
    parser.add_argument(
        "--heartbeat-timeout", type=int, default=10, help="seconds until one is dead"
    )
    given = parser.parse_args()
    end = time.monotonic() + float(given.time[:-1]) * UNITS[given.time[-1]]
    events = kills = worker_kills = 0
    for seed in itertools.count(given.seed):
        sync, kinds = SETS[seed % len(SETS)]
        if given.sync is not None:
            sync = given.sync
        code, text = storm(
            seed,
            given.kinds or kinds,
            durability=given.durability or DURABILITIES[seed // len(SETS) % 2],
            sync=int(sync),
            events=given.events,
            rows=given.rows,
            timeout=900 + given.events * given.busy_seconds,
            busy_seconds=given.busy_seconds,
            heartbeat_timeout=given.heartbeat_timeout,
        )
        print(text, flush=True)
        if code != 0:
            sys.exit(1)
        events += given.events
        kills += sum(map(int, re.findall(r"(\d+) kills", text)))
        worker_kills += sum(map(int, re.findall(r"(\d+) worker\b", text)))
        if time.monotonic() > end:
            break
    print(
        f"{events} events, {kills} kills of servers, {worker_kills} of workers: "
        "nothing lost, nothing applied twice"
    )


if __name__ == "__main__":
    main()
