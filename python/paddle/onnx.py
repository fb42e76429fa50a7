# SPDX-License-Identifier: Apache-2.0
"""Models in the format of ONNX. Not yet there: every name says so."""

from ._later import explain

__getattr__ = explain(__name__, the_export_of_models="*")
