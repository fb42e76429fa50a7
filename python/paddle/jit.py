# SPDX-License-Identifier: Apache-2.0
"""Programs made of layers: saved as a model for inference, and loaded as a layer.

    paddle.jit.save(net, "models/net", input_spec=[InputSpec([None, 8])])
    net = paddle.jit.load("models/net")

A layer becomes a program by running its forward() once in static mode, with variables
in place of its parameters: what Python decides on the way is decided for good. Called
directly, a function or layer of `to_static` computes eagerly, as before.
"""

import contextlib
import functools
import inspect
import os

import numpy as np

from . import _core, _names
from ._core import Tensor, Variable, building
from .framework import pickle_reader
from .framework.parameter import Parameter
from .framework.place import device_of, get_device
from .nn import Layer
from .static import InputSpec
from .static import io as _static_io
from .static.executor import Executor, Scope
from .static.program import Program, prepare, program_guard
from .utils import unique_name

# ---- from a layer to a program


@contextlib.contextmanager
def _static_mode(program):
    prepare()
    on, building.on = building.on, True
    try:
        with program_guard(program, Program()), unique_name.guard():
            yield
    finally:
        building.on = on


@contextlib.contextmanager
def _as_variables(layer, program):
    """While it lasts, variables of `program` stand for the layer's tensors, which is in
    evaluation. Gives a dict from the variables' names to (tensor, name in the layer)."""
    block = program.global_block()
    tensors, replaced, modes, made = {}, [], [], {}
    for prefix, part in layer.named_sublayers(include_self=True):
        modes.append((part, part.training))
        for members in (part._parameters, part._buffers):
            for key, tensor in list(members.items()):
                if tensor is None or isinstance(tensor, Variable):
                    continue
                if id(tensor) not in made:
                    path = f"{prefix}.{key}" if prefix else key
                    made[id(tensor)] = variable = _declare(block, tensor, path)
                    tensors[variable.name] = (tensor, path)
                replaced.append((members, key, tensor))
                members[key] = made[id(tensor)]
    try:
        for part, _ in modes:
            part.training = False
        yield tensors
    finally:
        for part, mode in modes:
            part.training = mode
        for members, key, tensor in replaced:
            members[key] = tensor


def _declare(block, tensor, path):
    is_parameter = isinstance(tensor, Parameter)
    name = tensor.name
    if block.has_var(name):
        name = path if not block.has_var(path) else unique_name.generate(path)
    flags = {
        "persistable": True,
        "is_parameter": is_parameter,
        "trainable": is_parameter and bool(tensor.trainable),
        "stop_gradient": bool(tensor.stop_gradient),
    }
    return block._add_variable(name, list(tensor.shape), tensor.dtype, flags)


def _flatten(value, into):
    """The leaves of nested lists, tuples and dicts."""
    if isinstance(value, (list, tuple)):
        for item in value:
            _flatten(item, into)
    elif isinstance(value, dict):
        for key in value:
            _flatten(value[key], into)
    else:
        into.append(value)
    return into


