# SPDX-License-Identifier: Apache-2.0
"""Examines models by number, as many or as long as asked.

python fuzz.py --from 1 --count 200
python fuzz.py --time 10m --jobs 2 --report report.tsv
python fuzz.py --show 17             # the model as a script
"""

import argparse
import collections
import multiprocessing
import os
import re
import sys
import tempfile
import time
from pathlib import Path

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def seconds_of(text):
    found = re.fullmatch(r"(\d+)([smh]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: 90, 90s, 10m, 1h")
    return int(found[1]) * _UNITS[found[2]]


def _examine_part(arguments):
    """In a process of its own, so that this one never computes and can fork."""
    import local

    numbers, explained = arguments
    found = []
    for number, result in local.examine_all(numbers):
        text = ""
        if result.failures and explained:
            text = local.explain(number, result)
        found.append((number, result.failures, sorted(result.ops), result.notes, text))
    return found


def _parts(first, count, end, size=40):
    """Lists of numbers until `count` are given out or the time is over."""
    given = 0
    while (count is None or given < count) and (end is None or time.monotonic() < end):
        many = size if count is None else min(size, count - given)
        yield list(range(first + given, first + given + many)), True
        given += many


def _results(pool, parts, at_once):
    """What `_examine_part` gives for each part; no part is begun before there is room."""
    under_way = collections.deque()
    for part in parts:
        under_way.append(pool.apply_async(_examine_part, (part,)))
        if len(under_way) >= at_once:
            yield under_way.popleft().get()
    while under_way:
        yield under_way.popleft().get()


# Models of one job of several processes, which costs seconds to start.
RANKS_MODELS, SERVERS_MODELS = 40, 8


def local_models(report, first, count, end, jobs, show):
    begin = time.monotonic()
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, maxtasksperchild=8) as pool:
        for part in _results(pool, _parts(first, count, end), 2 * jobs):
            for number, failures, ops, notes, text in part:
                for mode in ("eager", "plain", "unfused", "planned"):
                    report.add(mode, ops, notes if mode == "eager" else ())
                if failures:
                    report.findings.append((number, failures, text))
                    show(text or f"model {number}: {failures}")
            done = report.models["eager"]
            took = time.monotonic() - begin
            print(
                f"{done} models in {took:.0f} s, {len(report.findings)} findings",
                file=sys.stderr,
                flush=True,
            )


def job_models(report, first, ranks, servers, show):
    """`ranks` models on two ranks and `servers` models, as one program, with servers."""
    import jobs

    with tempfile.TemporaryDirectory() as folder:
        lines = []
        if ranks:
            lines.append(
                ("two ranks", jobs.two_ranks(folder, range(first, first + ranks)))
            )
        if servers:
            lines.append(("servers", jobs.served(folder, first, servers)))
        for name, results in lines:
            for line in results:
                models = len(line.get("models", [0]))
                report.add(name, line["ops"], line.get("notes", ()), models)
                for mode, text in line["failures"]:
                    report.findings.append((line["number"], [(mode, text)], ""))
                    show(f"model {line['number']}, {mode}: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="first", type=int, default=None)
    parser.add_argument("--count", type=int, default=None)
    parser.add_argument("--time", type=seconds_of, default=None)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=0, help="models on two ranks")
    parser.add_argument("--servers", type=int, default=0, help="models with servers")
    parser.add_argument("--report", type=Path, default=None)
    parser.add_argument("--findings", type=Path, default=None)
    parser.add_argument("--show", type=int, default=None)
    options = parser.parse_args()
    if options.show is not None:
        from make import make
        from script import script

        print(script(make(options.show), f"model {options.show}"))
        return 0
    first = options.first if options.first is not None else int(time.time()) % 10**8
    if options.count is None and options.time is None:
        options.count = 200
    print(f"from number {first}", file=sys.stderr, flush=True)
    end = None if options.time is None else time.monotonic() + options.time * 0.75

    def show(text):
        print(f"\n{'#' * 80}\n{text}", flush=True)
        if options.findings:
            with open(options.findings, "a") as file:
                file.write(f"{'#' * 80}\n{text}\n\n")

    from report import Report

    report = Report()
    local_models(report, first, options.count, end, options.jobs, show)
    if options.time:
        # A quarter of the time belongs to jobs of several processes.
        end = time.monotonic() + options.time * 0.25
        while time.monotonic() < end:
            job_models(report, first, RANKS_MODELS, SERVERS_MODELS, show)
            first += RANKS_MODELS
    elif options.ranks or options.servers:
        job_models(report, first, options.ranks, options.servers, show)
    print(report.text())
    if options.report:
        options.report.write_text(report.table() + "\n")
    # An hour is long enough for each definition to meet others in some models.
    too_rare = report.rare() if options.time and options.time >= 3600 else {}
    if too_rare:
        print(f"too rare after an hour: {', '.join(too_rare)}; see recipes_*.py")
    return 1 if report.findings or too_rare else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
