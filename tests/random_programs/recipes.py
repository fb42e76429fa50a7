# SPDX-License-Identifier: Apache-2.0
"""The table of recipes: how a valid call of each op is drawn.

A recipe is a function `recipe(d, op)` that adds lines to the drawing `d`, or raises
`Reject`. Every definition has one here, or a reason in `definitions.py`.
"""

RECIPES = {}  # by the name of the op
FACES = []  # lines by the API that users call: layers, operators, control flow


def recipe(*ops):
    """Registers a function for some ops."""

    def register(function):
        for op in ops:
            assert op not in RECIPES, op
            RECIPES[op] = function
        return function

    return register


def face(function):
    """Registers a function `face(d)` that is no single op's."""
    FACES.append(function)
    return function


def load():
    """All recipes, from their files."""
    import recipes_dense  # noqa: F401
    import recipes_faces  # noqa: F401
    import recipes_loss  # noqa: F401
    import recipes_make  # noqa: F401
    import recipes_math  # noqa: F401
    import recipes_order  # noqa: F401
    import recipes_rows  # noqa: F401
    import recipes_shape  # noqa: F401
    import recipes_window  # noqa: F401

    return RECIPES, FACES
