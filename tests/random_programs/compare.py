# SPDX-License-Identifier: Apache-2.0
"""How far two trainings of one model are apart."""

import numpy as np


def bits_differ(a, b):
    """Whether two arrays differ in shape, type or any number; NaN equals NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    return not np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def distance(a, b, scale=0.0):
    """|a - b| by norm, relative to |b| or `scale`, whichever is more."""
    if a.shape != b.shape:
        return float("inf")
    if a.size == 0:
        return 0.0
    if a.dtype.kind != "f":
        return 0.0 if np.array_equal(a, b) else float("inf")
    a, b = a.astype("float64"), b.astype("float64")
    both = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    error = np.linalg.norm(a[both] - b[both])
    size = max(np.linalg.norm(b[both]), scale * np.sqrt(a.size), 1e-30)
    return float(error / size)


def first_difference(got, wanted):
    """What differs first to the bit between two traces, in words, or None."""
    for step, (a, b) in enumerate(zip(got.losses, wanted.losses)):
        if bits_differ(a, b):
            return f"loss of step {step}: {a} and {b}"
    for kind in ("fetched", "parameters"):
        ours, theirs = getattr(got, kind), getattr(wanted, kind)
        for name in ours.keys() & theirs.keys():
            if bits_differ(ours[name], theirs[name]):
                apart = distance(ours[name], theirs[name])
                return f"{name}: {_shown(ours[name])} and {_shown(theirs[name])}, {apart:.2g} apart"
    return None


def _shown(array):
    text = f"{array.dtype.name}{list(array.shape)}"
    if array.size <= 6:
        text += f" {array.ravel().tolist()}"
    return text


def largest_distance(got, wanted, scale=0.1):
    """(how far, what): losses relative to at least one, parameters to at least `scale`
    for each number."""
    worst = (0.0, "nothing")
    for step, (a, b) in enumerate(zip(got.losses, wanted.losses)):
        worst = max(worst, (distance(a, b, 1.0), f"loss of step {step}: {a} and {b}"))
    for kind in ("fetched", "parameters"):
        ours, theirs = getattr(got, kind), getattr(wanted, kind)
        for name in sorted(ours.keys() & theirs.keys()):
            apart = distance(ours[name], theirs[name], scale)
            if apart > worst[0]:
                worst = (
                    apart,
                    f"{name}: {_shown(ours[name])} and {_shown(theirs[name])}",
                )
    return worst
