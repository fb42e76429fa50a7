# SPDX-License-Identifier: Apache-2.0
"""Trains a model in one process: eagerly, or as a program with or without plans."""

import contextlib
import dataclasses
import re

import numpy as np
import paddle
import paddle.nn.functional as F
from model import feed_arrays, layer_array, parameter_array
from paddle import _core, _ops, nn, static


@dataclasses.dataclass
class Trace:
    losses: list
    parameters: dict  # values at the end, by name
    fetched: dict  # values of the last step, by name
    trained: frozenset = frozenset()  # parameters that an optimizer changes
    ops: frozenset = frozenset()  # definitions that ran
    gradients: dict = dataclasses.field(default_factory=dict)  # of the first step


def environment(dtype):
    """What a line of a model may mention."""
    return {
        "paddle": paddle,
        "F": F,
        "nn": nn,
        "ops": _ops,
        "static": static,
        "np": np,
        "DTYPE": getattr(paddle, dtype),
        "I64": paddle.int64,
        "I32": paddle.int32,
        "BOOL": paddle.bool,
    }


def make_parameters(model, env, dtype):
    """Parameters and layers, into `env`; gives them by name."""
    made = {}
    for parameter in model.parameters:
        value = paddle.create_parameter(
            list(parameter.shape),
            dtype,
            attr=paddle.ParamAttr(name=parameter.name, trainable=parameter.trained),
        )
        env[parameter.name] = made[parameter.name] = value
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        exec(model.layer_code(), env)
    finally:
        paddle.set_default_dtype(before)
    for line in model.layers:
        layer = env[line.outputs[0]]
        for kind, values in (("p", layer.parameters()), ("b", layer.buffers())):
            for i, value in enumerate(values):
                made[f"{line.outputs[0]}.{kind}{i}"] = value
    return made


def first_values(model, made, dtype):
    """What the parameters begin with. Buffers of layers keep theirs."""
    values = {p.name: parameter_array(model, p, dtype) for p in model.parameters}
    for name, value in made.items():
        if ".p" in name:
            values[name] = layer_array(model, name, list(value.shape), dtype)
    return values


def make_optimizer(model, env, trained):
    """(optimizer, scheduler or None)."""
    env["rate"] = eval(model.rate, env)
    env["PARAMETERS"] = trained
    scheduler = None if isinstance(env["rate"], float) else env["rate"]
    return eval(model.optimizer, env), scheduler


def seed_of(model):
    return model.number % 10007 + 1


def _trained(made):
    return frozenset(name for name, v in made.items() if not v.stop_gradient)


def _array(value):
    return np.array(value.numpy())


def _changed(arrays, change):
    """`change(array)` of all floating-point arrays."""
    if change is None:
        return arrays
    return {
        name: change(a).astype(a.dtype) if a.dtype.kind == "f" else a
        for name, a in arrays.items()
    }


def _rounded_code(model):
    """Every value that a line gives is `rounded`, and every mention of a value is a
    `used` one. Tables that give gradients of rows are parameters and stay so."""
    values = {out for line in model.lines for out in line.outputs}
    values |= {item.name for item in (*model.parameters, *model.feeds)}
    pattern = re.compile(r"\b(" + "|".join(values) + r")\b")

    def with_uses(text):
        return text if "sparse=True" in text else pattern.sub(r"used(\1)", text)

    lines = []
    for line in model.lines:
        lines.append(f"{', '.join(line.outputs)} = {with_uses(line.text)}")
        lines += [f"{name} = rounded({name})" for name in line.outputs]
    terms = " + ".join(f"rounded({with_uses(term)})" for term in model.terms)
    return "\n".join([*lines, f"loss = {terms}"])


