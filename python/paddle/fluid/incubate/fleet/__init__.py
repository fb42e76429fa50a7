# SPDX-License-Identifier: Apache-2.0
"""The older Fleet: paddle.distributed.fleet as Paddle 1.x spells it."""
