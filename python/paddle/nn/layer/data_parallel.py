# SPDX-License-Identifier: Apache-2.0
"""DataParallel: a model whose gradients are averaged over the ranks of a job."""

import contextlib
import warnings

from ... import _core
from .layers import Layer

_MIB = 1 << 20


class DataParallel(Layer):
    """Runs `layers` as they are and averages their gradients over all ranks.

    Parameters and buffers become those of rank 0. From then on every backward leaves
    the mean of all ranks' gradients in the parameters, so that equal optimizers keep
    the ranks equal. Parameters that backward does not reach are found by themselves.

    On one process there is nothing to average: the wrapper warns and passes
    everything through. Parameters keep their identity and `state_dict` its names, so
    optimizers and files made without the wrapper fit.

    comm_buffer_size, last_comm_buffer_size: MiB of gradients that travel together,
        and how many of those that are ready last.
    strategy, find_unused_parameters: accepted; nothing depends on them.
    group: the ranks, by default all.
    """

    def __init__(
        self,
        layers,
        strategy=None,
        comm_buffer_size=25,
        last_comm_buffer_size=1,
        find_unused_parameters=False,
        group=None,
    ):
        super().__init__(layers.full_name() + "_data_parallel")
        self.find_unused_parameters = find_unused_parameters
        self._layers = layers
        self._strategy = strategy
        self._reducer = None
        group = _core.get_group(group)
        if group.nranks < 2:
            warnings.warn(
                "The program will return to single-card operation: this job has one "
                "process, so there are no gradients to average.",
                stacklevel=2,
            )
            return
        parameters, buffers = _members(layers)
        self._reducer = _core.Reducer.make(
            parameters,
            buffers,
            group,
            int(comm_buffer_size * _MIB),
            int(last_comm_buffer_size * _MIB),
        )

    def __call__(self, *inputs, **kwargs):
        # On the path of every step: past the look at hooks, unless there are some.
        if self._forward_pre_hooks or self._forward_post_hooks:
            return self._call_with_hooks(inputs, kwargs)
        return self._layers(*inputs, **kwargs)

    def forward(self, *inputs, **kwargs):
        return self._layers(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self):
        """Within it, gradients of this rank alone are collected; the next backward
        outside averages the sums."""
        if self._reducer is None:
            yield
            return
        before = self._reducer.sync
        self._reducer.sync = False
        try:
            yield
        finally:
            self._reducer.sync = before

    @contextlib.contextmanager
    def join(self):
        """Around a loop whose number of batches may differ between ranks.

        A rank that has no batch left takes part in the others' steps with zero
        gradients. At the end all ranks hold the parameters of one that trained last.
        """
        yield
        if self._reducer is not None:
            self._reducer.join()

    def scale_loss(self, loss):
        """The loss itself: gradients are averaged where they are exchanged."""
        return loss

    def apply_collective_grads(self):
        """Nothing: gradients are exchanged during backward."""

    def state_dict(self, *args, **kwargs):
        return self._layers.state_dict(*args, **kwargs)

    def set_state_dict(self, state_dict, *args, **kwargs):
        return self._layers.set_state_dict(state_dict, *args, **kwargs)

    set_dict = load_dict = set_state_dict

    def __deepcopy__(self, memo):
        """A copy whose gradients stay its own."""
        reducer, self._reducer = self._reducer, None
        try:
            return super().__deepcopy__(memo)
        finally:
            self._reducer = reducer


def _members(layers):
    """What the ranks must have in common, as (name, tensor, gradients are rows): the
    parameters, and the buffers."""
    sparse = {
        id(layer.weight)
        for layer in layers.sublayers(include_self=True)
        if getattr(layer, "_sparse", False)
    }
    parameters = [
        (name, parameter, id(parameter) in sparse)
        for name, parameter in layers.named_parameters()
        if not parameter.is_distributed  # of which every rank has its own part
    ]
    buffers = [(name, buffer, False) for name, buffer in layers.named_buffers()]
    return parameters, buffers
