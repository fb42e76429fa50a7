# SPDX-License-Identifier: Apache-2.0
"""What paddle.Model calls while it trains, evaluates and predicts."""

import os
import warnings

from .. import _names
from .progress import Progress


class Callback:
    """Derive from it and write the methods that are wanted. `self.model` is the
    paddle.Model and `self.params` what it was called with: batch_size, epochs, steps,
    verbose, metrics.

    `logs` are the latest values: 'loss' (a list), each metric, 'step', 'batch_size'. A
    callback ends the training after this epoch by `self.model.stop_training = True`.
    """

    def __init__(self):
        self.model = None
        self.params = {}

    def set_params(self, params):
        self.params = params

    def set_model(self, model):
        self.model = model

    def on_train_begin(self, logs=None):
        pass

    def on_train_end(self, logs=None):
        pass

    def on_eval_begin(self, logs=None):
        """Here `logs` are 'steps' and 'metrics'."""

    def on_eval_end(self, logs=None):
        pass

    def on_predict_begin(self, logs=None):
        """Here `logs` are 'steps' and 'metrics'."""

    def on_predict_end(self, logs=None):
        pass

    def on_epoch_begin(self, epoch, logs=None):
        pass

    def on_epoch_end(self, epoch, logs=None):
        pass

    def on_train_batch_begin(self, step, logs=None):
        pass

    def on_train_batch_end(self, step, logs=None):
        pass

    def on_eval_batch_begin(self, step, logs=None):
        pass

    def on_eval_batch_end(self, step, logs=None):
        pass

    def on_predict_batch_begin(self, step, logs=None):
        pass

    def on_predict_batch_end(self, step, logs=None):
        pass


def _is_first():
    """Whether this process is the one of a job that prints and saves."""
    from ..distributed import get_rank

    return get_rank() == 0


class ProgBarLogger(Callback):
    """Prints how far training is.

    log_freq: after so many steps.
    verbose: 0 for nothing, 1 for a bar in one line, 2 for a line each time.
    """

    def __init__(self, log_freq=1, verbose=2):
        super().__init__()
        if log_freq < 1 or verbose not in (0, 1, 2):
            raise ValueError(
                f"ProgBarLogger: log_freq {log_freq} must be at least 1, and verbose "
                f"{verbose} 0, 1 or 2"
            )
        self.log_freq = log_freq
        self.verbose = verbose
        self._progress = None
        self._metrics = []
        self._samples = 0

    def _says(self):
        return self.verbose > 0 and _is_first()

    def _begin(self, logs):
        self._samples = 0
        self._metrics = list(logs.get("metrics") or ())
        self._progress = Progress(logs.get("steps"), self.verbose)

    def _show(self, step, logs, last=False):
        values = [(name, logs[name]) for name in self._metrics if name in logs]
        self._progress.show(step, values, last)

    def _batch(self, step, logs, steps):
        logs = logs or {}
        self._samples += logs.get("batch_size") or 0
        # The last one is shown at the end.
        if (step + 1) % self.log_freq == 0 and step + 1 != steps and self._says():
            self._show(step + 1, logs)

    def on_train_begin(self, logs=None):
        if self._says():
            print(
                "The loss is that of the step that is shown, and metrics are those of "
                "the epoch so far."
            )

    def on_epoch_begin(self, epoch, logs=None):
        if self._says():
            print(f"Epoch {epoch + 1}/{self.params.get('epochs')}")
        self._begin(self.params)

    def on_train_batch_end(self, step, logs=None):
        self._batch(step, logs, self.params.get("steps"))

    def on_epoch_end(self, epoch, logs=None):
        if self._says() and logs and "step" in logs:
            self._show(logs["step"] + 1, logs, last=True)

    def _begin_other(self, what, logs):
        self._begin(logs or {})
        self._steps = (logs or {}).get("steps")
        if self._says():
            print(f"{what} begin...")

    def _end_other(self, what, logs):
        if self._says():
            if logs and "step" in logs:
                self._show(logs["step"] + 1, logs, last=True)
            print(f"{what} samples: {self._samples}")

    def on_eval_begin(self, logs=None):
        self._begin_other("Eval", logs)

    def on_eval_batch_end(self, step, logs=None):
        self._batch(step, logs, self._steps)

    def on_eval_end(self, logs=None):
        self._end_other("Eval", logs)

    def on_predict_begin(self, logs=None):
        self._begin_other("Predict", {**(logs or {}), "metrics": []})

    def on_predict_batch_end(self, step, logs=None):
        self._batch(step, logs, self._steps)

    def on_predict_end(self, logs=None):
        self._end_other("Predict", logs)


