#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the files that docs and READMEs name are there.

Looked at are docs/architecture.md and the README.md of every folder of fleet/. A name
stands in the back quotes of a table, or at the beginning of a line of a walk; `<group>`
stands for anything. A name without a folder is in that of the name before it, and in a
README in the README's.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = re.compile(r"[\w/.*<>-]+\.(?:cc|h|py)$")


ROOMS = ("fleet/", "python/", "cmd/", "tests/", "cmake/")


def is_there(name):
    """Whether a file has this name, from the root; of `<group>`, whether any has."""
    return any(ROOT.glob(re.sub(r"(<\w+>)+\**", "*", name)))


def missing(path):
    """The names in `path` that are no file, each with its line."""
    home = path.parent.relative_to(ROOT).as_posix()
    for number, line in enumerate(path.read_text(encoding="utf8").split("\n"), 1):
        names = re.findall(r"`([^`\s]+)`", line) if line.startswith("|") else []
        names += re.findall(r"^((?:fleet|python)/[^\s,]+)", line)
        folder = home
        for name in filter(SOURCE.match, names):
            if name.startswith(ROOMS):
                places = [name]
                folder = name.rpartition("/")[0]
            else:
                places = [f"{folder}/{name}", f"fleet/{name}"]
            if not any(map(is_there, places)):
                yield f"{path.relative_to(ROOT)}:{number}: there is no {name}"


def main():
    pages = [ROOT / "docs/architecture.md", *sorted(ROOT.glob("fleet/*/README.md"))]
    problems = [problem for page in pages for problem in missing(page)]
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    print(f"map: {len(pages)} pages, {len(problems)} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
