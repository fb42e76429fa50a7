# SPDX-License-Identifier: Apache-2.0
"""Makes programs of the C++ and the Python of documents.

    complete.py DOCUMENT FRAME OUTPUT

A block of C++ in a document is a part of a program. The line above it names the file
with the rest, its frame:

    <!-- compiled in tests/snippets/train_in_cpp.cc -->

In a frame the line `// SNIPPET 1` is where the first block goes that names it, and so
on. Includes of a block go to the top.

A block of Python is a script that runs as it is written, unless the line above it says

    <!-- goes on -->                               after the block before
    <!-- completed in tests/snippets/python/datasets.py -->
    <!-- quoted from python/paddle/nn/functional/activation.py -->

In a frame of Python the line `# SNIPPET 1` is where the first part goes; a line `...`
divides a block into parts.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^( *)```(\S*) *$")
MARK = re.compile(r"^ *<!-- (compiled in|goes on|completed in|quoted from) ?(\S*) -->$")
CPP = ("cpp", "c++", "cc")
PYTHON = ("python", "py")


class Block(NamedTuple):
    """A block of a document: where it begins, what the line above says, its lines."""

    line: int
    mark: str
    file: str
    lines: list


def blocks(document, languages=CPP):
    """The blocks of `document` in one of `languages`."""
    lines = Path(document).read_text().splitlines()
    found, above, inside = [], "", None
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if inside is None and fence:
            indent, language = fence.groups()
            mark = MARK.match(above)
            inside = language, Block(number, *(mark.groups() if mark else ("", "")), [])
        elif inside is not None and fence and not fence.group(2):
            if inside[0] in languages:
                found.append(inside[1])
            inside = None
        elif inside is not None:
            inside[1].lines.append(line.removeprefix(indent))
        if line.strip():
            above = line
    return found


def complete(document, frame, name):
    """The text of a program: `frame`, a file that blocks of `document` call `name`,
    with these blocks in it."""
    includes, text = [], Path(frame).read_text()
    for block in blocks(document):
        if block.file != name:
            continue
        includes += [line for line in block.lines if line.startswith("#include")]
        code = [line for line in block.lines if not line.startswith("#include")]
        text = put(code, text, "//", document, frame)
    check_full(text, "//", document, frame)
    return "\n".join(includes) + "\n" + text


def complete_python(document, frame, name):
    """The text of a program with the document's blocks of Python in their places."""
    text = Path(frame).read_text()
    for block in blocks(document, PYTHON):
        if block.file != name:
            continue
        for part in re.split(r"^\.\.\.$", "\n".join(block.lines), flags=re.MULTILINE):
            text = put(part.splitlines(), text, "#", document, frame)
    check_full(text, "#", document, frame)
    return text


def put(code, text, comment, document, frame):
    """`text` with `code` at its first free place."""
    marks = re.findall(rf"^ *{comment} SNIPPET \d+$", text, re.MULTILINE)
    if not marks:
        raise SystemExit(f"{frame}: no place for a block of {document}")
    return text.replace(marks[0] + "\n", "\n".join(code).strip() + "\n", 1)


def check_full(text, comment, document, frame):
    if f"{comment} SNIPPET" in text:
        raise SystemExit(f"{document} has no block for a place of {frame}")


if __name__ == "__main__":
    document, frame, output = sys.argv[1:]
    name = f"tests/snippets/{Path(frame).name}"
    Path(output).write_text(complete(document, frame, name))
