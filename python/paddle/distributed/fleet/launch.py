# SPDX-License-Identifier: Apache-2.0
"""`python -m paddle.distributed.fleet.launch` is the program fleetrun."""

from ..launch import launch

__all__ = ["launch"]

if __name__ == "__main__":
    launch()
