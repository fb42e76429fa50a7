# SPDX-License-Identifier: Apache-2.0
"""When gradients and parameters travel."""

from ....transpiler.distribute_transpiler import DistributedMode


class PSMode:
    """Who writes the programs of a job with servers."""

    TRANSPILER = 1
    PSLIB = 2
