# SPDX-License-Identifier: Apache-2.0
"""The optimizers. Each names its hyper-parameters; the formulas are in
fleet/optim/update_rule.h."""

import numbers

from .. import _core
from .optimizer import Optimizer, check_fraction, check_set

_optim = _core.optim


class SGD(Optimizer):
    """Plain gradient descent."""

    def __init__(
        self,
        learning_rate=0.001,
        parameters=None,
        weight_decay=None,
        grad_clip=None,
        multi_precision=False,
        name=None,
    ):
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.type = "sgd"

    def _rule(self, settings):
        return _optim.Sgd()


class Momentum(Optimizer):
    """Gradient descent with a velocity; `rescale_grad` multiplies the gradients."""

    _hyper_parameters = ("momentum", "use_nesterov")

    def __init__(
        self,
        learning_rate=0.001,
        momentum=0.9,
        parameters=None,
        use_nesterov=False,
        weight_decay=None,
        grad_clip=None,
        multi_precision=False,
        rescale_grad=1.0,
        use_multi_tensor=False,
        name=None,
    ):
        check_set("Momentum", momentum=momentum)
        self._momentum = momentum
        self._use_nesterov = bool(use_nesterov)
        self._rescale_grad = float(rescale_grad)
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.type = "momentum"

    def _rule(self, settings):
        return _optim.Momentum(
            mu=settings.get("momentum", self._momentum),
            nesterov=settings.get("use_nesterov", self._use_nesterov),
        )


def _number(value):
    """Betas and epsilon may also come as one-element Tensors."""
    return value.item() if isinstance(value, _core.Tensor) else value


class Adam(Optimizer):
    """Adam. With `lazy_mode` a sparse gradient touches only the rows that it names."""

    _hyper_parameters = ("beta1", "beta2", "epsilon", "lazy_mode")

    def __init__(
        self,
        learning_rate=0.001,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-8,
        parameters=None,
        weight_decay=None,
        grad_clip=None,
        lazy_mode=False,
        multi_precision=False,
        use_multi_tensor=False,
        name=None,
    ):
        owner = type(self).__name__
        self._beta1, self._beta2 = _number(beta1), _number(beta2)
        self._epsilon = _number(epsilon)
        check_fraction(owner, "beta1", self._beta1)
        check_fraction(owner, "beta2", self._beta2)
        if self._epsilon is None or self._epsilon < 0:
            raise ValueError(f"{owner}: epsilon must not be negative, got {epsilon}")
        self._lazy_mode = bool(lazy_mode)
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.type = "adam"

    def _rule(self, settings):
        return _optim.Adam(
            beta1=settings.get("beta1", self._beta1),
            beta2=settings.get("beta2", self._beta2),
            epsilon=settings.get("epsilon", self._epsilon),
            lazy=settings.get("lazy_mode", self._lazy_mode),
        )


class AdamW(Adam):
    """Adam whose decay shrinks the parameters and stays out of the gradients.

    `apply_decay_param_fun(name)` says whether a parameter decays at all, and
    `lr_ratio(parameter)` multiplies its learning rate.
    """

    def __init__(
        self,
        learning_rate=0.001,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-8,
        parameters=None,
        weight_decay=0.01,
        lr_ratio=None,
        apply_decay_param_fun=None,
        grad_clip=None,
        lazy_mode=False,
        multi_precision=False,
        name=None,
    ):
        if lr_ratio is not None and not callable(lr_ratio):
            raise TypeError(
                f"AdamW: lr_ratio must be a function, but got {type(lr_ratio).__name__}"
            )
        self._lr_ratio = lr_ratio
        self._apply_decay_param_fun = apply_decay_param_fun
        self._coeff = _number(weight_decay)
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            epsilon,
            parameters,
            self._coeff,
            grad_clip,
            lazy_mode,
            multi_precision,
            name=name,
        )
        self.type = "adamw"

    def _check_decay(self, weight_decay):
        weight_decay = _number(weight_decay)
        if weight_decay is not None and not isinstance(weight_decay, numbers.Real):
            raise TypeError(
                "AdamW: weight_decay must be a number, but got "
                f"{type(weight_decay).__name__}"
            )
        return None

    def _decoupled_decay(self, parameter, settings):
        decays = self._apply_decay_param_fun
        if decays is not None and not decays(parameter.name):
            return 0.0
        coefficient = _number(settings.get("weight_decay", self._coeff))
        return 0.0 if coefficient is None else float(coefficient)

    def _learning_rate_factor(self, parameter):
        factor = super()._learning_rate_factor(parameter)
        return factor if self._lr_ratio is None else factor * self._lr_ratio(parameter)


