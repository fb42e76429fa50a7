# SPDX-License-Identifier: Apache-2.0
"""Initializers under their old names and with their old arguments.

`seed` is accepted where it is 0: draws follow paddle.seed.
"""

from .. import nn as _nn

__all__ = [
    "Bilinear",
    "BilinearInitializer",
    "Constant",
    "ConstantInitializer",
    "MSRA",
    "MSRAInitializer",
    "Normal",
    "NormalInitializer",
    "NumpyArrayInitializer",
    "TruncatedNormal",
    "TruncatedNormalInitializer",
    "Uniform",
    "UniformInitializer",
    "Xavier",
    "XavierInitializer",
]


def Constant(value=0.0, force_cpu=False):
    return _nn.initializer.Constant(value)


def Uniform(low=-1.0, high=1.0, seed=0, diag_num=0, diag_step=0, diag_val=1.0):
    _check_seed(seed)
    if diag_num:
        raise ValueError("Uniform: a diagonal of its own is not supported")
    return _nn.initializer.Uniform(low, high)


def Normal(loc=0.0, scale=1.0, seed=0):
    _check_seed(seed)
    return _nn.initializer.Normal(loc, scale)


def TruncatedNormal(loc=0.0, scale=1.0, seed=0):
    _check_seed(seed)
    return _nn.initializer.TruncatedNormal(loc, scale)


def Xavier(uniform=True, fan_in=None, fan_out=None, seed=0):
    _check_seed(seed)
    kind = _nn.initializer.XavierUniform if uniform else _nn.initializer.XavierNormal
    return kind(fan_in, fan_out)


def MSRA(uniform=True, fan_in=None, seed=0):
    _check_seed(seed)
    kind = _nn.initializer.KaimingUniform if uniform else _nn.initializer.KaimingNormal
    return kind(fan_in)


def NumpyArrayInitializer(value):
    return _nn.initializer.Assign(value)


def Bilinear():
    return _nn.initializer.Bilinear()


ConstantInitializer = Constant
UniformInitializer = Uniform
NormalInitializer = Normal
TruncatedNormalInitializer = TruncatedNormal
XavierInitializer = Xavier
MSRAInitializer = MSRA
BilinearInitializer = Bilinear


def _check_seed(seed):
    if seed:
        raise ValueError(
            f"a seed of its own ({seed}) is not supported for an initializer: call "
            "paddle.seed"
        )
