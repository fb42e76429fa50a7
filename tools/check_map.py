#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the files that docs and READMEs name are there.

Looked at are docs/architecture.md and the README.md of every folder of fleet/. A name
stands in the back quotes of a table, or at the beginning of a line of a walk; `<group>`
stands for anything. A name without a folder is in that of the name before it, and in a
README in the README's.

The table "Every file" of docs/architecture.md names every file of the product, without
its ending.
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


def rows_of_files(text):
    """(folders, words) for each row of the table "Every file"."""
    table = text.partition("\n## Every file\n")[2]
    for line in table.split("\n"):
        if line.startswith("| `"):
            folders, _, files = line.strip("| ").partition(" | ")
            yield re.findall(r"[\w/]+", folders), re.findall(r"[\w*]+", files)


def is_product(path):
    return path.suffix in (".cc", ".h", ".py") and not re.search(
        r"_test$|conformance|_benchmark$|^__\w+__$", path.stem
    )


def unnamed():
    """Files of the product that the table "Every file" does not name."""
    page = ROOT / "docs/architecture.md"
    named = {}
    for folders, words in rows_of_files(page.read_text(encoding="utf8")):
        for folder in folders:
            home = folder if "/" in folder else f"python/paddle/{folder}"
            named[home] = words
    for home, words in named.items():
        if home == "python/paddle/fluid":  # Paddle's own names
            continue
        for path in sorted((ROOT / home).rglob("*")):
            folder = path.parent.relative_to(ROOT).as_posix()
            if is_product(path) and nearest(folder, named) == home:
                if not any(stands_for(word, path.stem, words) for word in words):
                    yield f"{page.relative_to(ROOT)}: {path.relative_to(ROOT)} is not named"


def nearest(folder, named):
    """The longest of `named` that holds `folder`."""
    while folder and folder not in named:
        folder = folder.rpartition("/")[0]
    return folder


def stands_for(word, stem, words):
    """`direct_*` stands for direct_conv where the row also says conv."""
    start, star, end = word.partition("*")
    if not star:
        return word == stem
    if not (stem.startswith(start) and stem.endswith(end)):
        return False
    return end != "" or stem.removeprefix(start) in words


def main():
    pages = [ROOT / "docs/architecture.md", *sorted(ROOT.glob("fleet/*/README.md"))]
    problems = [problem for page in pages for problem in missing(page)]
    problems += unnamed()
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    print(f"map: {len(pages)} pages, {len(problems)} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
