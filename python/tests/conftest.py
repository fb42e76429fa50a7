# SPDX-License-Identifier: Apache-2.0
"""Every op call of every test also compares the op's shape rule with its kernel."""

import paddle

paddle._core.check_shape_rules(True)
