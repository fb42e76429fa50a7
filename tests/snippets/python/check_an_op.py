# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F401
"""docs/howto/add-an-op.md: the line that tests an op."""

import paddle.nn.functional as F
import torch
from op_check import check, floats

# SNIPPET 1
