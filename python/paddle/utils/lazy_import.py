# SPDX-License-Identifier: Apache-2.0
"""Modules that only some functions need."""

import importlib


def try_import(module_name, err_msg=None):
    """The module, or an ImportError that says how to get it."""
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        raise ImportError(
            err_msg
            or f"this needs the module {module_name}, which is not there: {error}; "
            "install it by pip"
        ) from error
