# SPDX-License-Identifier: Apache-2.0
"""DataParallel: a model whose gradients are averaged over the ranks of a job."""

import contextlib
import os
import warnings

from .layers import Layer


class DataParallel(Layer):
    """Runs `layers` as they are and averages their gradients over all ranks.

    On one process there is nothing to average: the wrapper warns and passes
    everything through. Parameters keep their identity and `state_dict` its names, so
    optimizers and files made without the wrapper fit.
    """

    def __init__(
        self,
        layers,
        strategy=None,
        comm_buffer_size=25,
        last_comm_buffer_size=1,
        find_unused_parameters=False,
    ):
        super().__init__(layers.full_name() + "_data_parallel")
        if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1:
            raise NotImplementedError(
                "DataParallel over several processes comes with collective training"
            )
        warnings.warn(
            "The program will return to single-card operation: this job has one "
            "process, so there are no gradients to average.",
            stacklevel=2,
        )
        self._layers = layers

    def forward(self, *inputs, **kwargs):
        return self._layers(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self):
        """Within it, gradients of this rank alone are collected."""
        yield

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
