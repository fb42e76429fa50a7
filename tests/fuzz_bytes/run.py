# SPDX-License-Identifier: Apache-2.0
"""Runs the targets of this folder by libFuzzer, each for its share of the time.

usage: python tests/fuzz_bytes/run.py [--time 10m] [--jobs 1] [TARGET ...]

New inputs are kept in build/fuzz_bytes/TARGET, so that the next run goes on from there.
What a target does not survive is written to build/fuzz_bytes/found; move it, once it is
repaired, to corpus/TARGET/found-WHAT. Exit code 1 when there is such a one.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
UNITS = {"s": 1, "m": 60, "h": 3600}


def targets():
    return sorted(folder.name for folder in (HERE / "corpus").iterdir())


def seconds_of(text):
    return float(text[:-1]) * UNITS[text[-1]]


def fuzz(target, seconds):
    """Runs one target; a line about it, and whether it survived."""
    kept = ROOT / "build/fuzz_bytes" / target
    found = ROOT / "build/fuzz_bytes/found"
    kept.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    command = [ROOT / "build/fuzz/bin" / f"fuzz_{target}"]
    # Longer inputs show nothing that short ones do not, and take their time.
    command += [f"-max_total_time={seconds:.0f}", "-max_len=8192", "-timeout=20"]
    command += ["-rss_limit_mb=2048", "-print_final_stats=1"]
    command += [f"-artifact_prefix={found}/{target}-", kept]
    command += [HERE / "corpus" / target]
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"FLEET_LOG_LEVEL": "ERROR"},
    )
    runs = re.search(r"number_of_executed_units: (\d+)", done.stdout)
    coverage = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", done.stdout)
    edges, features, corpus = coverage[-1] if coverage else ("?", "?", "?")
    line = (
        f"{target}: {runs[1] if runs else '?'} executions, {edges} edges, "
        f"{features} features, {corpus} inputs"
    )
    if done.returncode == 0:
        return line, True
    return f"{line}\n{done.stdout[-6000:]}\n{target} did not survive", False


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--time", default="10m", help="for all: 30s, 10m, 1h")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    options = parser.parse_args()
    chosen = options.targets or targets()
    share = seconds_of(options.time) * options.jobs / len(chosen)
    all_survived = True
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for line, survived in pool.map(lambda target: fuzz(target, share), chosen):
            print(line, flush=True)
            all_survived = all_survived and survived
    if not all_survived:
        sys.exit(1)


if __name__ == "__main__":
    main()
