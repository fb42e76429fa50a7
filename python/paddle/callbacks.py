# SPDX-License-Identifier: Apache-2.0
"""What paddle.Model calls while it trains, evaluates and predicts."""

from ._later import explain
from .hapi import callbacks as _callbacks
from .hapi.callbacks import *  # noqa: F403

__all__ = [*_callbacks.__all__]

__getattr__ = explain(__name__, logs_of_other_packages="VisualDL WandbCallback")
