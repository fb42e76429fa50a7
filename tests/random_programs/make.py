# SPDX-License-Identifier: Apache-2.0
"""The model of a number."""

import dataclasses

import clicks
import optimizers
from draw import Draw
from recipes import load

_RECIPES, _FACES = load()
_NAMES = sorted(_RECIPES)


def focus(number):
    """The op that this model surely tries: all of them come round."""
    return _NAMES[number % len(_NAMES)]


def of_clicks(number):
    """Whether this is a model of clicks, one of sixteen numbers: over some thousand, no
    op loses its focus to them."""
    return number % 16 == number // len(_NAMES) % 16


def make(number):
    """The model `number`; the same in every process."""
    if of_clicks(number):
        return _finished(clicks.draw(number))
    d = Draw(number)
    if d.chance(0.8):
        d.feed((d.batch, *d.sizes(d.one_of(1, 1, 2))))
    wanted = focus(number)
    lines = d.rng.randrange(3, 9)
    place = d.rng.randrange(lines)
    for i in range(lines):
        if i == place:
            for _ in range(12):
                if d.attempt(lambda d: _RECIPES[wanted](d, wanted)):
                    break
            else:
                d.split = False
                d.attempt(lambda d: _RECIPES[wanted](d, wanted))
            continue
        for _ in range(8):
            if d.chance(0.5):
                done = d.attempt(d.rng.choice(_FACES))
            else:
                op = d.rng.choice(_NAMES)
                done = d.attempt(lambda d: _RECIPES[op](d, op))
            if done:
                break
    return _finished(d)


def _finished(d):
    dtype = "float64" if d.chance(0.1) else "float32"
    model = d.finish(optimizers.rate(d), optimizers.optimizer(d))
    return dataclasses.replace(model, dtype=dtype)
