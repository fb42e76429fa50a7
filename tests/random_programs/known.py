# SPDX-License-Identifier: Apache-2.0
"""Defects that are known and not repaired yet. A model that fails and holds one is not a
new finding; the report counts them and prints what they are."""

import re

# (name, modes, a pattern in the text of the model, what is wrong)
KNOWN = (
    (
        "rows joined",
        ("planned", "crash", "two ranks", "two ranks, program"),
        r"sparse=True|is_sparse=True",
        "plans of programs in which the gradient of a sparse table comes out of concat, "
        "split or a slice: loss = mean(concat([F.embedding(x[:, 0], w0, sparse=True), "
        "w1], 1)), second run",
    ),
    (
        "rows clipped by value",
        ("plain", "planned"),
        r"sparse=True[\s\S]*ClipGradByValue",
        "programs clip a sparse gradient by value into a dense one: with "
        "Adam(lazy_mode=True) rows that no id names move",
    ),
    (
        "lazy rows on ranks",
        ("two ranks, eager",),
        r"sparse=True[\s\S]*lazy_mode=True",
        "eager data parallel hands on the mean of sparse gradients as a dense one: with "
        "Adam(lazy_mode=True) rows that no id names move",
    ),
    (
        "narrow convolution",
        ("planned", "two ranks"),
        r"nn\.Conv2D|ops\.\w*conv2d",
        "plans of conv2d with kernel 1 and padding, or a kernel as wide as the input: "
        "'could not convolve'",
    ),
)


def known(model, mode):
    """The name of a known defect that may be this failure, or None."""
    text = f"{model.layer_code()}\n{model.code()}\n{model.optimizer}"
    for name, modes, pattern, _ in KNOWN:
        if mode in modes and re.search(pattern, text):
            return name
    return None
