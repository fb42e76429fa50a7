# SPDX-License-Identifier: Apache-2.0
"""Places: where a tensor lies and where an op runs."""

import warnings

from .. import _core


class Place:
    """A device. Equal places are the same device."""

    _device = "cpu"

    def __eq__(self, other):
        return isinstance(other, Place) and self._device == other._device

    def __hash__(self):
        return hash(self._device)

    def is_cpu_place(self):
        return self._device == "cpu"

    def is_gpu_place(self):
        return self._device.startswith("cuda")

    def get_device_id(self):
        return int(self._device.split(":")[1]) if ":" in self._device else 0


class CPUPlace(Place):
    def __repr__(self):
        return "CPUPlace"


class CUDAPlace(Place):
    def __init__(self, id=0):
        if not isinstance(id, int) or id < 0:
            raise ValueError(f"CUDAPlace takes a device number, not {id!r}")
        self._device = f"cuda:{id}"

    def __repr__(self):
        return f"CUDAPlace({self.get_device_id()})"


class CUDAPinnedPlace(Place):
    """Host memory that a GPU can read at full speed; plain memory without one."""

    def __repr__(self):
        return "CUDAPinnedPlace"


class XPUPlace(CUDAPlace):
    """Taken as the GPU of the same number: there is no backend for XPUs."""

    def __repr__(self):
        return f"XPUPlace({self.get_device_id()})"


_warned = False


def usable_device(device):
    """`device`, or "cpu" with one warning where it is a GPU that is not there."""
    global _warned
    if device == "cpu":
        return device
    count = _core.num_cuda_devices()
    if count == 0:
        if not _warned:
            warnings.warn(
                "there is no GPU that this build can use: going on with the CPU",
                stacklevel=3,
            )
            _warned = True
        return "cpu"
    index = int(device.split(":")[1])
    if index >= count:
        raise ValueError(f"there is no GPU {index}: this machine has {count}")
    return device


def device_of(place):
    """The engine's name of a place, given as Place, 'cpu', 'gpu', 'gpu:1' or None."""
    if place is None:
        return _core.get_device()
    if isinstance(place, Place):
        return usable_device(place._device)
    if not isinstance(place, str):
        raise TypeError(
            f"a place is CPUPlace(), CUDAPlace(0) or 'gpu:0', not {place!r}"
        )
    text = place.lower()
    if text == "cpu":
        return "cpu"
    kind, _, index = text.partition(":")
    if kind not in ("gpu", "cuda", "xpu") or (index and not index.isdigit()):
        raise ValueError(f"unknown device '{place}': use 'cpu', 'gpu' or 'gpu:0'")
    return usable_device(f"cuda:{index or 0}")


def place_of(device):
    """The Place with the engine's name `device`."""
    if device == "cpu":
        return CPUPlace()
    return CUDAPlace(int(device.split(":")[1]))


def set_device(device):
    """Makes `device` ('cpu', 'gpu', 'gpu:1') the one where new tensors live. Without
    a GPU, 'gpu' warns once and means the CPU. Returns the place."""
    name = device_of(device)
    _core.set_device(name)
    return place_of(name)


def get_device():
    """The current device: 'cpu' or 'gpu:0'."""
    return _core.get_device().replace("cuda", "gpu")


def is_compiled_with_cuda():
    """Whether this build can use a GPU that is there."""
    return _core.num_cuda_devices() > 0


def is_compiled_with_xpu():
    return False


def get_cudnn_version():
    """The version of cuDNN, or None without one."""
    version = _core.cudnn_version()
    return version or None


def cpu_places(device_count=None):
    """One CPUPlace for each trainer thread: CPU_NUM of them by default."""
    import os

    count = device_count or int(os.environ.get("CPU_NUM", "1"))
    return [CPUPlace() for _ in range(count)]


def cuda_places(device_ids=None):
    """The places of the given GPUs, or of all."""
    ids = range(_core.num_cuda_devices()) if device_ids is None else device_ids
    return [CUDAPlace(i) for i in ids]
