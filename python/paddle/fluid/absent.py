# SPDX-License-Identifier: Apache-2.0
"""Names of Paddle 1.x that this version does not have, each with the reason."""


def explain(module, **names):
    """A module's `__getattr__`: the names listed under a reason raise
    NotImplementedError and say so, others AttributeError as usual.

    The key of `names` is the reason, with underscores, the value a text of names.
    """
    reasons = {
        name: reason.replace("_", " ")
        for reason, text in names.items()
        for name in text.split()
    }

    def missing(name):
        if name in reasons:
            raise NotImplementedError(
                f"{module}.{name} belongs to {reasons[name]}, which this version of "
                "paddle does not have yet"
            )
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return missing
