# SPDX-License-Identifier: Apache-2.0
"""DistributedStrategy: what a user wishes of a distributed training.

The fields and what they are for stand in strategy_fields.py.
"""

import copy
import numbers
import warnings

from . import text_format
from .strategy_fields import (
    BUILD,
    CHANGES,
    CHOICES,
    CONFIGS,
    EXECUTION,
    FLAG_ALIASES,
    FLAGS,
    KEY_ALIASES,
    MODES,
    hints,
)

__all__ = ["BuildStrategy", "DistributedStrategy", "ExecutionStrategy", "hints"]


# -- values


def _fits(value, default):
    """Whether a setting with that default may hold `value`."""
    if isinstance(default, (bool, str)):
        return isinstance(value, type(default))
    kind = numbers.Real if isinstance(default, float) else numbers.Integral
    return isinstance(value, kind) and not isinstance(value, bool)


def _initial(default):
    """A fresh value; [0] and [0.0] stand for empty lists of numbers."""
    if isinstance(default, dict):
        return {key: _initial(below) for key, below in default.items()}
    return [] if isinstance(default, list) else default


def _checked(owner, key, value, default):
    """`value` as a setting of the type of `default`; TypeError if it is none."""
    if isinstance(default, list):
        element = default[0] if default else ""
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise TypeError(f"{owner}: {key} must be a list, but is {value!r}")
        return [_checked(owner, key, item, element) for item in value]
    if not _fits(value, default):
        raise TypeError(
            f"{owner}: {key} must be of type {type(default).__name__}, but is {value!r}"
        )
    return type(default)(value)


def _merge(owner, into, values, defaults, aliases):
    """Puts `values` into the group `into`; lists grow, as Paddle's do."""
    for key in values:
        assert key in defaults or key in aliases, f"key:{key} not in {owner}"
    for key, value in values.items():
        key = aliases.get(key, key)
        default = defaults[key]
        if isinstance(default, dict):
            _merge(f"{owner}.{key}", into[key], value, default, {})
            continue
        value = _checked(owner, key, value, default)
        choices = CHOICES.get((owner, key), (value,))
        if value not in (default, *choices):
            raise ValueError(
                f"{owner}: {key} must be {', '.join(choices[:-1])} or {choices[-1]}, "
                f"but is {value!r}"
            )
        into[key] = into[key] + value if isinstance(default, list) else value


# -- the text form


def _to_message(values, defaults):
    """What differs from the defaults, as text_format writes it."""
    message = []
    for name, value in values.items():
        default = _initial(defaults[name])
        if isinstance(value, dict):
            below = _to_message(value, defaults[name])
            message += [(name, below)] if below else []
        elif isinstance(value, list):
            message += [(name, item) for item in value]
        elif value != default:
            message.append((name, value))
    return message


def _from_message(message, fields, owner="the strategy", into=None):
    """The values of a message by name, where `fields` says what there is. What occurs
    several times becomes a list, or one group."""
    values = {} if into is None else into
    for name, value in message:
        if name not in fields:
            raise ValueError(f"key:{name} not in {owner}")
        default = fields[name]
        if isinstance(default, dict) != isinstance(value, list):
            raise ValueError(
                f"{name} must {'' if isinstance(default, dict) else 'not '}be a group"
            )
        if isinstance(value, list):
            _from_message(value, default, name, values.setdefault(name, {}))
        elif isinstance(default, list):
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return values


def _all_fields():
    """The defaults of all fields, also by their old names."""
    fields = {name: field.default for name, field in FLAGS.items()}
    fields.update({old: fields[new] for old, new in FLAG_ALIASES.items()})
    for name, group in CONFIGS.items():
        old_keys = KEY_ALIASES.get(name, {}).items()
        fields[name] = {**group, **{old: group[new] for old, new in old_keys}}
    return {**fields, "build_strategy": BUILD, "execution_strategy": EXECUTION}


# -- settings of programs


class _Settings:
    """An object whose attributes are those of a table, and no others."""

    _TABLE = {}

    def __init__(self):
        for name, default in self._TABLE.items():
            object.__setattr__(self, name, _initial(default))

    def __setattr__(self, name, value):
        if name not in self._TABLE:
            raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")
        value = _checked(type(self).__name__, name, value, self._TABLE[name])
        object.__setattr__(self, name, value)


class BuildStrategy(_Settings):
    """How a static program is compiled; without a meaning in eager training."""

    _TABLE = BUILD

    class ReduceStrategy:
        AllReduce = 0
        Reduce = 1
        _NoReduce = 2

    class GradientScaleStrategy:
        CoeffNumDevice = 0
        One = 1
        Customized = 2


