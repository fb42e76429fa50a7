# SPDX-License-Identifier: Apache-2.0
"""Running saved models.

config = paddle.inference.Config("net.pdmodel", "net.pdiparams")
predictor = paddle.inference.create_predictor(config)
predictor.get_input_handle("x").copy_from_cpu(array)
predictor.run()
result = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
"""

import enum
import os

import numpy as np

from . import _core, _names, version
from .framework.place import CPUPlace, CUDAPlace, device_of
from .static import io as _static_io
from .static.executor import Executor, LoDTensor, Scope
from .static.program import Program


class DataType(enum.Enum):
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT64 = "int64"
    INT32 = "int32"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"


class PlaceType(enum.Enum):
    UNK = -1
    CPU = 0
    GPU = 1
    XPU = 2
    CUSTOM = 3


class PrecisionType(enum.Enum):
    Float32 = 0
    Int8 = 1
    Half = 2
    Bfloat16 = 3


_SIZES = {
    DataType.FLOAT32: 4,
    DataType.FLOAT64: 8,
    DataType.FLOAT16: 2,
    DataType.BFLOAT16: 2,
    DataType.INT64: 8,
    DataType.INT32: 4,
    DataType.INT8: 1,
    DataType.UINT8: 1,
    DataType.BOOL: 1,
}


def get_num_bytes_of_data_type(dtype):
    """The size of one element."""
    return _SIZES[dtype]


def get_version():
    """The version of this package."""
    return f"version: {version.full_version}"


def convert_to_mixed_precision(*args, **kwargs):
    raise NotImplementedError(
        "convert_to_mixed_precision: models run in the precision they were saved in"
    )


# What is kept only to be asked for; name -> (setter's argument, default).
_WISHES = """
    enable_mkldnn disable_mkldnn enable_mkldnn_bfloat16 enable_mkldnn_int8
    set_mkldnn_cache_capacity set_mkldnn_op enable_memory_optim enable_profile
    disable_glog_info enable_tensorrt_engine set_trt_dynamic_shape_info
    enable_tuned_tensorrt_dynamic_shape set_optim_cache_dir switch_specify_input_names
    switch_use_feed_fetch_ops enable_low_precision_io exp_disable_tensorrt_ops
    delete_pass set_cpu_math_library_num_threads switch_ir_debug enable_xpu
    collect_shape_range_info set_model_buffer_unused enable_cudnn
""".split()


