# SPDX-License-Identifier: Apache-2.0
"""Kinds of jobs."""


class Mode:
    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3
