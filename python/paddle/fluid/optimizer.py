# SPDX-License-Identifier: Apache-2.0
"""Optimizers with `parameter_list` and `regularization`.

`minimize` also moves on the learning rates of fluid.dygraph.
"""

import inspect

from .. import optimizer as _optimizer
from .._later import explain
from .optimizer_wrappers import (
    DecayedAdagradOptimizer,
    GradientMergeOptimizer,
    RecomputeOptimizer,
)

_OLD_NAMES = {
    "parameter_list": "parameters",
    "regularization": "weight_decay",
}


def _old(kind, arguments, **renamed):
    """A subclass of `kind` that takes `arguments`, in that order or by name.

    `renamed` maps more old names of arguments to new ones.
    """
    order = arguments.split()
    names = {**_OLD_NAMES, **renamed}

    class Optimizer(kind):
        def __init__(self, *args, **kwargs):
            if len(args) > len(order):
                raise TypeError(
                    f"{kind.__name__} takes at most {len(order)} arguments: "
                    f"{', '.join(order)}"
                )
            for name, value in zip(order, args):
                if name in kwargs:
                    raise TypeError(f"{kind.__name__}: {name} was given twice")
                kwargs[name] = value
            for name in kwargs:
                if name not in order:
                    raise TypeError(f"{kind.__name__} has no argument '{name}'")
            super().__init__(**{names.get(k, k): v for k, v in kwargs.items()})

        def minimize(
            self, loss, startup_program=None, parameter_list=None, no_grad_set=None
        ):
            result = super().minimize(
                loss, startup_program, parameter_list, no_grad_set
            )
            if getattr(self._learning_rate, "moved_by_minimize", False):
                self._learning_rate.step()
            return result

        def current_step_lr(self):
            return self.get_lr()

        def set_dict(self, state_dict):
            self.set_state_dict(state_dict)

    new = inspect.signature(kind).parameters
    Optimizer.__signature__ = inspect.Signature(
        [new[names.get(name, name)].replace(name=name) for name in order]
    )
    Optimizer.__name__ = Optimizer.__qualname__ = kind.__name__
    Optimizer.__doc__ = kind.__doc__
    return Optimizer


_TAIL = "parameter_list regularization grad_clip name"

SGD = _old(_optimizer.SGD, f"learning_rate {_TAIL}")
Momentum = _old(
    _optimizer.Momentum,
    "learning_rate momentum parameter_list use_nesterov regularization grad_clip name",
)
Adam = _old(_optimizer.Adam, f"learning_rate beta1 beta2 epsilon {_TAIL} lazy_mode")
Adagrad = _old(
    _optimizer.Adagrad, f"learning_rate epsilon {_TAIL} initial_accumulator_value"
)
Adamax = _old(_optimizer.Adamax, f"learning_rate beta1 beta2 epsilon {_TAIL}")
Adadelta = _old(_optimizer.Adadelta, f"learning_rate epsilon rho {_TAIL}")
RMSProp = _old(
    _optimizer.RMSProp, f"learning_rate rho epsilon momentum centered {_TAIL}"
)
Ftrl = _old(_optimizer.Ftrl, f"learning_rate l1 l2 lr_power {_TAIL}")
Lamb = _old(
    _optimizer.Lamb,
    "learning_rate lamb_weight_decay beta1 beta2 epsilon parameter_list "
    "exclude_from_weight_decay_fn grad_clip name",
)
LarsMomentum = _old(
    _optimizer.LarsMomentum,
    "learning_rate momentum lars_coeff lars_weight_decay parameter_list "
    "regularization grad_clip name exclude_from_weight_decay epsilon",
)

SGDOptimizer = SGD
MomentumOptimizer = Momentum
AdamOptimizer = Adam
AdagradOptimizer = Adagrad
AdamaxOptimizer = Adamax
AdadeltaOptimizer = Adadelta
RMSPropOptimizer = RMSProp
FtrlOptimizer = Ftrl
LambOptimizer = Lamb
LarsMomentumOptimizer = LarsMomentum
DecayedAdagrad = DecayedAdagradOptimizer

__getattr__ = explain(
    __name__,
    averaging_of_parameters="ExponentialMovingAverage LookaheadOptimizer ModelAverage",
    sparse_communication="DGCMomentumOptimizer",
    pipelines="PipelineOptimizer",
    differential_privacy="Dpsgd DpsgdOptimizer",
)
