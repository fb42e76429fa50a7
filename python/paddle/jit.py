# SPDX-License-Identifier: Apache-2.0
"""Programs made from eager code. Not yet there: every name says so."""

from ._later import explain

__getattr__ = explain(__name__, static_graphs="*")
