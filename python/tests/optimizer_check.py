# SPDX-License-Identifier: Apache-2.0
"""What the tests of optimizers share: the rules in numpy.

Each rule is a generator: it yields the parameter's values and is sent the next gradient.
"""

import numpy as np
import paddle
from paddle import optimizer

RATE = 0.1
# Six steps of about 0.1 each; float32 rounds to 6e-8 of values near 1, and Paddle keeps
# the powers of Adam's betas in the parameter's type, which costs 6e-6 of a step.
TOLERANCE = {"float32": dict(rtol=1e-5, atol=5e-6), "float64": dict(rtol=1e-12)}


def numbers(shape, seed, dtype="float32"):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def parameter(value, name):
    p = paddle.to_tensor(value, stop_gradient=False)
    p.name = name
    return p


def sgd(p, lr):
    while True:
        g = yield p
        p = p - lr * g


def momentum(p, lr, mu=0.9, nesterov=False):
    v = np.zeros_like(p)
    while True:
        g = yield p
        v = mu * v + g
        p = p - lr * (g + mu * v if nesterov else v)


def adam(p, lr, beta1=0.9, beta2=0.999, epsilon=1e-8, decay=0.0):
    m = v = np.zeros_like(p)
    t = 0
    while True:
        g = yield p
        t += 1
        p = p - lr * decay * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p = p - lr * m_hat / (np.sqrt(v_hat) + epsilon)


def adagrad(p, lr, epsilon=1e-6, initial=0.0):
    s = np.full_like(p, initial)
    while True:
        g = yield p
        s = s + g**2
        p = p - lr * g / (np.sqrt(s) + epsilon)


def adamax(p, lr, beta1=0.9, beta2=0.999, epsilon=1e-8):
    m = u = np.zeros_like(p)
    t = 0
    while True:
        g = yield p
        t += 1
        m = beta1 * m + (1 - beta1) * g
        u = np.maximum(np.abs(g), beta2 * u + epsilon)
        p = p - lr / (1 - beta1**t) * m / u


def rmsprop(p, lr, rho=0.95, epsilon=1e-6, mu=0.0, centered=False):
    square = mean = step = np.zeros_like(p)
    while True:
        g = yield p
        square = rho * square + (1 - rho) * g**2
        mean = rho * mean + (1 - rho) * g
        spread = square - mean**2 if centered else square
        step = mu * step + lr * g / np.sqrt(spread + epsilon)
        p = p - step


def adadelta(p, lr, epsilon=1e-6, rho=0.95):
    grads = updates = np.zeros_like(p)
    while True:
        g = yield p
        grads = rho * grads + (1 - rho) * g**2
        d = np.sqrt(updates + epsilon) / np.sqrt(grads + epsilon) * g
        updates = rho * updates + (1 - rho) * d**2
        p = p - lr * d


def lamb(p, lr, decay=0.01, beta1=0.9, beta2=0.999, epsilon=1e-6, adapt=True):
    m = v = np.zeros_like(p)
    t = 0
    while True:
        g = yield p
        t += 1
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        d = (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon) + decay * p
        ratio = np.linalg.norm(p) / np.linalg.norm(d) if adapt else 1.0
        p = p - lr * ratio * d


def lars(p, lr, mu=0.9, coeff=0.001, decay=0.0005, epsilon=0.0):
    v = np.zeros_like(p)
    while True:
        g = yield p
        size = np.linalg.norm(p)
        rate = lr
        if decay > 0:
            rate *= coeff * size / (np.linalg.norm(g) + decay * size + epsilon)
        v = mu * v + rate * (g + decay * p)
        p = p - v


def ftrl(p, lr, l1=0.0, l2=0.0, power=-0.5):
    l1, l2 = l1 + 1e-10, l2 + 1e-10  # as Paddle takes them
    n = z = np.zeros_like(p)
    while True:
        g = yield p
        grown = n + g**2
        z = z + g - (grown**-power - n**-power) / lr * p
        n = grown
        p = np.where(
            np.abs(z) > l1, (l1 * np.sign(z) - z) / (n**-power / lr + 2 * l2), 0.0
        )


RULES = {
    "SGD": (optimizer.SGD, {}, sgd, {}),
    "Momentum": (optimizer.Momentum, dict(momentum=0.8), momentum, dict(mu=0.8)),
    "Momentum-nesterov": (
        optimizer.Momentum,
        dict(use_nesterov=True),
        momentum,
        dict(nesterov=True),
    ),
    "Adam": (optimizer.Adam, {}, adam, {}),
    "Adam-large-epsilon": (
        optimizer.Adam,
        dict(beta1=0.7, beta2=0.9, epsilon=0.1),
        adam,
        dict(beta1=0.7, beta2=0.9, epsilon=0.1),
    ),
    "AdamW": (optimizer.AdamW, dict(weight_decay=0.2), adam, dict(decay=0.2)),
    "Adagrad": (
        optimizer.Adagrad,
        dict(epsilon=0.01, initial_accumulator_value=0.3),
        adagrad,
        dict(epsilon=0.01, initial=0.3),
    ),
    "Adamax": (optimizer.Adamax, dict(epsilon=0.01), adamax, dict(epsilon=0.01)),
    "RMSProp": (optimizer.RMSProp, dict(epsilon=0.01), rmsprop, dict(epsilon=0.01)),
    "RMSProp-centered": (
        optimizer.RMSProp,
        dict(rho=0.9, epsilon=0.1, momentum=0.3, centered=True),
        rmsprop,
        dict(rho=0.9, epsilon=0.1, mu=0.3, centered=True),
    ),
    "Adadelta": (optimizer.Adadelta, dict(epsilon=0.01), adadelta, dict(epsilon=0.01)),
    "Lamb": (optimizer.Lamb, dict(lamb_weight_decay=0.1), lamb, dict(decay=0.1)),
    "Lamb-without-decay": (
        optimizer.Lamb,
        dict(lamb_weight_decay=0.0),
        lamb,
        dict(decay=0.0, adapt=False),
    ),
    "Lamb-always-adapting": (
        optimizer.Lamb,
        dict(lamb_weight_decay=0.0, always_adapt=True),
        lamb,
        dict(decay=0.0),
    ),
    "Lars": (
        optimizer.Lars,
        dict(lars_coeff=0.5, lars_weight_decay=0.1, epsilon=0.01),
        lars,
        dict(coeff=0.5, decay=0.1, epsilon=0.01),
    ),
    "Ftrl": (optimizer.Ftrl, dict(l1=0.1, l2=0.2), ftrl, dict(l1=0.1, l2=0.2)),
    "Ftrl-power": (
        optimizer.Ftrl,
        dict(l1=0.1, l2=0.2, lr_power=-0.7),
        ftrl,
        dict(l1=0.1, l2=0.2, power=-0.7),
    ),
}


def follow(opt, parameters, references, extra, steps=6):
    """Takes steps with both sides on the same gradients; they must agree on each."""
    dtype = str(parameters[0].numpy().dtype)
    values = [next(r) for r in references]
    for t in range(steps):
        grads = [numbers(p.shape, 100 * t + i, dtype) for i, p in enumerate(parameters)]
        for p, g in zip(parameters, grads):
            p.grad = paddle.to_tensor(g)
        opt.step()
        opt.clear_grad()
        for i, r in enumerate(references):
            values[i] = r.send(grads[i].astype("float64") + extra(values[i]))
            np.testing.assert_allclose(
                parameters[i].numpy(),
                values[i],
                **TOLERANCE[dtype],
                err_msg=f"parameter {i} after step {t + 1}",
            )
