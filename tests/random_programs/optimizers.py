# SPDX-License-Identifier: Apache-2.0
"""Draws how a model is trained: the rule, its numbers, clipping, decay, the rate."""

# Adaptive rules divide by the size of a gradient: with a small epsilon they make steps
# of full length from gradients that are rounding errors only.
_EPSILON = "epsilon=0.01, "

_RULES = (
    ("SGD", ""),
    ("SGD", ""),
    ("Momentum", "momentum=0.9, "),
    ("Momentum", "momentum=0.8, use_nesterov=True, "),
    ("Adam", _EPSILON),
    ("Adam", _EPSILON + "beta1=0.7, lazy_mode=True, "),
    ("AdamW", _EPSILON),
    ("Adagrad", _EPSILON),
    ("Adagrad", _EPSILON + "initial_accumulator_value=0.1, "),
    ("Adamax", _EPSILON),
    ("RMSProp", _EPSILON),
    ("RMSProp", _EPSILON + "momentum=0.5, centered=True, "),
    ("Adadelta", _EPSILON),
    ("Lamb", _EPSILON),
    ("Lars", "momentum=0.9, epsilon=0.01, "),
    ("Ftrl", "l1=0.01, l2=0.02, "),
)

_RATES = (
    "lr.StepDecay({}, 2)",
    "lr.ExponentialDecay({}, 0.8)",
    "lr.PiecewiseDecay([1, 3], [{}, 0.01, 0.005])",
    "lr.LinearWarmup({}, 2, 0.0, {})",
    "lr.CosineAnnealingDecay({}, 5)",
    "lr.PolynomialDecay({}, 4)",
    "lr.NaturalExpDecay({}, 0.3)",
    "lr.InverseTimeDecay({}, 0.3)",
    "lr.MultiStepDecay({}, [1, 3])",
    "lr.LambdaDecay({}, lambda n: 0.9**n)",
)


def rate(d):
    number = d.number_in(0.005, 0.1)
    if d.chance(0.7):
        return f"{number}"
    return "paddle.optimizer." + d.one_of(*_RATES).replace("{}", str(number))


def optimizer(d):
    rule, arguments = d.rng.choice(_RULES)
    if d.chance(0.2) and rule != "Lamb":
        decay = d.number_in(0.001, 0.1)
        kind = d.one_of("L2Decay", "L1Decay")
        decay = f"paddle.regularizer.{kind}({decay})" if rule != "AdamW" else decay
        arguments += f"weight_decay={decay}, "
    if d.chance(0.25):
        clip = d.one_of(
            "ClipGradByValue(0.1)", "ClipGradByNorm(0.2)", "ClipGradByGlobalNorm(0.3)"
        )
        arguments += f"grad_clip=nn.{clip}, "
    return f"paddle.optimizer.{rule}(rate, {arguments}parameters=PARAMETERS)"
