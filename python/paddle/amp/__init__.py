# SPDX-License-Identifier: Apache-2.0
"""Eager training in mixed precision. Programs have paddle.static.amp.

scaler = paddle.amp.GradScaler(init_loss_scaling=1024)
with paddle.amp.auto_cast():
    loss = net(x)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
optimizer.clear_grad()
"""

from .auto_cast import amp_guard, auto_cast, decorate
from .grad_scaler import AmpScaler, GradScaler

__all__ = ["AmpScaler", "GradScaler", "amp_guard", "auto_cast", "decorate"]
