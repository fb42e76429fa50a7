# SPDX-License-Identifier: Apache-2.0
"""Defects that are known and not repaired yet. A model that fails and holds one is not a
new finding; the report counts them and prints what they are."""

import re

# (name, modes, a pattern in the text of the model, what is wrong)
KNOWN = (
    (
        "lazy rows on ranks",
        ("two ranks, eager",),
        r"sparse=True[\s\S]*lazy_mode=True",
        "eager data parallel hands on the mean of sparse gradients as a dense one: with "
        "Adam(lazy_mode=True) rows that no id names move",
    ),
)


def known(model, mode):
    """The name of a known defect that may be this failure, or None."""
    text = f"{model.layer_code()}\n{model.code()}\n{model.optimizer}"
    for name, modes, pattern, _ in KNOWN:
        if mode in modes and re.search(pattern, text):
            return name
    return None
