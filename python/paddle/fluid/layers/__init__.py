# SPDX-License-Identifier: Apache-2.0
"""Functions with their old names and arguments.

What makes parameters or programs (`fc`, `data`, `conv2d`) belongs to static graphs.
"""

from ..._later import explain
from . import loss, nn, ops, tensor
from .loss import *  # noqa: F403
from .nn import *  # noqa: F403
from .ops import *  # noqa: F403
from .tensor import *  # noqa: F403

__all__ = [*loss.__all__, *nn.__all__, *ops.__all__, *tensor.__all__]

__getattr__ = explain(
    __name__,
    static_graphs="data fc embedding conv2d conv3d conv2d_transpose batch_norm "
    "layer_norm group_norm instance_norm nce hsigmoid auc py_reader read_file "
    "create_py_reader_by_data double_buffer create_parameter create_global_var "
    "create_tensor Print While Switch IfElse StaticRNN DynamicRNN cond case "
    "switch_case while_loop control_flow learning_rate_scheduler collective "
    "piecewise_decay exponential_decay natural_exp_decay inverse_time_decay "
    "polynomial_decay cosine_decay noam_decay linear_lr_warmup "
    "fill_constant_batch_size_like sequence_pool sequence_conv sequence_expand "
    "sequence_softmax dynamic_lstm dynamic_gru py_func autoincreased_step_counter",
)
