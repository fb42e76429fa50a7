# SPDX-License-Identifier: Apache-2.0
"""Prints a model as a short script that needs nothing but the package."""

_SCRIPT = """\
# {title}
import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import _core, _ops as ops, nn, static

DTYPE, I64, I32, BOOL = paddle.{dtype}, paddle.int64, paddle.int32, paddle.bool


def feeds(step):
    rng = np.random.default_rng(step)
    return {{{feeds}}}


def model():
    rng = np.random.default_rng(7)
{create}
    parameters = {parameters}
    optimizer = {optimizer}
    return lambda {fed}: forward({arguments}), optimizer, parameters


def forward({arguments}):
{body}    return {loss}


def train(mode):
    paddle.enable_static() if mode != "eager" else paddle.disable_static()
    with static.program_guard(static.Program(), static.Program()):
        fed = {{{data}}} if mode != "eager" else {{}}
        compute, optimizer, parameters = model()
        executor = static.Executor(paddle.CPUPlace())
        executor._engine = _core.Executor("cpu", mode != "plain", mode == "planned")
        if mode != "eager":
            loss = compute(**fed)
            optimizer.minimize(loss)
            executor.run(static.default_startup_program())
        paddle.seed(1)
        for step in range({steps}):
            if mode == "eager":
                loss = compute(**{{n: paddle.to_tensor(a) for n, a in feeds(step).items()}})
                loss.backward()
                optimizer.step()
                optimizer.clear_grad()
                print(mode, step, loss.numpy())
            else:
                print(mode, step, executor.run(feed=feeds(step), fetch_list=[loss])[0])
        end = static.global_scope().find_var
        values = [
            p.numpy() if mode == "eager" else np.array(end(p.name).get_tensor())
            for p in parameters
        ]
        print(mode, "end", [f"{{np.linalg.norm(v):.9g}}" for v in values])


for mode in ("eager", "plain", "unfused", "planned"):
    train(mode)
"""


def _feed(feed, model):
    if feed.kind == "ids":
        made = f"rng.integers(0, {feed.high}, {list(feed.shape)})"
    else:
        made = f"rng.standard_normal({list(feed.shape)})"
    return f"{feed.name!r}: {made}.astype({feed.dtype or model.dtype!r})"


def _data(feed, model):
    shape = list(feed.shape)
    if feed.rows and model.free_batch:
        shape[0] = None
    dtype = feed.dtype or model.dtype
    return f"{feed.name!r}: static.data({feed.name!r}, {shape}, {dtype!r})"


def _parameter(parameter, model):
    value = f"rng.standard_normal({list(parameter.shape)}) * 0.5"
    if parameter.kind == "positive":
        value = f"np.abs(rng.standard_normal({list(parameter.shape)})) + 0.5"
    if parameter.kind == "zeros":
        value = f"np.zeros({list(parameter.shape)})"
    first = f"nn.initializer.Assign(({value}).astype({model.dtype!r}))"
    attr = f"paddle.ParamAttr(trainable={parameter.trained}, initializer={first})"
    shape = list(parameter.shape)
    return f"{parameter.name} = paddle.create_parameter({shape}, DTYPE, attr={attr})"


def script(model, title):
    """The source of a script that trains `model` eagerly, plainly and planned."""
    layers = [line.outputs[0] for line in model.layers]
    create = [_parameter(p, model) for p in model.parameters]
    create += [line.code() for line in model.layers]
    trained = ", ".join(p.name for p in model.parameters if p.trained)
    parameters = " + ".join([f"[{trained}]", *(f"{n}.parameters()" for n in layers)])
    optimizer = model.optimizer.replace("(rate,", f"({model.rate},")
    names = [f.name for f in model.feeds]
    arguments = [*names, *(p.name for p in model.parameters), *layers]
    return _SCRIPT.format(
        title=title.replace("\n", "\n# "),
        dtype=model.dtype,
        feeds=", ".join(_feed(f, model) for f in model.feeds),
        fed=", ".join(names),
        arguments=", ".join(arguments),
        create="\n".join(f"    {line}" for line in create),
        parameters=parameters,
        optimizer=optimizer.replace("PARAMETERS", "parameters"),
        body="".join(f"    {line.code()}\n" for line in model.lines),
        loss=" + ".join(model.terms),
        data=", ".join(_data(f, model) for f in model.feeds),
        steps=model.steps,
    )