class Config:
    """Which model a Predictor runs, and where.

    Config("folder") for a folder with `__model__`, Config("net.pdmodel",
    "net.pdiparams"), or Config("net") for the prefix of these two. Settings that are
    about how Paddle computes are accepted and can be read; the executor decides by
    itself.
    """

    Precision = PrecisionType

    def __init__(self, *paths):
        if len(paths) > 2:
            raise TypeError(f"Config takes up to 2 file names, but got {len(paths)}")
        self._folder = self._program = self._params = ""
        self._buffers = None
        self._gpu = False
        self._gpu_id = 0
        self._gpu_memory = 0
        self._ir_optim = True
        self._wishes = {}
        if paths:
            self.set_model(*paths)

    def set_model(self, *paths):
        paths = [os.fsdecode(os.fspath(p)) for p in paths]
        self._buffers = None
        if len(paths) == 2:
            self._program, self._params = paths
        elif os.path.isdir(paths[0]):
            self._folder = paths[0]
        else:
            prefix = paths[0].removesuffix(".pdmodel")
            self._program, self._params = prefix + ".pdmodel", prefix + ".pdiparams"

    def set_model_buffer(self, program, program_size, params, params_size):
        """The model as bytes."""
        self._buffers = (bytes(program[:program_size]), bytes(params[:params_size]))

    def model_from_memory(self):
        return self._buffers is not None

    def set_prog_file(self, path):
        self._program = os.fsdecode(os.fspath(path))

    def set_params_file(self, path):
        self._params = os.fsdecode(os.fspath(path))

    def model_dir(self):
        return self._folder

    def prog_file(self):
        return self._program

    def params_file(self):
        return self._params

    # ---- devices

    def enable_use_gpu(
        self,
        memory_pool_init_size_mb=100,
        device_id=0,
        precision_mode=PrecisionType.Float32,
    ):
        """Runs on a GPU; without one it warns and runs on the CPU."""
        self._gpu, self._gpu_id = True, device_id
        self._gpu_memory = memory_pool_init_size_mb

    def disable_gpu(self):
        self._gpu = False

    def use_gpu(self):
        return self._gpu

    def gpu_device_id(self):
        return self._gpu_id

    def memory_pool_init_size_mb(self):
        return self._gpu_memory

    def fraction_of_gpu_memory_for_pool(self):
        return 0.0

    def use_xpu(self):
        return False

    # ---- wishes

    def switch_ir_optim(self, x=True):
        self._ir_optim = bool(x)

    def ir_optim(self):
        return self._ir_optim

    def cpu_math_library_num_threads(self):
        return self._wishes.get("set_cpu_math_library_num_threads", (1,))[0]

    def mkldnn_enabled(self):
        return "enable_mkldnn" in self._wishes

    def memory_optim_enabled(self):
        return "enable_memory_optim" in self._wishes

    enable_memory_optim_ = memory_optim_enabled

    def specify_input_name(self):
        return True

    def use_feed_fetch_ops_enabled(self):
        return False

    def glog_info_disabled(self):
        return "disable_glog_info" in self._wishes

    def tensorrt_engine_enabled(self):
        return False

    def profile_enabled(self):
        return "enable_profile" in self._wishes

    def is_valid(self):
        return True

    def pass_builder(self):
        return _Passes()

    def summary(self):
        rows = {
            "model folder": self._folder,
            "model file": self._program,
            "params file": self._params,
            "device": f"gpu:{self._gpu_id}" if self._gpu else "cpu",
        }
        return "\n".join(f"{key}: {value}" for key, value in rows.items() if value)


def _wish(name):
    def keep(self, *args, **kwargs):
        self._wishes[name] = args or (True,)

    keep.__name__ = name
    keep.__doc__ = "Kept; the executor decides by itself."
    return keep


for _name in _WISHES:
    setattr(Config, _name, _wish(_name))


class _Passes:
    """Rewrites of the graph are the executor's own; the list is empty."""

    def all_passes(self):
        return []

    def append_pass(self, name):
        """There are no passes to choose from."""

    delete_pass = insert_pass = append_pass


class Tensor:
    """An input or an output of a Predictor, by its name."""

    def __init__(self, name, dtype):
        self._name = name
        self._dtype = dtype
        self._value = None
        self._shape = None
        self._lod = []

    def name(self):
        return self._name

    def reshape(self, shape):
        """The shape of what comes next; copy_from_cpu() takes that of the array."""
        self._shape = [int(n) for n in shape]

    def copy_from_cpu(self, data):
        """Takes a copy of the array."""
        array = np.array(data)
        if self._shape is not None and array.size == int(np.prod(self._shape)):
            array = array.reshape(self._shape)
        self._shape = None
        self._value = array

    def share_external_data(self, data):
        """Uses the array, or the Tensor, without a copy."""
        self._value = data

    def copy_to_cpu(self):
        """The values as an array."""
        if self._value is None:
            raise RuntimeError(
                f"{self._name} has no value yet: run the predictor first"
            )
        return np.array(self._value)

    def _fed(self):
        """What the executor is given."""
        if not self._lod:
            return self._value
        rows = LoDTensor()
        rows.set(self._value)
        rows.set_lod(self._lod)
        return rows

    def shape(self):
        if self._value is None:
            return list(self._shape or [])
        return list(self._value.shape)

    def type(self):
        return DataType(self._dtype.name)

    def lod(self):
        """Where sequences begin and end, level by level: [[0, 2, 5]]."""
        return self._lod

    def set_lod(self, lod):
        self._lod = [[int(n) for n in level] for level in lod]