def _map(value, change):
    if isinstance(value, (list, tuple)):
        return type(value)(_map(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _map(item, change) for key, item in value.items()}
    return change(value)


def _spec_of(value, name=None):
    """The InputSpec of an example or a spec; other values stay as they are."""
    if isinstance(value, InputSpec):
        return value
    if isinstance(value, (Tensor, np.ndarray)):
        return InputSpec(value.shape, value.dtype, name)
    return value


def _argument_names(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds]


class _Traced:
    """A function as a program: names of feeds and fetches, and the tensors that it
    uses by the name of their variable."""

    def __init__(self, function, layer, specs, what):
        self.program = Program()
        self.tensors = {}
        self.feeds = []
        names = _argument_names(function)
        with _static_mode(self.program), contextlib.ExitStack() as stack:
            if layer is not None:
                self.tensors = stack.enter_context(_as_variables(layer, self.program))
            inputs = [
                self._inputs(spec, names[i] if i < len(names) else f"input_{i}")
                for i, spec in enumerate(specs)
            ]
            outputs = function(*inputs)
        self.structure = outputs
        self.outputs = [v for v in _flatten(outputs, []) if isinstance(v, Variable)]
        if not self.outputs:
            raise ValueError(
                f"{what}: forward() returned nothing that depends on its inputs"
            )

    def _inputs(self, spec, name):
        def declare(leaf):
            if not isinstance(leaf, InputSpec):
                return leaf
            block = self.program.global_block()
            wanted = leaf.name or name
            if block.has_var(wanted):
                wanted = unique_name.generate(wanted)
            self.feeds.append(wanted)
            return block._add_variable(
                wanted,
                list(leaf.shape),
                leaf.dtype,
                {"is_data": True, "stop_gradient": True},
            )

        return _map(spec, declare)

    @property
    def fetches(self):
        return [v.name for v in self.outputs]

    def inference(self, feeds=None, fetches=None):
        program = Program()
        _core.to_inference(
            program,
            self.program,
            self.feeds if feeds is None else feeds,
            self.fetches if fetches is None else fetches,
        )
        return program

    def scope(self):
        """The tensors as they are now."""
        scope = Scope()
        for name, (tensor, _) in self.tensors.items():
            scope._set(name, tensor)
        return scope


# ---- to_static


class StaticFunction:
    """A function that can become a program. A call computes eagerly."""

    def __init__(self, function, input_spec=None, owner=None):
        functools.update_wrapper(self, function)
        self._function = function
        self._input_spec = input_spec
        self._owner = owner
        self._traced = None

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        # One for each object, so that what is traced of it is kept.
        bound = StaticFunction(
            self._function.__get__(instance, owner), self._input_spec, instance
        )
        if isinstance(instance, Layer):
            object.__setattr__(instance, self._function.__name__, bound)
        return bound

    def __call__(self, *args, **kwargs):
        return self._function(*args, **kwargs)

    @property
    def function_spec(self):
        return self._input_spec

    @property
    def dygraph_function(self):
        return self._function

    def trace(self, input_spec=None):
        spec = self._input_spec if input_spec is None else input_spec
        if spec is None:
            raise ValueError(
                f"{self._function.__name__}: an input_spec is needed to make a program"
            )
        layer = self._owner if isinstance(self._owner, Layer) else None
        specs = [_map(s, _spec_of) for s in spec]
        return _Traced(self._function, layer, specs, self._function.__name__)

    @property
    def concrete_program(self):
        """The program with its inputs, outputs and parameters."""
        if self._traced is None:
            self._traced = self.trace()
        return ConcreteProgram(self._traced)

    @property
    def main_program(self):
        return self.concrete_program.main_program

    def rollback(self):
        """The function as it was."""
        return self._function


class ConcreteProgram:
    """A program with its inputs, outputs and parameters."""

    def __init__(self, traced):
        block = traced.program.global_block()
        self.main_program = traced.program
        self.startup_program = Program()
        self.inputs = [block.var(name) for name in traced.feeds]
        self.outputs = traced.outputs
        self.parameters = [
            tensor
            for tensor, _ in traced.tensors.values()
            if isinstance(tensor, Parameter)
        ]


def to_static(function=None, input_spec=None, build_strategy=None, **kwargs):
    """Marks a function or a layer, as a decorator or by a call, so that paddle.jit.save
    can make a program of it. Calls compute as before.

    input_spec: a list of InputSpec, one for each argument of forward().
    build_strategy, property, backend, full_graph, enable_fallback: how Paddle would run
        the program; accepted.
    """
    for name in kwargs:
        if name not in ("property", "backend", "full_graph", "enable_fallback"):
            raise TypeError(f"to_static has no argument '{name}'")

    def decorate(target):
        if isinstance(target, Layer):
            if not isinstance(target.forward, StaticFunction):
                wrapped = StaticFunction(target.forward, input_spec, target)
                object.__setattr__(target, "forward", wrapped)
            return target
        if isinstance(target, StaticFunction):
            return target
        owner = getattr(target, "__self__", None)
        return StaticFunction(target, input_spec, owner)

    if input_spec is not None and not isinstance(input_spec, (list, tuple)):
        raise TypeError(
            "to_static: input_spec must be a list, but is a "
            f"{type(input_spec).__name__}"
        )
    return decorate if function is None else decorate(function)


declarative = to_static


def not_to_static(func=None):
    """The function as it is: every function is called as it is."""
    return (lambda function: function) if func is None else func


def ignore_module(modules):
    """Modules are called as they are."""


def enable_to_static(enable_to_static_bool=True):
    """Programs are made only where they are saved, so there is nothing to turn off."""


def set_verbosity(level=0, also_to_stdout=False):
    """No code is rewritten, so there is nothing to tell about it."""


def set_code_level(level=100, also_to_stdout=False):
    """No code is rewritten, so there is none to show."""


class ProgramTranslator:
    """Makes programs of functions, by name of an older interface."""

    _instance = None

    def __new__(cls, *args, **kwargs):
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    @classmethod
    def get_instance(cls):
        return cls()

    def enable(self, enable_to_static):
        """Programs are made only where they are saved."""

    def get_output(self, dygraph_func, *args, **kwargs):
        return dygraph_func(*args, **kwargs)

    def get_func(self, dygraph_func):
        return to_static(dygraph_func)

    def get_program(self, dygraph_func, *args, **kwargs):
        """(main program, startup program, inputs, outputs) of the function, whose
        arguments are given by position."""
        if kwargs:
            raise TypeError(
                f"ProgramTranslator.get_program: give {', '.join(kwargs)} by position"
            )
        specs = [_map(a, _spec_of) for a in args]
        function = dygraph_func
        layer = getattr(function, "__self__", None)
        if isinstance(function, StaticFunction):
            layer, function = function._owner, function._function
        traced = _Traced(
            function, layer if isinstance(layer, Layer) else None, specs, "get_program"
        )
        concrete = ConcreteProgram(traced)
        return (
            concrete.main_program,
            concrete.startup_program,
            concrete.inputs,
            concrete.outputs,
        )


# ---- save


def save(layer, path, input_spec=None, **configs):
    """Saves a layer or a function for inference: PATH.pdmodel, PATH.pdiparams and, for
    names and trainability of parameters, PATH.pdiparams.info.

    input_spec: a list of InputSpec or of example Tensors, one for each argument of
        forward(); not needed when `to_static` was given one.
    output_spec: those of the outputs that are wanted.
    """
    prefix = _static_io._prefix("jit.save", path)
    for key in configs:
        if key not in ("output_spec", "with_hook", "combine_params", "clip_extra"):
            if key != "skip_forward":
                raise ValueError(f"jit.save: there is no option '{key}'")
    function, owner, given = _target(layer)
    spec = given if input_spec is None else input_spec
    if spec is None:
        raise ValueError(
            "jit.save: input_spec must say what forward() is given, for instance "
            "[InputSpec([None, 8])]"
        )
    if not isinstance(spec, (list, tuple)):
        raise TypeError(
            f"jit.save: input_spec must be a list, but is a {type(spec).__name__}"
        )
    traced = _Traced(
        function, owner, [_map(s, _spec_of) for s in spec], "paddle.jit.save"
    )
    wanted = _chosen_outputs(traced, configs.get("output_spec"))
    program = traced.inference(fetches=wanted)
    _core.save_model(
        program,
        traced.scope(),
        os.fsencode(prefix + ".pdmodel"),
        os.fsencode(prefix + ".pdiparams"),
        True,
    )
    _save_info(prefix, program, traced)


def _target(layer):
    """The function to trace, the layer that it belongs to, and its own input_spec."""
    if isinstance(layer, Layer):
        forward = layer.forward
        if isinstance(forward, StaticFunction):
            return forward._function, layer, forward._input_spec
        return layer.__call__, layer, None
    if isinstance(layer, StaticFunction):
        owner = layer._owner if isinstance(layer._owner, Layer) else None
        return layer._function, owner, layer._input_spec
    if callable(layer):
        owner = getattr(layer, "__self__", None)
        return layer, owner if isinstance(owner, Layer) else None, None
    raise TypeError(
        f"jit.save takes a Layer or a function, but got {type(layer).__name__}"
    )


def _chosen_outputs(traced, output_spec):
    if output_spec is None:
        return traced.fetches
    chosen = []
    for spec in output_spec:
        name = spec.name if hasattr(spec, "name") else spec
        if isinstance(spec, int):
            chosen.append(traced.fetches[spec])
        elif name in traced.fetches:
            chosen.append(name)
        else:
            raise ValueError(
                f"jit.save: output_spec names {name}, but forward() returns "
                + ", ".join(traced.fetches)
            )
    return chosen


def _save_info(prefix, program, traced):
    """What the two other files do not say, as Paddle keeps it."""
    import pickle

    info = {}
    for name in _core.saved_variables(program):
        tensor, path = traced.tensors[name]
        info[name] = {
            "structured_name": path,
            "stop_gradient": bool(tensor.stop_gradient),
        }
        if isinstance(tensor, Parameter):
            info[name]["trainable"] = bool(tensor.trainable)
    if info:
        content = pickle.dumps(info, protocol=2)
        _static_io.save_to_file(prefix + ".pdiparams.info", content)


# ---- load


class TranslatedLayer(Layer):
    """A saved model as a layer.

    In evaluation, as it is loaded, an executor runs the program. After `train()` the
    operations are computed one by one, so that gradients reach the parameters;
    dropout and batch norm stay as they are in evaluation.
    """

    def __init__(self, program, scope, info):
        super().__init__()
        self._program_holder = program
        self._scope = scope
        self._feeds = _core.feeds_of(program)
        self._fetches = _core.fetches_of(program)
        self._executor = None
        self._tensors = {
            name: self._register(name, info.get(name, {}))
            for name in _core.saved_variables(program)
        }
        self.eval()

    def _register(self, name, about):
        """The values of the scope are the layer's: one memory."""
        tensor = self._scope._get(name)
        key = about.get("structured_name", name)
        if "trainable" in about:
            parameter = Parameter(tensor, name, bool(about["trainable"]))
            self._parameters[key] = parameter
            return parameter
        self._buffers[key] = tensor
        return tensor

    def forward(self, *inputs):
        values = _flatten(list(inputs), [])
        if len(values) != len(self._feeds):
            raise ValueError(
                f"the model takes {len(self._feeds)} inputs ({', '.join(self._feeds)}), "
                f"but got {len(values)}"
            )
        outputs = (self._train if self.training else self._evaluate)(values)
        return outputs[0] if len(outputs) == 1 else outputs

    def _evaluate(self, values):
        if self._executor is None:
            self._executor = Executor(get_device())
        return self._executor.run(
            self._program_holder,
            feed=dict(zip(self._feeds, values)),
            fetch_list=self._fetches,
            scope=self._scope,
            return_numpy=False,
        )

    def _train(self, values):
        values = [v if isinstance(v, Tensor) else _core.from_object(v) for v in values]
        return _core.run_eagerly(
            self._program_holder,
            [*self._feeds, *self._tensors],
            [*values, *self._tensors.values()],
            self._fetches,
        )

    def program(self, method_name="forward"):
        """What forward() runs."""
        return self._program_holder

    def _input_spec(self, method_name="forward"):
        block = self._program_holder.global_block()
        return [
            InputSpec(block.var(name).shape, block.var(name).dtype, name)
            for name in self._feeds
        ]

    def _output_spec(self, method_name="forward"):
        block = self._program_holder.global_block()
        return [
            InputSpec(block.var(name).shape, block.var(name).dtype, name)
            for name in self._fetches
        ]


def load(path, **configs):
    """A layer of what paddle.jit.save or static.save_inference_model saved, also as
    Paddle wrote it.

    model_filename, params_filename: where these are not PATH.pdmodel and
        PATH.pdiparams.
    """
    prefix = _static_io._prefix("jit.load", path)
    files = _static_io._model_files(
        prefix, configs.get("model_filename"), configs.get("params_filename")
    )
    program, scope = Program(), Scope()
    _core.load_program(program, os.fsencode(files[0]))
    device = device_of(get_device())
    _static_io._load_into(scope, program, files[1], files[2], device)
    info = {}
    if files[2] and os.path.exists(files[1] + ".info"):
        with open(files[1] + ".info", "rb") as file:
            info = pickle_reader.read_file(file, files[1] + ".info")
    return TranslatedLayer(program, scope, info)


# ---- TracedLayer


class TracedLayer:
    """A layer as a program, made by running it on examples. Use TracedLayer.trace()."""

    def __init__(self, traced):
        self._traced = traced
        self._scope = traced.scope()
        self._inference = traced.inference()
        self._executor = None

    @staticmethod
    def trace(layer, inputs):
        """(outputs of the layer, its TracedLayer) for a list of example Tensors."""
        if not isinstance(layer, Layer):
            raise TypeError(
                f"TracedLayer.trace takes a Layer, but got {type(layer).__name__}"
            )
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        outputs = layer(*inputs)
        specs = [_map(value, _batched_spec) for value in inputs]
        return outputs, TracedLayer(_Traced(layer.forward, layer, specs, "trace"))

    @property
    def program(self):
        return self._traced.program

    def set_strategy(self, build_strategy=None, exec_strategy=None):
        """The executor decides by itself."""

    def __call__(self, inputs):
        values = _flatten(inputs if isinstance(inputs, (list, tuple)) else [inputs], [])
        if self._executor is None:
            self._executor = Executor(get_device())
        return self._executor.run(
            self._inference,
            feed=dict(zip(self._traced.feeds, values)),
            fetch_list=self._traced.fetches,
            scope=self._scope,
            return_numpy=False,
        )

    def save_inference_model(self, path, feed=None, fetch=None, **kwargs):
        """Saves it; `feed` and `fetch` are positions of the inputs and outputs that are
        wanted."""
        _static_io._check_known(
            "TracedLayer.save_inference_model", kwargs, "clip_extra", "legacy_format"
        )
        prefix = _static_io._prefix("save_inference_model", path)
        feeds, fetches = self._traced.feeds, self._traced.fetches
        feeds = feeds if feed is None else [feeds[i] for i in feed]
        fetches = fetches if fetch is None else [fetches[i] for i in fetch]
        _core.save_model(
            self._traced.inference(feeds, fetches),
            self._scope,
            os.fsencode(prefix + ".pdmodel"),
            os.fsencode(prefix + ".pdiparams"),
            True,
        )


def _batched_spec(value):
    """As the example is, for any number of rows."""
    spec = _spec_of(value)
    if isinstance(spec, InputSpec) and spec.shape:
        spec.shape = (-1, *spec.shape[1:])
    return spec


__all__ = _names.own(globals(), "ConcreteProgram", "StaticFunction")
