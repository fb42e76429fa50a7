# SPDX-License-Identifier: Apache-2.0
"""Every op call of every test also compares the op's shape rule with its kernel.

FLEET_TEST_DEVICE=gpu runs the tests on the GPU. Products are then computed in full
precision: TF32 keeps ten bits, fewer than the tolerances of the tests. FLEET_TEST_SEED=2
shows whether a test depends on the random numbers that it draws.
"""

import os
import random
import signal

import numpy as np
import paddle
import pytest

DEVICE = os.environ.get("FLEET_TEST_DEVICE", "cpu")
SEED = int(os.environ.get("FLEET_TEST_SEED", "1"))

# A run in the background ignores ^C and would hand that down to scripts of tests.
signal.signal(signal.SIGINT, signal.default_int_handler)

paddle._core.check_shape_rules(True)
paddle._core.allow_tf32(False)
paddle.set_device(DEVICE)
if paddle.get_device().split(":")[0] != DEVICE.split(":")[0]:
    raise RuntimeError(f"FLEET_TEST_DEVICE is {DEVICE}, which is not there")


@pytest.fixture(autouse=True)
def _beginning():
    """No test leaves its device to the next, and each draws the same random numbers
    in every run, whichever tests came before it."""
    paddle.set_device(DEVICE)
    paddle.seed(SEED)
    np.random.seed(SEED)
    random.seed(SEED)