class Predictor:
    """A saved model, ready to run. One thread at a time; clone() makes another that
    shares the parameters."""

    def __init__(self, config, _twin=None):
        if not isinstance(config, Config):
            raise TypeError(
                f"create_predictor takes a Config, but got {type(config).__name__}"
            )
        self._config = config
        place = CUDAPlace(config._gpu_id) if config._gpu else CPUPlace()
        self._executor = Executor(place)
        if _twin is not None:
            self._program, self._scope = _twin._program, _twin._scope
        else:
            self._program, self._scope = Program(), Scope()
            self._load(device_of(place))
        self._feeds = _core.feeds_of(self._program)
        self._fetches = _core.fetches_of(self._program)
        block = self._program.global_block()
        self._inputs = {n: Tensor(n, block.var(n).dtype) for n in self._feeds}
        self._outputs = {n: Tensor(n, block.var(n).dtype) for n in self._fetches}

    def _load(self, device):
        config = self._config
        if config._buffers is not None:
            program, params = config._buffers
            _core.parse_program(self._program, program, "Config")
            names = _core.saved_variables(self._program)
            tensors = _core.parse_tensors(params, names, "Config")
            _core.set_variables(self._scope, self._program, names, tensors, device)
            return
        if config._folder:
            files = _static_io._model_files(config._folder, None, None)
        elif config._program:
            files = config._program, config._params, True
        else:
            raise ValueError("create_predictor: the Config names no model")
        _core.load_program(self._program, os.fsencode(files[0]))
        _static_io._load_into(self._scope, self._program, files[1], files[2], device)

    def get_input_names(self):
        return list(self._feeds)

    def get_output_names(self):
        return list(self._fetches)

    def get_input_handle(self, name):
        return self._handle(self._inputs, name, "input")

    def get_output_handle(self, name):
        return self._handle(self._outputs, name, "output")

    def _handle(self, handles, name, what):
        if name not in handles:
            raise KeyError(
                f"the model has no {what} '{name}', only {', '.join(handles)}"
            )
        return handles[name]

    def run(self, inputs=None):
        """Computes the outputs from the inputs that were set, or from `inputs`, which
        are in the order of get_input_names(); then it returns the outputs."""
        if inputs is not None:
            if len(inputs) != len(self._feeds):
                raise ValueError(
                    f"the model takes {len(self._feeds)} inputs, but got {len(inputs)}"
                )
            for name, value in zip(self._feeds, inputs):
                self._inputs[name].share_external_data(value)
        feed = {}
        for name, handle in self._inputs.items():
            if handle._value is None:
                raise RuntimeError(
                    f"the input '{name}' has no value: copy_from_cpu() sets it"
                )
            feed[name] = handle._fed()
        values = self._executor.run(
            self._program,
            feed=feed,
            fetch_list=self._fetches,
            scope=self._scope,
            return_numpy=False,
        )
        for name, value in zip(self._fetches, values):
            self._outputs[name]._value = value
        return values if inputs is not None else True

    def clone(self, stream=None):
        """Another one over the same parameters."""
        return Predictor(self._config, _twin=self)

    def clear_intermediate_tensor(self):
        """Nothing is kept between runs."""

    def try_shrink_memory(self):
        """Nothing is kept between runs."""
        return 0


def create_predictor(config):
    """A Predictor of the model that `config` names."""
    return Predictor(config)


class PredictorPool:
    """Several predictors over the same parameters."""

    def __init__(self, config, size=1):
        first = Predictor(config)
        self._all = [first] + [first.clone() for _ in range(size - 1)]

    def retrive(self, index):
        return self._all[index]

    retrieve = retrive


__all__ = _names.own(globals())