def eager(model, batches=None, wrap=None, dtype=None, rounding=None):
    """Trains with `batches`, by default those of one process. `wrap(forward, made,
    layers, optimizer)` gives those of a job; `rounding` makes errors on the way."""
    dtype = dtype or model.dtype
    paddle.disable_static()
    env = environment(dtype)
    made = make_parameters(model, env, dtype)
    change = None if rounding is None else rounding.numbers
    first = _changed(first_values(model, made, dtype), change)
    for name, array in first.items():
        made[name].set_value(array)
    trained = [v for v in made.values() if not v.stop_gradient]
    optimizer, scheduler = make_optimizer(model, env, trained)
    if rounding is None:
        compiled = compile(model.code(), f"<model {model.number}>", "exec")
    else:
        env["rounded"], env["used"] = rounding.result, rounding.use
        compiled = compile(_rounded_code(model), f"<model {model.number}>", "exec")

    def forward():
        with contextlib.nullcontext() if rounding is None else rounding.inside():
            exec(compiled, env)
        return env["loss"]

    if wrap is not None:
        layers = {line.outputs[0]: env[line.outputs[0]] for line in model.layers}
        forward, optimizer = wrap(forward, made, layers, optimizer)
    batches = batches or [feed_arrays(model, s, dtype) for s in range(model.steps)]
    losses, fetched, gradients = [], {}, {}
    paddle.seed(seed_of(model))
    for step, batch in enumerate(batches):
        for name, array in _changed(batch, change).items():
            env[name] = paddle.to_tensor(array)
        loss = forward()
        if rounding is not None:
            with rounding.scales(trained):
                loss.backward(retain_graph=True)
            optimizer.clear_grad()
        loss.backward()
        if rounding is not None:
            rounding.finish(trained)
        if step == 0:
            gradients = {
                name: _array(v.grad)
                for name, v in made.items()
                if not v.stop_gradient and v.grad is not None
            }
        # A view of a parameter changes with it.
        losses.append(_array(loss))
        fetched = {name: _array(env[name]) for name in model.fetched}
        optimizer.step()
        optimizer.clear_grad()
        if scheduler is not None:
            scheduler.step()
    values = {name: _array(v) for name, v in made.items()}
    return Trace(losses, values, fetched, _trained(made), gradients=gradients)


def build(model, dtype, minimize=None):
    """The model in the default programs. `minimize(optimizer, loss)` is that of a job.
    Gives (env, parameters, scheduler)."""
    env = environment(dtype)
    for feed in model.feeds:
        shape = list(feed.shape)
        if feed.rows and model.free_batch:
            shape[0] = None
        env[feed.name] = static.data(feed.name, shape, feed.dtype or dtype)
    made = make_parameters(model, env, dtype)
    exec(compile(model.code(), f"<model {model.number}>", "exec"), env)
    optimizer, scheduler = make_optimizer(model, env, None)
    if minimize is None:
        optimizer.minimize(env["loss"])
    else:
        minimize(optimizer, env["loss"])
    return env, made, scheduler


def ops_of(program):
    return frozenset(op.type for block in program.blocks for op in block.ops)


def make_executor(planning, fusing=True):
    executor = static.Executor(paddle.CPUPlace())
    executor._engine = _core.Executor("cpu", planning, fusing)
    return executor


def set_values(values, made, scope):
    for name, array in values.items():
        scope.find_var(made[name].name).get_tensor().set(array)


def program(
    model,
    planning,
    batches=None,
    dtype=None,
    fetch_all=True,
    minimize=None,
    fusing=True,
):
    """Trains the model as a program; fetches the loss and, with `fetch_all`, what the
    model names."""
    dtype = dtype or model.dtype
    paddle.enable_static()
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    try:
        with (
            static.program_guard(main, startup),
            static.scope_guard(scope),
            paddle.utils.unique_name.guard(),
        ):
            env, made, scheduler = build(model, dtype, minimize)
            executor = make_executor(planning, fusing)
            executor.run(startup)
            set_values(first_values(model, made, dtype), made, scope)
            paddle.seed(seed_of(model))
            names = model.fetched if fetch_all else ()
            fetches = [env["loss"], *[env[n] for n in names]]
            losses, values = [], []
            batches = batches or [
                feed_arrays(model, s, dtype) for s in range(model.steps)
            ]
            for batch in batches:
                values = executor.run(main, feed=batch, fetch_list=fetches)
                losses.append(np.array(values[0]))
                if scheduler is not None:
                    scheduler.step()
            end = {
                name: np.array(scope.find_var(v.name).get_tensor())
                for name, v in made.items()
            }
            fetched = {n: np.array(v) for n, v in zip(names, values[1:])}
            return Trace(
                losses, end, fetched, _trained(made), ops_of(main) | ops_of(startup)
            )
    finally:
        paddle.disable_static()
