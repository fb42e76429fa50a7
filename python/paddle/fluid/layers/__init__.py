# SPDX-License-Identifier: Apache-2.0
"""Functions with their old names and arguments."""

from ... import _names
from ..._later import explain
from . import (
    collective,
    control_flow,
    detection,
    io,
    learning_rate_scheduler,
    loss,
    metric_op,
    nn,
    ops,
    parametric,
    sequence,
    tensor,
)
from .control_flow import *  # noqa: F403
from .detection import *  # noqa: F403
from .io import *  # noqa: F403
from .learning_rate_scheduler import *  # noqa: F403
from .loss import *  # noqa: F403
from .metric_op import *  # noqa: F403
from .nn import *  # noqa: F403
from .ops import *  # noqa: F403
from .parametric import *  # noqa: F403
from .sequence import *  # noqa: F403
from .tensor import *  # noqa: F403

__getattr__ = explain(
    __name__,
    recurrent_blocks="IfElse StaticRNN DynamicRNN dynamic_lstm dynamic_gru hsigmoid",
)

__all__ = _names.gathered(globals())
