# SPDX-License-Identifier: Apache-2.0
"""Train on one machine, then on many, with the scripts you have.

The package is a thin layer over libfleet: it composes and checks arguments; all
computing happens in C++.
"""

from ._core import Tensor
