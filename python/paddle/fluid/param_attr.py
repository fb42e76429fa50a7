# SPDX-License-Identifier: Apache-2.0
from ..framework.param_attr import ParamAttr, WeightNormParamAttr
