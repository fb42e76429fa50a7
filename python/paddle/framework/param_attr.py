# SPDX-License-Identifier: Apache-2.0
"""What a user may say about a parameter before it is created."""


class ParamAttr:
    """Name, first values and treatment of one parameter.

    name: how the parameter is called; by default its layer names it.
    initializer: fills it; by default the layer's choice.
    learning_rate: factor on the optimizer's learning rate.
    regularizer: takes the place of the optimizer's weight decay.
    trainable: whether it gets gradients.
    do_model_average: whether model averaging covers it.
    need_clip: whether gradient clipping covers it.
    """

    def __init__(
        self,
        name=None,
        initializer=None,
        learning_rate=1.0,
        regularizer=None,
        trainable=True,
        do_model_average=True,
        need_clip=True,
    ):
        if name is not None and not isinstance(name, str):
            raise TypeError(
                f"ParamAttr: name must be a string, but got {type(name).__name__}"
            )
        if name == "":
            raise ValueError("ParamAttr: name must not be empty")
        if initializer is not None and not callable(initializer):
            raise TypeError(
                "ParamAttr: initializer must be one of paddle.nn.initializer, but got "
                f"{type(initializer).__name__}"
            )
        if isinstance(learning_rate, bool) or not isinstance(
            learning_rate, (int, float)
        ):
            raise TypeError(
                "ParamAttr: learning_rate must be a number, but got "
                f"{type(learning_rate).__name__}"
            )
        self.name = name
        self.initializer = initializer
        self.learning_rate = learning_rate
        self.regularizer = regularizer
        self.trainable = bool(trainable)
        self.do_model_average = bool(do_model_average)
        self.need_clip = bool(need_clip)

    def __repr__(self):
        values = ", ".join(f"{k}={v!r}" for k, v in vars(self).items())
        return f"{type(self).__name__}({values})"

    @staticmethod
    def _to_attr(arg):
        """The ParamAttr that a layer's `weight_attr` or `bias_attr` means.

        False (no such parameter) stays False.
        """
        from ..nn.initializer import Initializer
        from ..regularizer import WeightDecayRegularizer

        if arg is None or arg is True:
            return ParamAttr()
        if arg is False:
            return False
        if isinstance(arg, ParamAttr):
            return arg
        if isinstance(arg, (list, tuple)):
            return [ParamAttr._to_attr(a) for a in arg]
        if isinstance(arg, str):
            return ParamAttr(name=arg)
        if isinstance(arg, Initializer):
            return ParamAttr(initializer=arg)
        if isinstance(arg, WeightDecayRegularizer):
            return ParamAttr(regularizer=arg)
        raise TypeError(
            "a parameter attribute must be a ParamAttr, a name, an initializer, a "
            f"regularizer, or a bool, but got {type(arg).__name__}"
        )


class WeightNormParamAttr(ParamAttr):
    """A parameter kept as direction and length: w = g * v / |v|.

    dim: the dimension along which lengths are kept; None for one length of all.
    """

    def __init__(
        self,
        dim=None,
        name=None,
        initializer=None,
        learning_rate=1.0,
        regularizer=None,
        trainable=True,
        do_model_average=False,
        need_clip=True,
    ):
        super().__init__(
            name,
            initializer,
            learning_rate,
            regularizer,
            trainable,
            do_model_average,
            need_clip,
        )
        self.dim = dim
