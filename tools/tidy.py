#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the files of libfleet_core that differ from a commit.

usage: tools/tidy.py [-j JOBS] [--minutes N] [--base COMMIT | --all]

COMMIT is $FLEET_TIDY_BASE where that is set; else the commit at which HEAD left its
remote's branch, or that remote's main one, or a branch here named main. Where HEAD is
part of all these (a clone that tests what has landed), it is the newest commit before HEAD
from which a file of fleet/ differs: commits of documentation, and of format alone, are
passed over. Where there is none (the first one, a clone of depth 1), all files count as
changed. The tree is compared as it lies here. Files that only moved or were only
formatted are not looked at. A header is seen through the source file of its name, or
through the first that includes it. After N minutes (10) no further file is begun; those
that were not reached are named, and that alone is no failure. Needs
build/clang/compile_commands.json (make tidy makes it).
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "clang"
CLANG_TIDY = "clang-tidy-19"


def git(*words):
    """What git prints; none where it fails."""
    done = subprocess.run(
        ["git", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def commit_before():
    """Where HEAD's own commits begin; none where nothing is before HEAD."""
    head = git("rev-parse", "HEAD")
    for branch in ("@{upstream}", "origin/HEAD", "main"):
        left = git("merge-base", "HEAD", branch)
        if left not in (None, head):
            return left
    earlier = git("rev-list", "--first-parent", "--skip=1", "HEAD") or ""
    return next(filter(changed, earlier.split()), None)


def sources():
    """The source files of libfleet_core and its modules, from the root."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    files = {pathlib.Path(each["file"]) for each in commands}
    inside = {f.relative_to(ROOT) for f in files if f.is_relative_to(ROOT / "fleet")}
    return sorted(map(str, inside))


def changed(base):
    """Files of fleet/ that say what they do not say in `base`."""
    listed = git("diff", "--name-status", "--find-renames", base, "--", "fleet")
    if listed is None:
        sys.exit(f"tidy: no commit {base} to compare with")
    rows = [line.split("\t") for line in listed.splitlines()]
    return [
        row[-1]
        for row in rows
        if row[0] not in ("D", "R100")
        and unformatted((ROOT / row[-1]).read_text())
        != unformatted(git("show", f"{base}:{row[1]}") or "")
    ]


def unformatted(text):
    """`text` without what a formatter sets: where lines end, also those of comments."""
    return re.sub(r"\s|//", "", text)


def seen_through(header, files):
    """A source file that shows `header` to the compiler; none for one of LibTorch's
    side."""
    own = re.sub(r"\.h$", ".cc", header)
    if own in files:
        return own
    line = f'#include "{header}"'
    return next((f for f in files if line in (ROOT / f).read_text()), None)


def check(source):
    done = subprocess.run(
        [CLANG_TIDY, "-p", BUILD, "--quiet", "--warnings-as-errors=*", source],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Standard error counts the warnings that nobody asked for.
    errors = "" if done.returncode == 0 else done.stderr
    return source, done.returncode, done.stdout + errors


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-j", dest="jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--base", default=os.environ.get("FLEET_TIDY_BASE"))
    parser.add_argument("--all", action="store_true", help="all of libfleet_core")
    args = parser.parse_args()
    files = sources()
    wanted = set(files)
    base = None if args.all else args.base or commit_before()
    if base is not None:
        differ = changed(base)
        headers = [f for f in differ if f.endswith(".h")]
        wanted &= {*differ, *(seen_through(h, files) for h in headers)}
    end = time.monotonic() + 60 * args.minutes
    failed, left = [], []

    def check_in_time(source):
        return check(source) if time.monotonic() < end else (source, None, "")

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for source, code, output in pool.map(check_in_time, sorted(wanted)):
            if code is None:
                left.append(source)
            elif code != 0:
                failed.append(source)
                print(output, flush=True)
    if base is not None:
        since = f"what differs from {base[:12]}"
    else:
        since = "all of libfleet_core"
        since += "" if args.all else ", for there is no commit before this one"
    looked_at = len(wanted) - len(left)
    print(f"tidy: {looked_at} files of {since}: {len(failed)} with errors")
    for source in left:
        print(f"tidy: not reached in {args.minutes:g} minutes: {source}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