class Adagrad(Optimizer):
    """Adagrad: each element's rate falls with the sum of its squared gradients."""

    _hyper_parameters = ("epsilon", "initial_accumulator_value")

    def __init__(
        self,
        learning_rate,
        epsilon=1e-6,
        parameters=None,
        weight_decay=None,
        grad_clip=None,
        name=None,
        initial_accumulator_value=0.0,
    ):
        check_set("Adagrad", epsilon=epsilon)
        self._epsilon = epsilon
        self._initial = initial_accumulator_value
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.type = "adagrad"

    def _rule(self, settings):
        return _optim.Adagrad(
            epsilon=settings.get("epsilon", self._epsilon),
            initial=settings.get("initial_accumulator_value", self._initial),
        )


class Adamax(Optimizer):
    """Adam with the largest gradient in place of the mean square."""

    _hyper_parameters = ("beta1", "beta2", "epsilon")

    def __init__(
        self,
        learning_rate=0.001,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-8,
        parameters=None,
        weight_decay=None,
        grad_clip=None,
        name=None,
    ):
        check_fraction("Adamax", "beta1", beta1)
        check_fraction("Adamax", "beta2", beta2)
        if epsilon is None or epsilon < 0:
            raise ValueError(f"Adamax: epsilon must not be negative, got {epsilon}")
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.type = "adamax"

    def _rule(self, settings):
        return _optim.Adamax(
            beta1=settings.get("beta1", self._beta1),
            beta2=settings.get("beta2", self._beta2),
            epsilon=settings.get("epsilon", self._epsilon),
        )


class RMSProp(Optimizer):
    """Gradients divided by the root of their mean square, `centered` by the root of
    their variance; with a momentum on the result."""

    _hyper_parameters = ("rho", "epsilon", "momentum", "centered")

    def __init__(
        self,
        learning_rate,
        rho=0.95,
        epsilon=1e-6,
        momentum=0.0,
        centered=False,
        parameters=None,
        weight_decay=None,
        grad_clip=None,
        name=None,
    ):
        check_set("RMSProp", rho=rho, epsilon=epsilon, momentum=momentum)
        for key, value in (("rho", rho), ("epsilon", epsilon), ("momentum", momentum)):
            if value < 0:
                raise ValueError(f"RMSProp: {key} must not be negative, got {value}")
        self._rho, self._epsilon = rho, epsilon
        self._momentum, self._centered = momentum, bool(centered)
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.type = "rmsprop"

    def _rule(self, settings):
        return _optim.RmsProp(
            rho=settings.get("rho", self._rho),
            epsilon=settings.get("epsilon", self._epsilon),
            momentum=settings.get("momentum", self._momentum),
            centered=settings.get("centered", self._centered),
        )


class Adadelta(Optimizer):
    """Steps scaled by the ratio of the mean squares of updates and gradients."""

    _hyper_parameters = ("epsilon", "rho")

    def __init__(
        self,
        learning_rate=0.001,
        epsilon=1e-6,
        rho=0.95,
        parameters=None,
        weight_decay=None,
        grad_clip=None,
        name=None,
    ):
        check_set("Adadelta", epsilon=epsilon, rho=rho)
        self._epsilon, self._rho = epsilon, rho
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.type = "adadelta"

    def _rule(self, settings):
        return _optim.Adadelta(
            rho=settings.get("rho", self._rho),
            epsilon=settings.get("epsilon", self._epsilon),
        )


