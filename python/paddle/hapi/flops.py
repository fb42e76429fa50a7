# SPDX-License-Identifier: Apache-2.0
"""How many operations a network takes for an input."""

import math

from .. import nn
from .calls import inputs_of, record, shapes_of, size_of, state_of


def _conv(layer, inputs, output):
    """A product for each number of a window, and one for the bias."""
    window = layer._in_channels // layer._groups * math.prod(layer._kernel_size)
    return size_of(output) * (window + (layer.bias is not None))


def _linear(layer, inputs, output):
    return layer.weight.shape[0] * size_of(output)


def _norm(layer, inputs, output):
    return 2 * size_of(inputs[0])


def _each_input(layer, inputs, output):
    return size_of(inputs[0])


def _each_output(layer, inputs, output):
    return size_of(output)


def _adaptive_pool(layer, inputs, output):
    """The sum of a window and one division; of windows of different sizes the least."""
    before, after = inputs[0].shape[2:], output.shape[2:]
    window = math.prod(a // b for a, b in zip(before, after))
    return (window + 1) * size_of(output)


def _nothing(layer, inputs, output):
    return 0


def _by_type():
    ways = {
        _conv: "Conv1D Conv2D Conv3D Conv1DTranspose Conv2DTranspose Conv3DTranspose",
        _linear: "Linear",
        _norm: "BatchNorm BatchNorm1D BatchNorm2D BatchNorm3D SyncBatchNorm",
        _each_input: "LeakyReLU",
        _each_output: "AvgPool1D AvgPool2D AvgPool3D",
        _adaptive_pool: "AdaptiveAvgPool1D AdaptiveAvgPool2D AdaptiveAvgPool3D",
        _nothing: "ReLU ReLU6 Dropout Flatten Identity",
    }
    return {
        getattr(nn, name): way for way, names in ways.items() for name in names.split()
    }


def _customized(function, call):
    """`function(layer, inputs, output)` adds to layer.total_ops."""
    layer = call.layer
    object.__setattr__(layer, "total_ops", 0)
    try:
        function(layer, tuple(call.inputs), call.output)
        return int(layer.total_ops)
    finally:
        object.__delattr__(layer, "total_ops")


def flops(net, input_size, custom_ops=None, print_detail=False):
    """The number of operations of `net` for an input of shape `input_size`: products of
    convolutions and linear layers, and what norms and averages take; a product and its sum
    count once. Prints it, with `print_detail` layer by layer.

    custom_ops: {type of layer: function(layer, inputs, output)} for layers that are not
        known, or to count otherwise; the function adds to `layer.total_ops`.
    """
    custom_ops, known = custom_ops or {}, _by_type()
    calls = record("flops", net, inputs_of("flops", input_size))
    rows, unknown, counted = {}, {}, set()
    for call in calls:
        layer, kind = call.layer, type(call.layer)
        if any(True for _ in layer.children()) and kind not in custom_ops:
            continue
        if kind in custom_ops:
            count = _customized(custom_ops[kind], call)
        elif kind in known:
            count = known[kind](*call)
        else:
            unknown[kind.__name__] = count = 0
        if id(layer) in rows:
            rows[id(layer)][-1] += count
            continue
        new = [t for t in state_of(layer) if id(t) not in counted]
        counted.update(id(t) for t in new)
        first = shapes_of(call.inputs[0]) if call.inputs else []
        shape = shapes_of(call.output)
        shape = shape[0] if shape and isinstance(shape[0], list) else shape
        rows[id(layer)] = [
            layer.full_name(),
            str(first),
            str(shape),
            sum(size_of(t) for t in new),
            count,
        ]
    if unknown:
        print(f"flops: counted as nothing: {', '.join(unknown)}")
    rows = list(rows.values())
    if print_detail:
        _print(rows)
    total, parameters = sum(row[-1] for row in rows), sum(row[-2] for row in rows)
    print(f"Total Flops: {total}     Total Params: {parameters}")
    return total


def _print(rows):
    titles = ["Layer Name", "Input Shape", "Output Shape", "Params", "Flops"]
    cells = [titles, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(titles))]
    rule = "+".join(["", *("-" * (width + 2) for width in widths), ""])
    lines = [
        "|".join(["", *(f" {c:^{w}} " for c, w in zip(row, widths)), ""])
        for row in cells
    ]
    print("\n".join([rule, lines[0], rule, *lines[1:], rule]))