class ModelCheckpoint(Callback):
    """Saves the model and its optimizer after every `save_freq` epochs, to
    save_dir/EPOCH, and at the end to save_dir/final."""

    def __init__(self, save_freq=1, save_dir=None):
        super().__init__()
        self.save_freq = save_freq
        self.save_dir = save_dir

    def _save(self, name):
        path = os.path.join(os.path.abspath(self.save_dir), str(name))
        print(f"save checkpoint at {path}")
        self.model.save(path)

    def _saves(self):
        return self.save_dir is not None and _is_first()

    def on_epoch_end(self, epoch, logs=None):
        if self._saves() and epoch % self.save_freq == 0:
            self._save(epoch)

    def on_train_end(self, logs=None):
        if self._saves():
            self._save("final")


class LRScheduler(Callback):
    """Advances the optimizer's schedule after each step, or after each epoch."""

    def __init__(self, by_step=True, by_epoch=False):
        super().__init__()
        if by_step and by_epoch:
            raise ValueError("LRScheduler: by_step and by_epoch exclude each other")
        self.by_step = by_step
        self.by_epoch = by_epoch

    def _advance(self):
        from ..optimizer.lr import LRScheduler as Schedule

        rate = getattr(self.model._optimizer, "_learning_rate", None)
        if isinstance(rate, Schedule):
            rate.step()

    def on_epoch_end(self, epoch, logs=None):
        if self.by_epoch:
            self._advance()

    def on_train_batch_end(self, step, logs=None):
        if self.by_step:
            self._advance()


class _Watch:
    """Tells whether a value of the logs has become better by more than min_delta."""

    def __init__(self, owner, monitor, mode, min_delta, baseline=None):
        if mode not in ("auto", "min", "max"):
            warnings.warn(
                f"{owner}: mode must be 'auto', 'min' or 'max', but is {mode!r}; it "
                "counts as 'auto'",
                stacklevel=4,
            )
            mode = "auto"
        self._owner = owner
        self.monitor = monitor
        up = mode == "max" or (mode == "auto" and "acc" in monitor)
        self._sign = 1 if up else -1
        self._min_delta = abs(min_delta)
        self.best = baseline

    def value(self, logs):
        """The value, or None with a warning."""
        value = (logs or {}).get(self.monitor)
        if value is None:
            warnings.warn(
                f"{self._owner}: the evaluation has no '{self.monitor}', only "
                f"{sorted(logs or ())}",
                stacklevel=4,
            )
            return None
        return float(value[0] if isinstance(value, (list, tuple)) else value)

    def better(self, value):
        """Takes `value` over as the best if it is."""
        if self.best is not None:
            if not self._sign * (value - self.best) > self._min_delta:
                return False
        self.best = value
        return True


class EarlyStopping(Callback):
    """Ends the training when `monitor`, of the evaluations, has not become better by more
    than min_delta for `patience` of them, at least one.

    mode: 'min' or 'max' is better; 'auto' takes 'max' for accuracies, else 'min'.
    baseline: what the first evaluation must beat.
    save_best_model: saves the best one to best_model in the save_dir of fit().
    """

    def __init__(
        self,
        monitor="loss",
        mode="auto",
        patience=0,
        verbose=1,
        min_delta=0,
        baseline=None,
        save_best_model=True,
    ):
        super().__init__()
        self._settings = ("EarlyStopping", monitor, mode, min_delta, baseline)
        self.monitor = monitor
        self.patience = patience
        self.verbose = verbose
        self.save_best_model = save_best_model
        self.save_dir = None
        self._watch = _Watch(*self._settings)
        self.wait_epoch = 0
        self.stopped_epoch = 0

    @property
    def best_value(self):
        return self._watch.best

    def on_train_begin(self, logs=None):
        self._watch = _Watch(*self._settings)
        self.wait_epoch = 0
        self.stopped_epoch = 0

    def on_eval_end(self, logs=None):
        value = self._watch.value(logs)
        if value is None:
            return
        if self._watch.better(value):
            self.wait_epoch = 0
            if self.save_best_model and self.save_dir is not None and _is_first():
                self.model.save(os.path.join(self.save_dir, "best_model"))
        else:
            self.wait_epoch += 1
            if self.wait_epoch >= self.patience:
                self.model.stop_training = True
                if self.verbose > 0 and _is_first():
                    print(f"Epoch {self.stopped_epoch + 1}: Early stopping.")
        self.stopped_epoch += 1


