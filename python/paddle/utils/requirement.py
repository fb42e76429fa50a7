# SPDX-License-Identifier: Apache-2.0
"""The version that a script asks for."""

import re


def require_version(min_version, max_version=None):
    """Raises unless paddle.__version__ lies between the two, both included."""
    for what, version in (("min_version", min_version), ("max_version", max_version)):
        if version is None and what == "max_version":
            continue
        if not isinstance(version, str):
            raise TypeError(f"require_version: {what} must be a string: {version!r}")
        if not re.fullmatch(r"\d+(\.\d+){0,3}", version):
            raise ValueError(f"require_version: {what} is no version: {version!r}")
    import paddle

    here = _numbers(paddle.__version__)
    low = _numbers(min_version)
    high = here if max_version is None else _numbers(max_version)
    if not low <= here <= high:
        wanted = f"{min_version} or later"
        if max_version is not None:
            wanted = f"{min_version} to {max_version}"
        raise Exception(
            f"this is paddle {paddle.__version__}, but {wanted} is required"
        )


def _numbers(version):
    digits = [int(part) for part in re.findall(r"\d+", version)[:4]]
    return digits + [0] * (4 - len(digits))
