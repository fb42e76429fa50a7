# SPDX-License-Identifier: Apache-2.0
"""Switches that say whether operations are recorded for backward."""

import functools

from .._core import is_grad_enabled
from .._core import set_grad_enabled as _set

__all__ = ["enable_grad", "is_grad_enabled", "no_grad", "set_grad_enabled"]


class _GradMode:
    """Sets recording for a block, a function or a generator, and puts back what was."""

    _on = None

    def __new__(cls, func=None):
        self = super().__new__(cls)
        if func is None:
            return self
        if not callable(func):
            raise TypeError(
                f"{cls.__name__} decorates a function, but got {type(func).__name__}"
            )
        self.__init__()
        return self(func)

    def __init__(self, func=None):
        self._before = []

    def __enter__(self):
        self._before.append(is_grad_enabled())
        _set(self._on)
        return self

    def __exit__(self, *exc):
        _set(self._before.pop())
        return False

    def __call__(self, func):
        import inspect  # here, which keeps `import paddle` fast

        mode = type(self)
        if inspect.isgeneratorfunction(func):
            return self._wrap_generator(func, mode)

        @functools.wraps(func)
        def decorated(*args, **kwargs):
            with mode():
                return func(*args, **kwargs)

        return decorated

    @staticmethod
    def _wrap_generator(func, mode):
        """The mode holds while the generator runs, not while its user does."""

        @functools.wraps(func)
        def decorated(*args, **kwargs):
            with mode():
                generator = func(*args, **kwargs)
            resume, value = generator.send, None
            try:
                while True:
                    try:
                        with mode():
                            item = resume(value)
                    except StopIteration as stop:
                        return stop.value
                    try:
                        resume, value = generator.send, (yield item)
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        resume, value = generator.throw, error
            finally:
                with mode():
                    generator.close()

        return decorated


class no_grad(_GradMode):
    """Records nothing: `with paddle.no_grad():`, `@paddle.no_grad()`, `@paddle.no_grad`."""

    _on = False


class enable_grad(_GradMode):
    """Records again inside of a no_grad block."""

    _on = True


class set_grad_enabled:
    """Sets recording to `mode` at once; as a context manager, puts back what was."""

    def __init__(self, mode):
        self._before = is_grad_enabled()
        _set(bool(mode))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        _set(self._before)
        return False
