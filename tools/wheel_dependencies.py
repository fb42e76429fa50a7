# SPDX-License-Identifier: Apache-2.0
"""Tells scikit-build-core what a wheel depends on: the torch it is built with."""

import importlib.metadata


def dynamic_metadata(settings, project):
    # Exactly that one, with the part after '+' where pip knows it by such a name:
    # 2.13.0+cpu and 2.13.0+cu130 are different libraries.
    torch = importlib.metadata.version("torch")
    return {"dependencies": [f"torch=={torch}", "numpy>=1.26,<2.4", "Pillow"]}


def dynamic_wheel(settings):
    """A wheel made from the source distribution may meet another torch."""
    return {"dependencies": True}
