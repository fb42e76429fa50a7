# SPDX-License-Identifier: Apache-2.0
"""Makes a program of the C++ of a document.

    complete.py DOCUMENT FRAME OUTPUT

A block of C++ in a document is a part of a program. The line above it names the file
with the rest, its frame:

    <!-- compiled in tests/snippets/train_in_cpp.cc -->

In a frame the line `// SNIPPET 1` is where the first block goes that names it, and so
on. Includes of a block go to the top.
"""

import re
import sys
from pathlib import Path

FENCE = re.compile(r"^( *)```(\S*) *$")
FRAME = re.compile(r"^ *<!-- compiled in (\S+) -->$")


def blocks(document):
    """(line number, name of the frame or None, lines) of each block of C++."""
    lines = Path(document).read_text().splitlines()
    found, above, inside = [], "", None
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if inside is None and fence:
            indent, language = fence.groups()
            frame = FRAME.match(above)
            inside = (number, language, frame and frame.group(1), [])
        elif inside is not None and fence and not fence.group(2):
            if inside[1] in ("cpp", "c++", "cc"):
                found.append((inside[0], inside[2], inside[3]))
            inside = None
        elif inside is not None:
            inside[3].append(line.removeprefix(indent))
        if line.strip():
            above = line
    return found


def complete(document, frame, name):
    """The text of a program: `frame`, a file that blocks of `document` call `name`,
    with these blocks in it."""
    includes, text = [], Path(frame).read_text()
    for lines in (lines for _, of, lines in blocks(document) if of == name):
        includes += [line for line in lines if line.startswith("#include")]
        code = [line for line in lines if not line.startswith("#include")]
        marks = re.findall(r"^ *// SNIPPET \d+$", text, re.MULTILINE)
        if not marks:
            raise SystemExit(f"{frame}: no place for a block of {document}")
        text = text.replace(marks[0] + "\n", "\n".join(code).strip() + "\n", 1)
    if "// SNIPPET" in text:
        raise SystemExit(f"{document} has no block for a place of {frame}")
    return "\n".join(includes) + "\n" + text


if __name__ == "__main__":
    document, frame, output = sys.argv[1:]
    name = f"tests/snippets/{Path(frame).name}"
    Path(output).write_text(complete(document, frame, name))
