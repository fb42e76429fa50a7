# SPDX-License-Identifier: Apache-2.0
"""Several models as one, for modes that know one program: their losses are added."""

import dataclasses
import re

import clicks
from make import make
from model import names_in

_NAMED = re.compile(r"\b([vwxl])(\d+)\b")
STEP = 1000  # names of one model count below this
_TABLE = re.compile(
    r"F\.embedding\([^()]*, (w\d+)(?:, padding_idx=-?\d+)?, sparse=True\)"
)


def _moved(text, by):
    return _NAMED.sub(lambda m: f"{m[1]}{int(m[2]) + by}", text)


def _move_line(line, by):
    outputs = tuple(_moved(name, by) for name in line.outputs)
    return dataclasses.replace(line, outputs=outputs, text=_moved(line.text, by))


def join(models, rate, optimizer):
    """One model that trains all of them on one batch size."""
    feeds, parameters, lines, terms = [], [], [], []
    for i, model in enumerate(models):
        by = STEP * i
        for feed in model.feeds:
            feeds.append(dataclasses.replace(feed, name=_moved(feed.name, by)))
        for parameter in model.parameters:
            name = _moved(parameter.name, by)
            parameters.append(dataclasses.replace(parameter, name=name))
        lines += [_move_line(line, by) for line in model.lines]
        terms += [_moved(term, by) for term in model.terms]
    return dataclasses.replace(
        models[0],
        feeds=tuple(feeds),
        parameters=tuple(parameters),
        lines=tuple(lines),
        terms=tuple(terms),
        rate=rate,
        optimizer=optimizer,
        fetched=(),
        free_batch=True,
    )


def tables(model):
    """Parameters whose rows servers keep."""
    return {m[1] for line in model.lines for m in _TABLE.finditer(line.text)}


def servable(model):
    """Whether servers can train it: dense values begin with worker 0's, tables are
    looked up in one way only, and nothing is random."""
    if not model.split or model.random or model.layers or model.dtype != "float32":
        return False
    rows = tables(model)
    for line in model.lines:
        if "is_sparse=True" in line.text:
            return False
        mentioned = names_in(_TABLE.sub("", line.text)) & rows
        if mentioned:
            return False
    if rows & names_in(" ".join(model.terms)):
        return False
    return all(0 not in p.shape and p.trained for p in model.parameters)


def servable_models(first, count, batch=4):
    """`count` models from the number `first` on that servers can train together, half of
    them models of clicks, and the numbers that were looked at."""
    found = [
        clicks.draw(first + i, batch).finish("0.1", "None").pruned()
        for i in range(count // 2)
    ]
    found, number = [model for model in found if servable(model)], first
    while len(found) < count:
        model = make(number).pruned()
        number += 1
        if model.batch == batch and servable(model):
            found.append(model)
    return found, number - first