class ExecutionStrategy(_Settings):
    """How a static program is run; without a meaning in eager training."""

    _TABLE = EXECUTION


# -- the strategy


class _Flag:
    """A single setting. What is of another type is refused with a warning, as Paddle
    does, and the old value stays."""

    def __init__(self, name):
        self._name = name
        self._default = FLAGS[name].default

    def __get__(self, strategy, owner=None):
        return self if strategy is None else strategy._flags[self._name]

    def __set__(self, strategy, value):
        strategy._strict_auto = self._name == "auto"
        if not _fits(value, self._default):
            wanted = type(self._default).__name__
            if self._name == "a_sync":
                raise ValueError(
                    "The type of `flag` is invalid, expected type is bool, but "
                    f"received {type(value)}"
                )
            warnings.warn(
                f"WARNING: {self._name} should have value of {wanted} type, and stays "
                f"{strategy._flags[self._name]}",
                stacklevel=3,
            )
            return
        strategy._set_flag(self._name, value)
        if self._name == "a_sync":
            strategy._configs["a_sync_configs"]["k_steps"] = 0


class _Config:
    """A group of settings: reads as a dict of all, and takes a dict of some."""

    def __init__(self, name):
        self._name = name
        self._aliases = KEY_ALIASES.get(name, {})

    def __get__(self, strategy, owner=None):
        if strategy is None:
            return self
        values = copy.deepcopy(strategy._configs[self._name])
        values.update({old: values[new] for old, new in self._aliases.items()})
        return values

    def __set__(self, strategy, values):
        strategy._strict_auto = False
        if not isinstance(values, dict):
            raise TypeError(f"{self._name} must be a dict, but is {values!r}")
        merged = copy.deepcopy(strategy._configs[self._name])
        _merge(self._name, merged, values, CONFIGS[self._name], self._aliases)
        strategy._configs[self._name] = merged


class _Program:
    """build_strategy or execution_strategy. Reads as the object itself."""

    def __init__(self, kind):
        self._kind = kind
        self._name = {BuildStrategy: "build_strategy"}.get(kind, "execution_strategy")

    def __get__(self, strategy, owner=None):
        return self if strategy is None else strategy._programs[self._name]

    def __set__(self, strategy, settings):
        strategy._strict_auto = False
        taken = self._kind()
        for name in self._kind._TABLE:
            value = getattr(settings, name, None)
            if value is not None:  # else it has no such setting, or no wish
                setattr(taken, name, value)
        strategy._programs[self._name] = taken


