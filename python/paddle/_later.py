# SPDX-License-Identifier: Apache-2.0
"""Names that come later: when they are first used, or with what they belong to.

Both kinds are a module's `__getattr__`.
"""

import importlib
import sys


def on_first_use(module, names, otherwise=None):
    """Loads what `names` lists when it is first asked for, to keep imports fast; dir()
    of the module shows it before.

    `names` maps a name to (module,) or (module, attribute), the module relative to
    the package of `module`. `otherwise(name)` answers for all other names.
    """
    held = vars(sys.modules[module])

    def load(name):
        if name in names:
            where, *attribute = names[name]
            found = importlib.import_module(where, held["__package__"])
            return getattr(found, attribute[0]) if attribute else found
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    held["__dir__"] = lambda: sorted({*held, *names})
    return load


def explain(module, **names):
    """Names that this version does not have yet, each with the reason: those listed
    raise NotImplementedError and say so, others AttributeError as usual.

    The key of `names` is the reason, with underscores, the value a text of names, or
    "*" for every name.
    """
    reasons = {
        name: reason.replace("_", " ")
        for reason, text in names.items()
        for name in text.split()
    }

    def missing(name):
        special = name.startswith("__")
        reason = reasons.get(name) or (not special and reasons.get("*"))
        if reason:
            raise NotImplementedError(
                f"{module}.{name} belongs to {reason}, which this version of paddle "
                "does not have yet"
            )
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return missing
