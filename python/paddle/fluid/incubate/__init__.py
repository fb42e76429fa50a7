# SPDX-License-Identifier: Apache-2.0
from . import data_generator, fleet

__all__ = ["data_generator", "fleet"]
