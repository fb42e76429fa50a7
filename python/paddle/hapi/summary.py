# SPDX-License-Identifier: Apache-2.0
"""A table of the layers of a network."""

import math

from ..nn import LayerDict, LayerList, ParameterList, Sequential
from .calls import inputs_of, record, shapes_of, size_of, state_of, tensors_of

_CONTAINERS = (Sequential, LayerDict, LayerList, ParameterList)
_MEGABYTE = 1 << 20


def summary(net, input_size=None, dtypes=None, input=None):
    """Prints the layers of `net` in the order of their calls, with the shapes that go in
    and come out and the number of parameters; how many of these are trained, and what
    memory a step takes at least.

    input_size: the shape of the input, or a list for several; a dimension that is None or
        -1 counts as 1. `dtypes` says of which type they are, float32 by default.
    input: the input itself instead, or a list or dict of them.
    Returns {'total_params': ..., 'trainable_params': ...}.
    """
    if input is not None:
        inputs = input if isinstance(input, (dict, list, tuple)) else [input]
    elif input_size is not None:
        inputs = inputs_of("summary", input_size, dtypes)
    else:
        raise ValueError("summary: give input_size or input")
    calls = record("summary", net, inputs)
    text, counts = _table(net, inputs, calls)
    print(text)
    return counts


def _bytes(tensors):
    return sum(size_of(t) * _width(t) for t in tensors)


def _width(tensor):
    digits = "".join(c for c in tensor.dtype.name if c.isdigit())
    return max(int(digits or 8) // 8, 1)


def _own_state(layer, called):
    """Parameters and buffers of the layer and of those inside that are never called
    themselves, as the cells of a recurrent layer."""
    found = state_of(layer)
    for inner in layer.children():
        if id(inner) not in called:
            found += _own_state(inner, called)
    return found


def _rows(net, calls):
    called = {id(call.layer) for call in calls}
    has_inner = any(True for _ in net.children())
    numbers, rows, counted, names = {}, [], set(), {}
    for layer, inputs, output in calls:
        if type(layer) in _CONTAINERS or (layer is net and has_inner):
            continue
        if id(layer) not in names:
            kind = type(layer).__name__
            numbers[kind] = numbers.get(kind, 0) + 1
            names[id(layer)] = f"{kind}-{numbers[kind]}"
        own = {id(t): t for t in _own_state(layer, called)}
        count = sum(size_of(t) for key, t in own.items() if key not in counted)
        counted.update(own)
        shapes = shapes_of(inputs), shapes_of(output)
        rows.append((names[id(layer)], *map(str, shapes), f"{count:,}"))
    return rows


def _table(net, inputs, calls):
    titles = ("Layer (type)", "Input Shape", "Output Shape", "Param #")
    rows = _rows(net, calls)
    widths = [
        max(len(row[i]) for row in (titles, *rows)) + 4 for i in range(len(titles))
    ]
    line = sum(widths) + len(widths) - 1

    def show(cells):
        return " ".join(f"{cell:^{width}}" for cell, width in zip(cells, widths))

    state = list({id(t): t for t in state_of(net, True)}.values())
    trained = [t for t in state if not t.stop_gradient]
    total = sum(size_of(t) for t in state)
    trainable = sum(size_of(t) for t in trained)
    leaves = [c.output for c in calls if not any(True for _ in c.layer.children())]
    memory = {
        "Input": _bytes(tensors_of(inputs)),
        "Forward/backward pass": 2 * _bytes(tensors_of(leaves)),
        "Params": _bytes(state),
    }
    sizes = [f"{k} size (MB): {v / _MEGABYTE:.2f}" for k, v in memory.items()]
    whole = math.fsum(memory.values()) / _MEGABYTE
    parts = [
        "-" * line,
        show(titles),
        "=" * line,
        *map(show, rows),
        "=" * line,
        f"Total params: {total:,}",
        f"Trainable params: {trainable:,}",
        f"Non-trainable params: {total - trainable:,}",
        "-" * line,
        *sizes,
        f"Estimated Total Size (MB): {whole:.2f}",
        "-" * line,
        "",
    ]
    return "\n".join(parts), {"total_params": total, "trainable_params": trainable}
