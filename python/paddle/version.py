# SPDX-License-Identifier: Apache-2.0
"""Which Paddle scripts see here, and what this build is.

`full_version` is the version of the API, which scripts compare with; `fleet_version`
is the package's own.
"""

from . import _core

full_version = "2.0.0"
major, minor, patch = full_version.split(".")
rc = 0
istaged = True
with_mkl = "ON"
commit = "Unknown"
fleet_version = "0.1.0"


def cuda():
    """The version of CUDA, as in '13.0', or 'False' without one."""
    number = _core.cuda_version()
    return f"{number // 1000}.{number % 1000 // 10}" if number else "False"


def cudnn():
    """The version of cuDNN, as in '9.1.0', or 'False' without one."""
    number = _core.cudnn_version()
    if not number:
        return "False"
    # 9.1.0 is 90100, but 8.9.2 is 8902.
    base = 10000 if number >= 90000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"


def mkl():
    """Whether matrix products go through a tuned library."""
    return with_mkl


def show():
    """Prints what this build is."""
    print(f"full_version: {full_version}")
    print(f"fleet_version: {fleet_version}")
    print(f"commit: {commit}")
    print(f"cuda: {cuda()}")
    print(f"cudnn: {cudnn()}")
