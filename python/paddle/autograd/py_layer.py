# SPDX-License-Identifier: Apache-2.0
"""PyLayer: an operation whose forward and backward are written in Python."""

from .. import _core
from .._core import Tensor
from .grad_mode import no_grad


class PyLayerContext:
    """What forward() hands to backward(): tensors by save_for_backward(), anything
    else as attributes."""

    def __init__(self):
        self._to_save = ()
        self._saved = ()
        self._not_differentiable = ()
        self._materialize = True

    def save_for_backward(self, *tensors):
        """Keeps tensors for backward(). Call it once, in forward()."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(
                    "save_for_backward() takes Tensors, but got "
                    f"{type(tensor).__name__}; keep other things as attributes"
                )
        self._to_save = tensors

    def saved_tensor(self):
        """The tuple of tensors that forward() kept."""
        return self._saved

    saved_tensors = property(saved_tensor)

    def mark_non_differentiable(self, *tensors):
        """Says that no gradient flows through these outputs."""
        self._not_differentiable = tensors

    def set_materialize_grads(self, value):
        """Whether an output without a gradient gives zeros to backward(), or None."""
        self._materialize = bool(value)


class PyLayer:
    """Subclass it with static methods forward(ctx, ...) and backward(ctx, *grads), then
    call `apply`. backward() returns a gradient, or None, for each tensor that
    forward() took."""

    @staticmethod
    def forward(ctx, *args, **kwargs):
        raise NotImplementedError("a PyLayer needs a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx, *args):
        raise NotImplementedError("a PyLayer needs a static method backward(ctx, ...)")

    @classmethod
    def apply(cls, *args, **kwargs):
        """Runs forward() and records backward()."""
        ctx = PyLayerContext()
        with no_grad():
            result = cls.forward(ctx, *args, **kwargs)
        inputs = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        needed = any(not x.stop_gradient for x in inputs)
        if not (needed and _core.is_grad_enabled()):
            return result
        items = list(result) if isinstance(result, (list, tuple)) else [result]
        recorded = iter(cls._record(ctx, inputs, items))
        items = [next(recorded) if isinstance(x, Tensor) else x for x in items]
        return type(result)(items) if isinstance(result, (list, tuple)) else items[0]

    @classmethod
    def _record(cls, ctx, inputs, items):
        outputs = [x for x in items if isinstance(x, Tensor)]
        if not outputs:
            raise ValueError(f"{cls.__name__}: forward() returned no Tensor")
        flows = [
            x.dtype.name.startswith(("float", "bfloat", "complex"))
            and not any(x is one for one in ctx._not_differentiable)
            for x in outputs
        ]
        kept = [x for x in ctx._to_save if x is not None]
        absent = [x is None for x in ctx._to_save]
        ctx._to_save = ()

        def run_backward(saved, *grads):
            tensors = iter(saved)
            ctx._saved = tuple(None if gone else next(tensors) for gone in absent)
            try:
                return cls.backward(ctx, *grads)
            finally:
                ctx._saved = ()

        return _core.record_py_layer(
            cls.__name__, run_backward, inputs, outputs, flows, kept, ctx._materialize
        )
