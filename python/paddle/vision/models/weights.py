# SPDX-License-Identifier: Apache-2.0
"""Trained weights that users have put into Paddle's cache folder."""

import os

import paddle

WEIGHTS_HOME = os.path.join(
    os.path.expanduser("~"), ".cache", "paddle", "hapi", "weights"
)
_URL = "https://paddle-hapi.bj.bcebos.com/models/"


def load_pretrained(model, file_name):
    """Loads the weights in `file_name` of WEIGHTS_HOME into `model`.

    Nothing is downloaded: FileNotFoundError says which file to put where.
    """
    path = os.path.join(WEIGHTS_HOME, file_name)
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{type(model).__name__}, pretrained: put {file_name}, as found at "
            f"{_URL}{file_name}, at {path}"
        )
    model.set_state_dict(paddle.load(path))
