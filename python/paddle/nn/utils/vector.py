# SPDX-License-Identifier: Apache-2.0
"""Parameters as one long vector, and back."""

import paddle

from ...autograd import no_grad


def parameters_to_vector(parameters, name=None):
    """All parameters, flattened and joined, in their order."""
    return paddle.concat([paddle.reshape(p, [-1]) for p in parameters], axis=0)


def vector_to_parameters(vec, parameters, name=None):
    """Writes the parts of `vec` into the parameters, in place."""
    parameters = list(parameters)
    total = sum(p.size for p in parameters)
    if vec.size != total:
        raise ValueError(
            f"vector_to_parameters: the vector has {vec.size} elements, but the "
            f"parameters have {total}"
        )
    start = 0
    with no_grad():
        for p in parameters:
            part = vec[start : start + p.size]
            p.set_value(paddle.reshape(part, p.shape))
            start += p.size
