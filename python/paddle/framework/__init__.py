# SPDX-License-Identifier: Apache-2.0
"""What everything else stands on: types, places, modes, seeds, saved files."""

from .dtype import get_default_dtype, set_default_dtype
from .io import load_state as load
from .io import save
from .mode import in_dynamic_mode
from .param_attr import ParamAttr, WeightNormParamAttr
from .place import CPUPlace, CUDAPinnedPlace, CUDAPlace
from .random import get_cuda_rng_state, seed, set_cuda_rng_state
