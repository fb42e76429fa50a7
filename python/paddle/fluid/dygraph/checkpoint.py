# SPDX-License-Identifier: Apache-2.0
"""Saving under a common prefix: `.pdparams` for layers, `.pdopt` for optimizers."""

import os

import paddle

from ...framework.parameter import Parameter


def save_dygraph(state_dict, model_path):
    """Writes a layer's state to model_path.pdparams, an optimizer's to
    model_path.pdopt."""
    if not os.path.basename(model_path):
        raise ValueError(f"save_dygraph: {model_path!r} is a folder, not a prefix")
    is_layer = any(isinstance(value, Parameter) for value in state_dict.values())
    paddle.save(state_dict, model_path + (".pdparams" if is_layer else ".pdopt"))


def load_dygraph(model_path, **configs):
    """(parameters, optimizer state) of what lies at the prefix; None for a file
    that is not there. The values are numpy arrays.

    keep_name_table: accepted; there is no such table in what is returned.
    """
    for name in configs:
        if name != "keep_name_table":
            raise TypeError(f"load_dygraph has no argument '{name}'")
    for suffix in (".pdparams", ".pdopt"):
        model_path = model_path.removesuffix(suffix)
    found = [
        paddle.load(model_path + suffix, return_numpy=True)
        if os.path.exists(model_path + suffix)
        else None
        for suffix in (".pdparams", ".pdopt")
    ]
    if found == [None, None]:
        raise FileNotFoundError(
            f"load_dygraph: there is neither {model_path}.pdparams nor "
            f"{model_path}.pdopt"
        )
    return tuple(found)
