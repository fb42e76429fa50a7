# SPDX-License-Identifier: Apache-2.0
"""What everything else stands on: types, places, modes, seeds, saved files."""

from .. import _later
from .dtype import get_default_dtype, set_default_dtype
from .mode import in_dynamic_mode
from .param_attr import ParamAttr, WeightNormParamAttr
from .place import CPUPlace, CUDAPinnedPlace, CUDAPlace
from .random import get_cuda_rng_state, seed, set_cuda_rng_state

# numpy, which saved files need, takes a good part of the time of `import paddle`.
__getattr__ = _later.on_first_use(
    __name__, {"load": (".io", "load_state"), "save": (".io", "save"), "io": (".io",)}
)
