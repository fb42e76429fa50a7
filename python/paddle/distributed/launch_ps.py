# SPDX-License-Identifier: Apache-2.0
"""`python -m paddle.distributed.launch_ps`: fleetrun for parameter servers.

Unless told otherwise it starts two workers and two servers and logs to logs/.
"""

import sys

from .launch import launch as _launch

__all__ = ["launch"]


def launch():
    """Becomes fleetrun; does not return."""
    _launch(["--run_mode=ps", "--log_dir=logs", *sys.argv[1:]])


if __name__ == "__main__":
    launch()
