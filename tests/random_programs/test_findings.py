# SPDX-License-Identifier: Apache-2.0
"""What becomes of a model that fails: its process may end or hang, and it is printed as a
script that shows the same."""

import faulthandler
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import isolated
from isolated import Ended, each

HERE = Path(__file__).resolve().parent


def _behave(item):
    if item == "crash":
        faulthandler.disable()  # pytest's would print where
        os.kill(os.getpid(), signal.SIGSEGV)
    if item == "hang":
        select.select([], [], [])
    if item == "exit":
        os._exit(3)
    return item * 2


def test_a_process_that_ends_or_hangs_costs_one_item():
    items = [1, "crash", 2, "hang", "exit", 3, 4]
    results = dict(each(_behave, items, seconds=2, at_once=3))
    assert [results[i] for i in (1, 2, 3, 4)] == [2, 4, 6, 8]
    assert [str(results[i]) for i in ("crash", "hang", "exit")] == [
        "ended by SIGSEGV",
        "no result in 2 s",
        "ended with status 3",
    ]
    assert isinstance(results["hang"], Ended)


def test_seconds_without_a_core_do_not_count(monkeypatch):
    """The process answers when its seconds are over and it is asked how long it waited."""
    reader, writer = os.pipe()
    asked = []

    def waited(pid):
        if asked:
            os.write(writer, b"x")
        asked.append(pid)
        return 1000.0 * (len(asked) - 1)

    monkeypatch.setattr(isolated, "_waited", waited)
    assert dict(each(lambda _: os.read(reader, 1), [1], seconds=0.1)) == {1: b"x"}
    os.close(reader)
    os.close(writer)


def _wrong(*arguments, timeout=240):
    return subprocess.run(
        [sys.executable, HERE / "wrong.py", "run", *map(str, arguments)],
        env={**os.environ, "WRONG_KERNEL": "direct_update"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_a_finding_is_a_script_of_a_few_lines_that_shows_it(tmp_path):
    found = tmp_path / "finding.py"
    done = _wrong(HERE / "fuzz.py", "--from", 1, "--count", 3, "--findings", found)
    assert done.returncode == 1, done.stdout + done.stderr
    script = re.split(r"^#{80}$", found.read_text(), flags=re.M)[1]
    assert "unfused: program and eager" in script
    forward = re.search(r"def forward.*?return", script, re.S)[0]
    assert forward.count("\n") <= 4, forward
    found.write_text(script)
    shown = _wrong(found)
    assert shown.returncode == 0, shown.stderr
    ends = {
        mode: re.findall(rf"^{mode} end (.*)$", shown.stdout, re.M)
        for mode in ("eager", "plain", "unfused", "planned")
    }
    assert ends["eager"] == ends["plain"], shown.stdout
    assert ends["plain"] not in (ends["unfused"], ends["planned"]), shown.stdout


def test_the_report_names_what_was_drawn(tmp_path):
    table = tmp_path / "table.tsv"
    done = subprocess.run(
        [
            sys.executable,
            HERE / "fuzz.py",
            *("--from", "1", "--count", "10", "--report", table),
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "models: 10 eager, 10 plain, 10 planned" in done.stdout
    assert "drawn in fewer than 5 models" in done.stdout
    rows = [line.split("\t") for line in table.read_text().splitlines()]
    assert rows[0] == ["op", "eager", "plain", "planned", "unfused"]
    assert len({row[0] for row in rows}) > 300