class ReduceLROnPlateau(Callback):
    """Multiplies the learning rate, a number, by `factor` when `monitor`, of the
    evaluations, has not become better for `patience` of them.

    cooldown: so many evaluations do not count after a change. min_lr: the least rate.
    """

    def __init__(
        self,
        monitor="loss",
        factor=0.1,
        patience=10,
        verbose=1,
        mode="auto",
        min_delta=1e-4,
        cooldown=0,
        min_lr=0,
    ):
        super().__init__()
        if not factor < 1.0:
            raise ValueError(f"ReduceLROnPlateau: factor must be below 1, not {factor}")
        self._settings = ("ReduceLROnPlateau", monitor, mode, min_delta)
        self.monitor = monitor
        self.factor = factor
        self.patience = patience
        self.verbose = verbose
        self.cooldown = cooldown
        self.min_lr = min_lr
        self._watch = _Watch(*self._settings)
        self._waited = self._cooling = 0

    def on_train_begin(self, logs=None):
        self._watch = _Watch(*self._settings)
        self._waited = self._cooling = 0

    def on_eval_end(self, logs=None):
        value = self._watch.value(logs)
        if value is None:
            return
        if self._cooling > 0:
            self._cooling -= 1
            self._waited = 0
        if self._watch.better(value):
            self._waited = 0
        elif self._cooling == 0:
            self._waited += 1
            if self._waited >= self.patience:
                self._reduce()

    def _reduce(self):
        optimizer = self.model._optimizer
        if not isinstance(optimizer._learning_rate, (int, float)):
            warnings.warn(
                "ReduceLROnPlateau: the optimizer has a schedule, which sets its rate",
                stacklevel=3,
            )
            return
        old = optimizer.get_lr()
        if old > self.min_lr:
            new = max(old * self.factor, self.min_lr)
            optimizer.set_lr(new)
            if self.verbose > 0 and _is_first():
                print(f"ReduceLROnPlateau: the learning rate is {new} now.")
        self._cooling = self.cooldown
        self._waited = 0


class CallbackList:
    """Calls all of them, in order."""

    def __init__(self, callbacks, model, params):
        self._callbacks = list(callbacks)
        for callback in self._callbacks:
            callback.set_model(model)
            callback.set_params(params)

    def __iter__(self):
        return iter(self._callbacks)

    def __getattr__(self, name):
        if not name.startswith("on_"):
            raise AttributeError(name)
        methods = [getattr(callback, name) for callback in self._callbacks]

        def call(*args):
            for method in methods:
                method(*args)

        return call


def with_defaults(given, log_freq, verbose, save_freq=1, save_dir=None, trains=False):
    """Those of the user, and the usual ones that are not among them."""
    given = given if isinstance(given, (list, tuple)) else [given]
    given = [callback for callback in given if callback is not None]
    for callback in given:
        if not isinstance(callback, Callback):
            raise TypeError(
                "callbacks must be paddle.callbacks.Callback objects, but one is a "
                f"{type(callback).__name__}"
            )

    def has(kind):
        return any(isinstance(callback, kind) for callback in given)

    before, behind = [], []
    if verbose and not has(ProgBarLogger):
        before.append(ProgBarLogger(log_freq, verbose))
    if trains and not has(LRScheduler):
        before.insert(0, LRScheduler())
    if trains and not has(ModelCheckpoint):
        behind.append(ModelCheckpoint(save_freq, save_dir))
    for callback in given:
        if isinstance(callback, EarlyStopping):
            callback.save_dir = save_dir
    return [*before, *given, *behind]


__all__ = _names.own(globals(), "CallbackList", "with_defaults")
