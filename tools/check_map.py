#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the files that docs and READMEs name are there.

Looked at are docs/architecture.md and the README.md of every folder of fleet/. A name
stands in the back quotes of a table, or at the beginning of a line of a walk; `<group>`
stands for anything. A name without a folder is in that of the name before it, and in a
README in the README's.

The tables below "Every file" in docs/architecture.md, one for each folder, have a row for
each file of the product: its name without the ending, and what it holds.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = re.compile(r"[\w/.*<>-]+\.(?:cc|h|py)$")
ENDINGS = (".h", ".cc", ".py")
PRODUCT = ("fleet", "python/src", "python/paddle", "cmd")
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


def is_product(path):
    return path.suffix in ENDINGS and not re.search(
        r"_test$|conformance|_benchmark$|^__\w+__$", path.stem
    )


def rows_of_files(text):
    """(line, folder, names, what they hold) for each row of the tables "Every file"."""
    before, _, tables = text.partition("\n## Every file\n")
    folder = None
    for number, line in enumerate(tables.split("\n"), before.count("\n") + 3):
        if line.startswith("### "):
            folder = line[4:]
        elif line.startswith("| `"):
            names, _, what = line.strip("| ").partition(" | ")
            yield number, folder, re.findall(r"`([^`]+)`", names), what


def wrong_rows():
    """Rows of "Every file" that name no file or say nothing, and files without a row."""
    page = "docs/architecture.md"
    text = (ROOT / page).read_text(encoding="utf8")
    named = set()
    for number, folder, names, what in rows_of_files(text):
        for name in names:
            file = f"{folder}/{name}"
            if file in named:
                yield f"{page}:{number}: {file} has a row already"
            if not any((ROOT / f"{file}{ending}").is_file() for ending in ENDINGS):
                yield f"{page}:{number}: there is no {file}"
            if not what:
                yield f"{page}:{number}: what does {file} hold?"
            named.add(file)
    for home in PRODUCT:
        for path in sorted((ROOT / home).rglob("*")):
            file = path.relative_to(ROOT)
            if is_product(path) and file.with_suffix("").as_posix() not in named:
                yield f"{page}: {file} has no row"


def main():
    pages = [ROOT / "docs/architecture.md", *sorted(ROOT.glob("fleet/*/README.md"))]
    problems = [problem for page in pages for problem in missing(page)]
    problems += wrong_rows()
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    print(f"map: {len(pages)} pages, {len(problems)} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
