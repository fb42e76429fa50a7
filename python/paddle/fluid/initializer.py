# SPDX-License-Identifier: Apache-2.0
"""Initializers under their old names and with their old arguments.

`seed` other than 0 draws the same numbers every time; with 0 they follow paddle.seed.
"""

from .. import nn as _nn


def Constant(value=0.0, force_cpu=False):
    return _nn.initializer.Constant(value)


def Uniform(low=-1.0, high=1.0, seed=0, diag_num=0, diag_step=0, diag_val=1.0):
    if diag_num:
        raise ValueError(
            f"Uniform: diag_num={diag_num}, a diagonal of its own, is not supported; "
            "give the values by NumpyArrayInitializer"
        )
    return _seeded(_nn.initializer.Uniform(low, high), seed)


def Normal(loc=0.0, scale=1.0, seed=0):
    return _seeded(_nn.initializer.Normal(loc, scale), seed)


def TruncatedNormal(loc=0.0, scale=1.0, seed=0):
    return _seeded(_nn.initializer.TruncatedNormal(loc, scale), seed)


def Xavier(uniform=True, fan_in=None, fan_out=None, seed=0):
    kind = _nn.initializer.XavierUniform if uniform else _nn.initializer.XavierNormal
    return _seeded(kind(fan_in, fan_out), seed)


def MSRA(uniform=True, fan_in=None, seed=0):
    kind = _nn.initializer.KaimingUniform if uniform else _nn.initializer.KaimingNormal
    return _seeded(kind(fan_in), seed)


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


def _seeded(initializer, seed):
    initializer._seed = int(seed)
    return initializer
