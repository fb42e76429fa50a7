# SPDX-License-Identifier: Apache-2.0
"""Makes a model that fails smaller, as long as it fails in the same way."""

import dataclasses
import time

from isolated import Ended, one
from model import Line, Parameter, names_in


def _without(items, index):
    return items[:index] + items[index + 1 :]


def _smaller(model, shapes):
    """Models that are a little smaller, the boldest first."""
    for i in range(len(model.terms)):
        if len(model.terms) > 1:
            yield dataclasses.replace(model, terms=_without(model.terms, i))
    if "SGD" not in model.optimizer or "," in model.optimizer.split("rate")[1][2:]:
        plain = "paddle.optimizer.SGD(rate, parameters=PARAMETERS)"
        if model.optimizer != plain:
            yield dataclasses.replace(model, optimizer=plain)
    if model.rate != "0.1":
        yield dataclasses.replace(model, rate="0.1")
    if model.fetched:
        yield dataclasses.replace(model, fetched=())
    # A line becomes a parameter: what led to it is not needed.
    for i in reversed(range(len(model.lines))):
        line = model.lines[i]
        if len(line.outputs) != 1 or shapes.get(line.outputs[0]) is None:
            continue
        shape, floating = shapes[line.outputs[0]]
        if floating and not line.text.startswith("cut"):
            name = "w9" + line.outputs[0][1:]
            yield dataclasses.replace(
                model,
                parameters=(*model.parameters, Parameter(name, shape)),
                lines=(
                    *model.lines[:i],
                    Line(line.outputs, name),
                    *model.lines[i + 1 :],
                ),
            )
    # A line becomes what it reads, if the shape is the same.
    for i, line in enumerate(model.lines):
        if len(line.outputs) != 1 or line.text.isidentifier():
            continue
        for name in sorted(names_in(line.text)):
            if shapes.get(name) and shapes.get(name) == shapes.get(line.outputs[0]):
                lines = (*model.lines[:i], Line(line.outputs, name))
                yield dataclasses.replace(model, lines=(*lines, *model.lines[i + 1 :]))
    if model.steps > 2:
        yield dataclasses.replace(model, steps=model.steps - 1)
    if model.free_batch:
        yield dataclasses.replace(model, free_batch=False)


def inlined(model):
    """Without lines that only give another name."""
    renamed, lines = {}, []
    for line in model.lines:
        text = _renamed(line.text, renamed)
        if text.isidentifier() and len(line.outputs) == 1:
            renamed[line.outputs[0]] = text
        else:
            lines.append(Line(line.outputs, text))
    terms = tuple(_renamed(term, renamed) for term in model.terms)
    fetched = tuple(n for n in model.fetched if n not in renamed)
    return dataclasses.replace(
        model, lines=tuple(lines), terms=terms, fetched=fetched
    ).pruned()


def _renamed(text, renamed):
    for old, new in renamed.items():
        parts = []
        word = ""
        for c in text + "\0":
            if c.isalnum() or c == "_":
                word += c
                continue
            parts.append(new if word == old else word)
            word = ""
            parts.append(c)
        text = "".join(parts)[:-1]
    return text


def shrink(model, kind, fails, shapes, seconds=60):
    """The smallest model found for which `kind in fails(model)`; where that does not come
    back, `kind` is "crash"."""
    end = time.monotonic() + seconds

    def still(candidate):
        result = one(fails, candidate, 20)
        if isinstance(result, Ended):
            return kind == "crash"
        return kind in result

    model = model.pruned() if still(model.pruned()) else model
    found = True
    while found and time.monotonic() < end:
        found = False
        for candidate in _smaller(model, shapes):
            candidate = inlined(candidate)
            if time.monotonic() > end:
                break
            if candidate != model and still(candidate):
                model, found = candidate, True
                break
    return model