class Lamb(Optimizer):
    """Adam with one rate per parameter, by the ratio of its norm to the step's.

    `exclude_from_weight_decay_fn(parameter)` says which do not decay. Those are not
    adapted either, unless `always_adapt`.
    """

    _hyper_parameters = ("beta1", "beta2", "epsilon", "lamb_weight_decay")

    def __init__(
        self,
        learning_rate=0.001,
        lamb_weight_decay=0.01,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-6,
        parameters=None,
        grad_clip=None,
        exclude_from_weight_decay_fn=None,
        multi_precision=False,
        always_adapt=False,
        name=None,
    ):
        check_set("Lamb", lamb_weight_decay=lamb_weight_decay)
        check_fraction("Lamb", "beta1", beta1)
        check_fraction("Lamb", "beta2", beta2)
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon
        self._lamb_weight_decay = lamb_weight_decay
        self._exclude = exclude_from_weight_decay_fn
        self._always_adapt = bool(always_adapt)
        super().__init__(learning_rate, parameters, None, grad_clip, name)
        self.type = "lamb"

    def _rule(self, settings):
        return _optim.Lamb(
            beta1=settings.get("beta1", self._beta1),
            beta2=settings.get("beta2", self._beta2),
            epsilon=settings.get("epsilon", self._epsilon),
            always_adapt=self._always_adapt,
        )

    def _decoupled_decay(self, parameter, settings):
        if self._exclude is not None and self._exclude(parameter):
            return 0.0
        return settings.get("lamb_weight_decay", self._lamb_weight_decay)


class Lars(Optimizer):
    """Momentum with one rate per parameter, by the ratio of its norm to its gradient's.

    Parameters whose name contains one of `exclude_from_weight_decay` do not decay and
    are not adapted.
    """

    _hyper_parameters = ("momentum", "lars_coeff", "lars_weight_decay", "epsilon")

    def __init__(
        self,
        learning_rate=0.001,
        momentum=0.9,
        lars_coeff=0.001,
        lars_weight_decay=0.0005,
        parameters=None,
        weight_decay=None,
        grad_clip=None,
        name=None,
        exclude_from_weight_decay=None,
        epsilon=0,
        multi_precision=False,
        rescale_grad=1.0,
    ):
        check_set("Lars", momentum=momentum)
        self._momentum = momentum
        self._lars_coeff = lars_coeff
        self._lars_weight_decay = lars_weight_decay
        self._epsilon = epsilon
        self._exclude = list(exclude_from_weight_decay or ())
        self._rescale_grad = float(rescale_grad)
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.type = "lars_momentum"

    def _rule(self, settings):
        return _optim.Lars(
            mu=settings.get("momentum", self._momentum),
            coefficient=settings.get("lars_coeff", self._lars_coeff),
            epsilon=settings.get("epsilon", self._epsilon),
        )

    def _decoupled_decay(self, parameter, settings):
        if any(part in parameter.name for part in self._exclude):
            return 0.0
        return settings.get("lars_weight_decay", self._lars_weight_decay)


LarsMomentum = Lars


class Ftrl(Optimizer):
    """Follow the regularized leader: sparse weights by L1."""

    _hyper_parameters = ("l1", "l2", "lr_power")

    def __init__(
        self,
        learning_rate,
        l1=0.0,
        l2=0.0,
        lr_power=-0.5,
        parameters=None,
        weight_decay=None,
        grad_clip=None,
        name=None,
    ):
        self._l1, self._l2, self._lr_power = l1, l2, lr_power
        super().__init__(learning_rate, parameters, weight_decay, grad_clip, name)
        self.type = "ftrl"

    def _rule(self, settings):
        return _optim.Ftrl(
            l1=settings.get("l1", self._l1),
            l2=settings.get("l2", self._l2),
            power=settings.get("lr_power", self._lr_power),
        )
