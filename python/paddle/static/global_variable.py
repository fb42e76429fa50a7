# SPDX-License-Identifier: Apache-2.0
"""Variables of a program that outlive a run and are not trained."""

from ..framework.dtype import convert
from ..framework.mode import require_static
from ..nn.initializer import Constant
from ..utils import unique_name
from .program import default_main_program, default_startup_program

__all__ = ["create_global_var"]


def create_global_var(
    shape, value, dtype, persistable=False, force_cpu=False, name=None
):
    """A variable of block 0 that the startup program fills with `value`. It always
    outlives a run, as otherwise the startup program would fill it for nobody."""
    require_static("paddle.static.create_global_var")
    name = unique_name.generate("_generated_var") if name is None else name
    kind = convert(dtype)
    dims = [int(n) for n in shape]
    block = default_main_program().global_block()
    if block.has_var(name):
        return block.var(name)
    flags = {"persistable": True, "stop_gradient": True}
    variable = block._add_variable(name, dims, kind, flags)
    startup = default_startup_program().global_block()
    if not startup.has_var(name):
        startup._add_variable(name, dims, kind, flags)
        Constant(value)(variable, startup)
    return variable
