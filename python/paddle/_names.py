# SPDX-License-Identifier: Apache-2.0
"""`__all__`, from what a module holds."""

from types import ModuleType

_TOOLS = ("paddle._later",)


def own(names, *hidden):
    """The public functions and classes that the module with the globals `names`
    defines, without those that are `hidden`: helpers of other modules."""
    home = names["__name__"]
    return [
        name
        for name, value in names.items()
        if name[0] != "_"
        and getattr(value, "__module__", None) == home
        and name not in hidden
    ]


def gathered(names, modules="", hidden=""):
    """The public names of a module that gathers those of others, without those in the
    text `hidden`: what it works with. Of the modules in it only those in the text
    `modules`: Python leaves there what was imported on the way."""
    modules, hidden = modules.split(), hidden.split()
    return [
        name
        for name, value in names.items()
        if name[0] != "_"
        and name not in hidden
        and (name in modules or not isinstance(value, ModuleType))
        and getattr(value, "__module__", None) not in _TOOLS
    ]
