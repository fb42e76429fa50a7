# SPDX-License-Identifier: Apache-2.0
"""`python -m paddle.distributed.launch` is the program fleetrun."""

import os
import sys
import sysconfig

__all__ = ["launch"]


def _find_fleetrun():
    """The fleetrun of this Python, or else the one that was built with the engine."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    engine = os.path.realpath(os.path.join(package, "_lib"))
    folders = [
        os.path.dirname(sys.executable),
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", f"{os.name}_user"),
        os.path.join(os.path.dirname(engine), "bin"),
    ]
    for folder in folders:
        program = os.path.join(folder, "fleetrun")
        if os.access(program, os.X_OK):
            return program
    raise FileNotFoundError(
        "fleetrun is in none of " + ", ".join(folders) + ": build paddle with CLI11"
    )


def launch(arguments=None):
    """Becomes fleetrun, with this Python for scripts; does not return.

    Args:
        arguments: what fleetrun is given, by default the arguments of this program.
    """
    program = _find_fleetrun()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    os.environ["FLEET_PYTHON"] = sys.executable
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, ["fleetrun", *arguments])
