# SPDX-License-Identifier: Apache-2.0
"""Tells scikit-build-core what a wheel depends on: the torch it is built with."""

import importlib.metadata


def dynamic_metadata(field, settings):
    version = importlib.metadata.version("torch").split("+")[0]
    return [f"torch=={version}", "numpy>=1.26,<2.4", "Pillow"]
