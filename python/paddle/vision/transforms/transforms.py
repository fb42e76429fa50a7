# SPDX-License-Identifier: Apache-2.0
"""Transforms as objects: configured once, called for each sample.

Random ones draw from Python's `random`, which DataLoader seeds in its workers.
"""

import collections.abc
import math
import numbers
import random

from ... import _names
from ..._core import Tensor
from . import functional as F
from .geometry import pair


class Compose:
    """Calls `transforms` one after the other."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, data):
        for transform in self.transforms:
            data = transform(data)
        return data

    def __repr__(self):
        inner = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}({inner}\n)"


class BaseTransform:
    """What transforms inherit from.

    A call takes one input or a tuple of inputs. `keys` names the kind of each:
    'image', 'coords', 'boxes' or 'mask'; the kind `k` is handled by the method
    `_apply_k`, and inputs beyond the keys are returned as they are.
    `_get_params(inputs)` runs first, and what it returns is `self.params` in the
    others, so that all inputs of one call are changed alike.
    """

    def __init__(self, keys=None):
        if keys is None:
            keys = ("image",)
        elif isinstance(keys, str) or not isinstance(keys, collections.abc.Sequence):
            raise ValueError(f"keys must be a list of names: {keys!r}")
        for key in keys:
            if self._get_apply(key) is None:
                raise NotImplementedError(
                    f"{type(self).__name__} has no method _apply_{key}"
                )
        self.keys = keys
        self.params = None

    def __call__(self, inputs):
        single = not isinstance(inputs, tuple)
        if single:
            inputs = (inputs,)
        self.params = self._get_params(inputs)
        outputs = [self._get_apply(k)(x) for k, x in zip(self.keys, inputs)]
        outputs += inputs[len(self.keys) :]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _get_params(self, inputs):
        return None

    def _get_apply(self, key):
        return getattr(self, f"_apply_{key}", None)

    def _apply_image(self, image):
        raise NotImplementedError(f"{type(self).__name__}: no way to apply to an image")

    def _apply_boxes(self, boxes):
        raise NotImplementedError(f"{type(self).__name__}: no way to apply to boxes")

    def _apply_mask(self, mask):
        raise NotImplementedError(f"{type(self).__name__}: no way to apply to a mask")


class ToTensor(BaseTransform):
    """See functional.to_tensor."""

    def __init__(self, data_format="CHW", keys=None):
        super().__init__(keys)
        self.data_format = data_format

    def _apply_image(self, img):
        return F.to_tensor(img, self.data_format)


class Resize(BaseTransform):
    """See functional.resize."""

    def __init__(self, size, interpolation="bilinear", keys=None):
        super().__init__(keys)
        if not isinstance(size, numbers.Integral):
            size = pair(size, "Resize")
        self.size = size
        self.interpolation = interpolation

    def _apply_image(self, img):
        return F.resize(img, self.size, self.interpolation)


class RandomResizedCrop(BaseTransform):
    """A part with `scale` of the area and `ratio` of width to height, both drawn
    from the ranges, resized to `size`."""

    def __init__(
        self,
        size,
        scale=(0.08, 1.0),
        ratio=(3.0 / 4, 4.0 / 3),
        interpolation="bilinear",
        keys=None,
    ):
        super().__init__(keys)
        if scale[0] > scale[1] or ratio[0] > ratio[1] or ratio[0] <= 0:
            raise ValueError(
                f"RandomResizedCrop: empty range: scale {scale}, ratio {ratio}"
            )
        self.size = pair(size, "RandomResizedCrop")
        self.scale = scale
        self.ratio = ratio
        self.interpolation = interpolation

    def _get_params(self, inputs):
        height, width = F.image_size(inputs[0])
        log_ratio = [math.log(bound) for bound in self.ratio]
        # Ten draws rarely all fail to fit; then the middle is taken.
        for _ in range(10):
            area = height * width * random.uniform(*self.scale)
            ratio = math.exp(random.uniform(*log_ratio))
            w = round(math.sqrt(area * ratio))
            h = round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                top = random.randint(0, height - h)
                left = random.randint(0, width - w)
                return top, left, h, w
        w, h = width, height
        if width / height < self.ratio[0]:
            h = min(height, round(width / self.ratio[0]))
        elif width / height > self.ratio[1]:
            w = min(width, round(height * self.ratio[1]))
        return (height - h) // 2, (width - w) // 2, h, w

    def _apply_image(self, img):
        return F.resize(F.crop(img, *self.params), self.size, self.interpolation)


class CenterCrop(BaseTransform):
    """See functional.center_crop."""

    def __init__(self, size, keys=None):
        super().__init__(keys)
        self.size = pair(size, "CenterCrop")

    def _apply_image(self, img):
        return F.center_crop(img, self.size)


class RandomHorizontalFlip(BaseTransform):
    """Mirrors left and right with probability `prob`."""

    def __init__(self, prob=0.5, keys=None):
        super().__init__(keys)
        self.prob = _probability("RandomHorizontalFlip", prob)

    def _get_params(self, inputs):
        return random.random() < self.prob

    def _apply_image(self, img):
        return F.hflip(img) if self.params else img


class RandomVerticalFlip(BaseTransform):
    """Mirrors top and bottom with probability `prob`."""

    def __init__(self, prob=0.5, keys=None):
        super().__init__(keys)
        self.prob = _probability("RandomVerticalFlip", prob)

    def _get_params(self, inputs):
        return random.random() < self.prob

    def _apply_image(self, img):
        return F.vflip(img) if self.params else img


class Normalize(BaseTransform):
    """See functional.normalize; one number stands for all channels."""

    def __init__(self, mean=0.0, std=1.0, data_format="CHW", to_rgb=False, keys=None):
        super().__init__(keys)
        self.mean = [mean] if isinstance(mean, numbers.Number) else mean
        self.std = [std] if isinstance(std, numbers.Number) else std
        self.data_format = data_format
        self.to_rgb = to_rgb

    def _apply_image(self, img):
        return F.normalize(img, self.mean, self.std, self.data_format, self.to_rgb)


class Transpose(BaseTransform):
    """Reorders the axes: of [H, W, C] to [C, H, W] by default. Gives an array, or
    a Tensor of a Tensor."""

    def __init__(self, order=(2, 0, 1), keys=None):
        super().__init__(keys)
        self.order = order

    def _apply_image(self, img):
        if isinstance(img, Tensor):
            return F._tensor(img.numpy().transpose(self.order), like=img)
        return F._pixels(img, "Transpose").transpose(self.order)


class _Factor(BaseTransform):
    """Applies `adjust` with a factor drawn from a range around 1: `value` below
    and above it, or (low, high)."""

    def __init__(self, value, keys=None):
        super().__init__(keys)
        self.value = _range(type(self).__name__, value)

    def _get_params(self, inputs):
        return None if self.value is None else random.uniform(*self.value)

    def _apply_image(self, img):
        return img if self.params is None else self.adjust(img, self.params)


class BrightnessTransform(_Factor):
    """Changes the brightness by a factor drawn from [1 - value, 1 + value]."""

    adjust = staticmethod(F.adjust_brightness)


class ContrastTransform(_Factor):
    """Changes the contrast by a factor drawn from [1 - value, 1 + value]."""

    adjust = staticmethod(F.adjust_contrast)


class SaturationTransform(_Factor):
    """Changes the saturation by a factor drawn from [1 - value, 1 + value]."""

    adjust = staticmethod(F.adjust_saturation)


class HueTransform(BaseTransform):
    """Turns the hue by a share of the circle drawn from [-value, value]."""

    def __init__(self, value, keys=None):
        super().__init__(keys)
        self.value = _range("HueTransform", value, center=0, low=-0.5, high=0.5)

    def _get_params(self, inputs):
        return None if self.value is None else random.uniform(*self.value)

    def _apply_image(self, img):
        return img if self.params is None else F.adjust_hue(img, self.params)


class ColorJitter(BaseTransform):
    """The four colour transforms, in random order; 0 leaves one out."""

    def __init__(self, brightness=0, contrast=0, saturation=0, hue=0, keys=None):
        super().__init__(keys)
        self.brightness = brightness
        self.contrast = contrast
        self.saturation = saturation
        self.hue = hue
        self._steps = [
            BrightnessTransform(brightness),
            ContrastTransform(contrast),
            SaturationTransform(saturation),
            HueTransform(hue),
        ]

    def _get_params(self, inputs):
        steps = random.sample(self._steps, len(self._steps))
        return [(step, step._get_params(inputs)) for step in steps]

    def _apply_image(self, img):
        for step, params in self.params:
            step.params = params
            img = step._apply_image(img)
        return img


class RandomCrop(BaseTransform):
    """A part of size `size` from a random place, after padding if asked for.

    `padding` is added first; with `pad_if_needed` an image that is too small
    then grows to fit, otherwise it is a ValueError.
    """

    def __init__(
        self,
        size,
        padding=None,
        pad_if_needed=False,
        fill=0,
        padding_mode="constant",
        keys=None,
    ):
        super().__init__(keys)
        self.size = pair(size, "RandomCrop")
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    def _get_params(self, inputs):
        height, width = F.image_size(self._padded(inputs[0]))
        h, w = self.size
        if h > height or w > width:
            raise ValueError(
                f"RandomCrop: the image is {height}x{width}, smaller than {h}x{w}; "
                "see pad_if_needed"
            )
        return random.randint(0, height - h), random.randint(0, width - w), h, w

    def _padded(self, img):
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        if self.pad_if_needed:
            height, width = F.image_size(img)
            more = max(0, self.size[1] - width), max(0, self.size[0] - height)
            if any(more):
                img = F.pad(img, more, self.fill, self.padding_mode)
        return img

    def _apply_image(self, img):
        return F.crop(self._padded(img), *self.params)


class Pad(BaseTransform):
    """See functional.pad."""

    def __init__(self, padding, fill=0, padding_mode="constant", keys=None):
        super().__init__(keys)
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def _apply_image(self, img):
        return F.pad(img, self.padding, self.fill, self.padding_mode)


class RandomRotation(BaseTransform):
    """Turns by an angle drawn from `degrees`: (low, high), or one number for both
    directions. For the others see functional.rotate."""

    def __init__(
        self,
        degrees,
        interpolation="nearest",
        expand=False,
        center=None,
        fill=0,
        keys=None,
    ):
        super().__init__(keys)
        if isinstance(degrees, numbers.Number):
            degrees = (-degrees, degrees)
        if len(degrees) != 2 or degrees[0] > degrees[1]:
            raise ValueError(
                "RandomRotation: degrees must be one number, not negative, or two "
                f"in order: {degrees}"
            )
        self.degrees = degrees
        self.interpolation = interpolation
        self.expand = expand
        self.center = center
        self.fill = fill

    def _get_params(self, inputs):
        return random.uniform(*self.degrees)

    def _apply_image(self, img):
        return F.rotate(
            img, self.params, self.interpolation, self.expand, self.center, self.fill
        )


class Grayscale(BaseTransform):
    """See functional.to_grayscale."""

    def __init__(self, num_output_channels=1, keys=None):
        super().__init__(keys)
        self.num_output_channels = num_output_channels

    def _apply_image(self, img):
        return F.to_grayscale(img, self.num_output_channels)


def _probability(what, value):
    if not 0 <= value <= 1:
        raise ValueError(f"{what}: prob must be in [0, 1], not {value}")
    return value


def _range(what, value, center=1, low=0, high=math.inf):
    """(lowest, highest) factor, or None where only `center` is in it."""
    if isinstance(value, numbers.Number):
        if value < 0:
            raise ValueError(f"{what}: the value must not be negative: {value}")
        # A factor cannot be below zero; a hue beyond its range is a mistake.
        lowest = max(0, center - value) if low == 0 else center - value
        value = (lowest, center + value)
    value = tuple(value)
    if len(value) != 2 or not low <= value[0] <= value[1] <= high:
        raise ValueError(
            f"{what}: needs a number or a range within [{low}, {high}]: {value}"
        )
    return None if value == (center, center) else value


__all__ = _names.own(globals())