class DistributedStrategy:
    """What a user wishes of a distributed training.

        strategy = fleet.DistributedStrategy()
        strategy.fuse_grad_size_in_MB = 16
        strategy.a_sync_configs = {"k_steps": 400}
        fleet.init(is_collective=True, strategy=strategy)

    It has the fields of all versions of Paddle. Those that are about speed only are
    hints (`hints()` lists them). One that changes results and is not built yet can be
    set and saved, and raises NotImplementedError when a model or an optimizer is to be
    made with it.
    """

    def __init__(self):
        start = object.__setattr__
        flags = {name: field.default for name, field in FLAGS.items()}
        start(self, "_flags", flags)
        start(self, "_configs", _initial(CONFIGS))
        start(
            self,
            "_programs",
            {
                "build_strategy": BuildStrategy(),
                "execution_strategy": ExecutionStrategy(),
            },
        )
        start(self, "_strict_auto", False)

    def __setattr__(self, name, value):
        if not hasattr(self, name):
            raise TypeError(f"{name} is not a attribute of {type(self).__name__}")
        object.__setattr__(self, name, value)

    def _set_flag(self, name, value):
        if name == "last_comm_group_size_MB" and value <= 0:
            raise ValueError("last_comm_group_size_MB should be greater than 0")
        self._flags[name] = type(FLAGS[name].default)(value)

    def _is_strict_auto(self):
        """Whether `auto` is on, and nothing else was set after it."""
        return self.auto and self._strict_auto

    # -- what this version can do

    def unbuilt(self, worker_num=1):
        """The settings, as "name=value", that change results and that eager training
        does not have yet."""
        names = [
            f"{name}={self._flags[name]}"
            for name, field in FLAGS.items()
            if field.use == CHANGES and self._flags[name] != field.default
        ]
        hybrid = self._configs["hybrid_configs"]
        names += [
            f"hybrid_configs.{name}={value}"
            for name, value in hybrid.items()
            if name.endswith("_degree") and name != "dp_degree" and value > 1
        ]
        if hybrid["dp_degree"] not in (-1, worker_num):
            names.append(f"hybrid_configs.dp_degree={hybrid['dp_degree']}")
        defaults = CONFIGS["gradient_scale_configs"]
        names += [
            f"gradient_scale_configs.{name}={value}"
            for name, value in self._configs["gradient_scale_configs"].items()
            if value != defaults[name]
        ]
        if self.build_strategy.gradient_scale_strategy != 0:
            value = self.build_strategy.gradient_scale_strategy
            names.append(f"build_strategy.gradient_scale_strategy={value}")
        return names

    # -- text

    def save_to_prototxt(self, output):
        """Writes what differs from the defaults to the file `output`, as text."""
        with open(output, "w", encoding="utf8") as file:
            file.write(text_format.write(self._message()))

    def load_from_prototxt(self, pb_file):
        """Sets what the file says; the rest stays as it is, and lists grow.

        ValueError names the line, the field or the value that is wrong; the strategy is
        then as it was.
        """
        with open(pb_file, encoding="utf8") as file:
            text = file.read()
        try:
            loaded = copy.deepcopy(self)
            loaded._take(_from_message(text_format.parse(text), _all_fields()))
        except (AssertionError, TypeError, ValueError) as error:
            raise ValueError(f"{pb_file}: {error}") from None
        for name in ("_flags", "_configs", "_programs"):
            object.__setattr__(self, name, getattr(loaded, name))

    def _message(self):
        flags = {name: field.default for name, field in FLAGS.items()}
        message = _to_message(self._flags, flags)
        names = {number: text_format.Word(name) for name, number in MODES.items()}
        message = [
            (name, names.get(value, value) if name == "mode" else value)
            for name, value in message
        ]
        message += _to_message(self._configs, CONFIGS)
        for name, settings in self._programs.items():
            below = _to_message(vars(settings), settings._TABLE)
            message += [(name, below)] if below else []
        return message

    def _take(self, values):
        """Sets what a text said."""
        for name, value in values.items():
            if name in CONFIGS:
                setattr(self, name, value)
            elif name in self._programs:
                for key, below in value.items():
                    setattr(self._programs[name], key, below)
            else:
                name = FLAG_ALIASES.get(name, name)
                value = MODES.get(value, value) if name == "mode" else value
                default = FLAGS[name].default
                self._set_flag(name, _checked("strategy", name, value, default))

    # -- table

    def __repr__(self):
        return _Table().of(self)


for _name in FLAGS:
    setattr(DistributedStrategy, _name, _Flag(_name))
for _old, _new in FLAG_ALIASES.items():
    setattr(DistributedStrategy, _old, _Flag(_new))
for _name in CONFIGS:
    setattr(DistributedStrategy, _name, _Config(_name))
DistributedStrategy.build_strategy = _Program(BuildStrategy)
DistributedStrategy.execution_strategy = _Program(ExecutionStrategy)


class _Table:
    """Draws a strategy as a box of names and values."""

    _KEY, _GAP, _VALUE = 38, 2, 38
    _WIDTH = _KEY + _GAP + _VALUE

    def of(self, strategy):
        edge, line = self._border("="), self._border("-")
        rows = [edge, self._title(""), self._title("DistributedStrategy Overview")]
        rows += [self._title(""), edge]
        flags = dict(strategy._flags)
        for name, value in strategy._flags.items():
            config = f"{name}_configs"
            # Servers keep a log in every mode.
            is_sync = name == "a_sync" and strategy._configs[config]["durability"]
            if (value is True or is_sync) and config in CONFIGS:
                del flags[name]
                rows += [self._title(f"{name}={value} <-> {config}"), line]
                rows += self._rows(strategy._configs[config])
                rows.append(edge)
        rows += [self._title("Environment Flags, Communication Flags"), line]
        rows += self._rows(flags)
        rows += [edge, self._title("Build Strategy"), line]
        rows += self._rows(vars(strategy.build_strategy))
        rows += [edge, self._title("Execution Strategy"), line]
        rows += self._rows(vars(strategy.execution_strategy))
        return "\n".join([*rows, edge, ""])

    def _border(self, mark):
        return "    +" + mark * self._WIDTH + "+"

    def _title(self, text):
        return f"    |{text:^{self._WIDTH}}|"

    def _rows(self, values):
        rows = []
        for name, value in values.items():
            shown = value if isinstance(value, list) and value else [value]
            for i, item in enumerate(shown):
                name = name if i == 0 else ""
                rows.append(
                    f"    |{name:>{self._KEY}}{' ' * self._GAP}"
                    f"{str(item)[: self._VALUE]:^{self._VALUE}}|"
                )
        return rows
