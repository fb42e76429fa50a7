# SPDX-License-Identifier: Apache-2.0
"""Tools for the parameters of layers: reparameterisation, vectors, clipping."""

from ... import _names
from .clip_grad import clip_grad_norm_, clip_grad_value_
from .spectral_norm_hook import spectral_norm
from .vector import parameters_to_vector, vector_to_parameters
from .weight_norm_hook import remove_weight_norm, weight_norm

__all__ = _names.gathered(globals())
