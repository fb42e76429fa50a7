#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs folders of pytest tests, several at a time, each in a process of its own.

usage: tools/test_folders.py [-j JOBS] [FOLDER ...]

Without FOLDER: python/tests and all folders of tests/. What a folder prints is shown
when it is done; the last lines name the folders that failed. Needs build/release and
.venv (make).
"""

import argparse
import concurrent.futures
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# They take the longest and go first, so that the end does not wait for one of them.
LONG = [
    "python/tests",
    "tests/random_programs",
    "tests/collective_failures",
    "tests/install",
]


def all_folders():
    found = {
        str(test.parent.relative_to(ROOT)) for test in ROOT.glob("tests/*/test_*.py")
    }
    return LONG + sorted(found - set(LONG))


def run(folder):
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", folder],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return folder, done.returncode, done.stdout, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-j", dest="jobs", type=int, default=2, help="at a time (2)")
    parser.add_argument("folders", nargs="*", metavar="FOLDER")
    args = parser.parse_args()
    folders = args.folders or all_folders()
    failed = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        runs = [pool.submit(run, folder) for folder in folders]
        for finished in concurrent.futures.as_completed(runs):
            folder, code, output, seconds = finished.result()
            print(f"---- {folder}, {seconds:.0f} s\n{output}", flush=True)
            if code != 0:
                failed.append(folder)
    if failed:
        sys.exit(f"failed: {' '.join(failed)}")
    print(f"{len(folders)} folders passed")


if __name__ == "__main__":
    main()
