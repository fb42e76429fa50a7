# SPDX-License-Identifier: Apache-2.0
"""backward() and grad(): walks from outputs back to what they came from."""

from .. import _core
from .._core import Tensor


def _tensors(function, argument, value, optional=False):
    """`value` as a list of tensors (or None where `optional`)."""
    items = [value] if isinstance(value, Tensor) else value
    if not isinstance(items, (list, tuple)):
        raise TypeError(
            f"{function}(): {argument} must be a Tensor or a list of Tensors, but got "
            f"{type(value).__name__}"
        )
    for item in items:
        if not isinstance(item, Tensor) and not (optional and item is None):
            raise TypeError(
                f"{function}(): {argument} must hold Tensors, but got "
                f"{type(item).__name__}"
            )
    return list(items)


def _start_grads(function, argument, value, outputs):
    """The gradients to start from: one, or None for ones, for each output."""
    if value is None:
        return [None] * len(outputs)
    grads = _tensors(function, argument, value, optional=True)
    if len(grads) != len(outputs):
        raise ValueError(
            f"{function}(): {len(outputs)} outputs but {len(grads)} {argument}"
        )
    for output, given in zip(outputs, grads):
        if given is not None and given.shape != output.shape:
            raise ValueError(
                f"{function}(): {argument} has shape {given.shape} but its output has "
                f"{output.shape}"
            )
    return grads


def _check_recorded(function, outputs):
    for output in outputs:
        if output.stop_gradient:
            raise RuntimeError(
                f"{function}(): {output.name} (shape {output.shape}) has "
                "stop_gradient=True: nothing that led to it was recorded. Set "
                "stop_gradient=False on the inputs before computing, outside of "
                "paddle.no_grad()."
            )


def backward(tensors, grad_tensors=None, retain_graph=False):
    """Adds to `.grad` of every leaf the gradient of `tensors`, weighted by
    `grad_tensors` (ones by default)."""
    outputs = _tensors("backward", "tensors", tensors)
    if not outputs:
        raise ValueError("backward(): tensors is empty")
    grads = _start_grads("backward", "grad_tensors", grad_tensors, outputs)
    _check_recorded("backward", outputs)
    _core.backward(outputs, grads, retain_graph)


def _stop(gradient):
    """The hook of a tensor that no gradient may pass."""
    from ..tensor.creation import zeros_like

    return zeros_like(gradient)


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=False,
    no_grad_vars=None,
):
    """The gradients of `outputs` with respect to `inputs`, in their order. `.grad` of
    nothing changes. With `create_graph` the results can be differentiated again."""
    if not only_inputs:
        raise ValueError("grad(): only_inputs=False is not supported")
    outputs = _tensors("grad", "outputs", outputs)
    inputs = _tensors("grad", "inputs", inputs)
    if not outputs or not inputs:
        raise ValueError("grad(): outputs and inputs must not be empty")
    starts = _start_grads("grad", "grad_outputs", grad_outputs, outputs)
    _check_recorded("grad", outputs)
    if retain_graph is None:
        retain_graph = create_graph
    asked = [x for x in inputs if not x.stop_gradient]
    blocked = _tensors("grad", "no_grad_vars", no_grad_vars or [])
    hooks = [(x, _core.register_hook(x, _stop)) for x in blocked if not x.stop_gradient]
    try:
        found = iter(
            _core.grad(outputs, asked, starts, retain_graph, create_graph, True)
            if asked
            else ()
        )
    finally:
        for x, hook in hooks:
            _core.remove_hook(x, hook)
    results = [None if x.stop_gradient else next(found) for x in inputs]
    if not allow_unused:
        for i, (x, result) in enumerate(zip(inputs, results)):
            if result is None:
                why = "has stop_gradient=True" if x.stop_gradient else "did not lead"
                why += "" if x.stop_gradient else " to any of the outputs"
                raise RuntimeError(
                    f"grad(): inputs[{i}] ({x.name}, shape {x.shape}) {why}. Pass "
                    "allow_unused=True to get None for it."
                )
    return results
