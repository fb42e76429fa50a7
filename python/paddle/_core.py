# SPDX-License-Identifier: Apache-2.0
"""Loads the engine: the extension module and the libraries beside it."""

import importlib.machinery
import importlib.util
import os
import re
import sys

_LIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib")


def _read(*path):
    with open(os.path.join(*path), encoding="utf8") as file:
        return file.read()


def _torch_version():
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ImportError(
            "paddle needs the torch package for its LibTorch, and there is none in "
            f"this Python ({sys.executable}): pip install torch"
        )
    text = _read(os.path.dirname(spec.origin), "version.py")
    return re.search(r"__version__ = '([^']*)'", text).group(1)


def _load():
    found = _torch_version()
    built = _read(_LIB, "torch_version").strip()
    if found != built:
        raise ImportError(
            f"paddle was built with torch {built}, but this Python has {found}. "
            f"Install torch=={built}, or build paddle again."
        )
    finder = importlib.machinery.PathFinder()
    spec = finder.find_spec("_core", [_LIB])
    if spec is None or not os.path.isdir(os.path.join(_LIB, "generated")):
        raise ImportError(
            f"the engine is missing in {_LIB}, or older than the package: run make in "
            "the source tree"
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_module = _load()
_module.__name__ = __name__
sys.modules[__name__] = _module
