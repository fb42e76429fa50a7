# SPDX-License-Identifier: Apache-2.0
"""Defects that are known and not repaired yet. A model that fails and holds one is not a
new finding; the report counts them and prints what they are."""

import re

# (name, modes, a pattern in the text of model and failure, what is wrong); none now
KNOWN = ()


def known(model, mode, failure):
    """The name of a known defect that may be this failure, or None."""
    text = f"{model.layer_code()}\n{model.code()}\n{model.optimizer}\n{failure}"
    for name, modes, pattern, _ in KNOWN:
        if mode in modes and re.search(pattern, text):
            return name
    return None
