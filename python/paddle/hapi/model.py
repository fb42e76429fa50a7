# SPDX-License-Identifier: Apache-2.0
"""A network with its optimizer, loss and metrics, which is trained by one call."""

import contextlib
import inspect
import os
import warnings

from .. import _core
from .._core import building
from ..amp import auto_cast
from ..autograd import no_grad
from ..metric import Metric
from ..nn import Layer
from ..static.input import InputSpec
from ..tensor.creation import to_tensor
from .callbacks import CallbackList, with_defaults
from .precision import read_configs


def _as_list(value):
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _flat(batch):
    """The tensors of a batch in order, also of nested lists and of dicts."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return [tensor for part in batch for tensor in _flat(part)]
    return [batch]


def _tensors(values):
    return [v if isinstance(v, _core.Tensor) else to_tensor(v) for v in values]


class Model:
    """A network that fit(), evaluate() and predict() run over data.

        model = paddle.Model(net)
        model.prepare(optimizer, paddle.nn.CrossEntropyLoss(), paddle.metric.Accuracy())
        model.fit(train_data, eval_data, batch_size=64, epochs=2)

    inputs, labels: InputSpecs of what the network and, behind it, the loss take from a
        batch. By default the network takes as many as forward() needs, and the rest are
        labels. A model that is saved for inference needs `inputs`, or to have seen data.

    It computes eagerly. In a job of several processes each trains on its part of the data,
    with gradients averaged, and the first prints and saves.
    """

    def __init__(self, network, inputs=None, labels=None):
        if building.on:
            raise RuntimeError(
                "paddle.Model trains layers that compute at once: call "
                "paddle.disable_static() before they are made"
            )
        if not isinstance(network, Layer):
            raise TypeError(
                "paddle.Model takes a paddle.nn.Layer, but got a "
                f"{type(network).__name__}"
            )
        self.network = network
        self.stop_training = False
        self._inputs = self._specs("inputs", inputs)
        self._labels = self._specs("labels", labels)
        self._runner = network  # the network, or what averages its gradients
        self._optimizer = self._loss = None
        self._metrics = []
        self._casts = self._scaler = None  # of mixed precision
        self._seen = None  # InputSpecs of the inputs of the last batch

    @staticmethod
    def _specs(what, given):
        specs = list(given.values()) if isinstance(given, dict) else _as_list(given)
        for spec in specs:
            if not isinstance(spec, InputSpec):
                raise TypeError(
                    f"paddle.Model: {what} must be InputSpecs, but one is a "
                    f"{type(spec).__name__}"
                )
        return specs

    # ---- settings

    def prepare(self, optimizer=None, loss=None, metrics=None, amp_configs=None):
        """What the model is trained with.

        loss: a layer or function of the outputs and labels; several losses are added.
        metrics: one paddle.metric.Metric or a list.
        amp_configs: trains in mixed precision: the level 'O1' or 'O2', or a dict with
            'level' and arguments of paddle.amp.auto_cast and paddle.amp.GradScaler.
            Evaluation and prediction stay in float32.
        """
        if loss is not None and not callable(loss):
            raise TypeError(
                "paddle.Model.prepare: loss must be a layer or a function, but is a "
                f"{type(loss).__name__}"
            )
        for metric in _as_list(metrics):
            if not isinstance(metric, Metric):
                raise TypeError(
                    "paddle.Model.prepare: metrics must be paddle.metric.Metric objects, "
                    f"but one is a {type(metric).__name__}"
                )
        self._optimizer, self._loss = optimizer, loss
        self._metrics = _as_list(metrics)
        self._casts, self._scaler = read_configs(amp_configs)
        self._join_job()

    def _join_job(self):
        from ..distributed import get_world_size, init_parallel_env
        from ..nn.layer.data_parallel import DataParallel

        if get_world_size() > 1 and not isinstance(self._runner, DataParallel):
            init_parallel_env()
            self._runner = DataParallel(self.network)

    def parameters(self, *args, **kwargs):
        """Those of the network."""
        return self.network.parameters(*args, **kwargs)

    def summary(self, input_size=None, dtype=None):
        """As paddle.summary(); by default for the inputs that the model was made with or
        has seen."""
        from .summary import summary

        if input_size is None:
            input_size = self._inputs or self._seen
        if not input_size:
            raise ValueError("paddle.Model.summary: input_size is not known")
        return summary(self.network, input_size, dtype)

    # ---- one batch

    def _need(self, function, **parts):
        for name, part in parts.items():
            if part is None:
                raise RuntimeError(
                    f"paddle.Model.{function}: there is no {name}: give one to prepare()"
                )

    def _outputs(self, network, inputs):
        self._seen = [
            InputSpec([None, *x.shape[1:]], x.dtype)
            if x.shape
            else InputSpec([], x.dtype)
            for x in inputs
        ]
        return _as_list(network(*inputs))

    def _losses(self, outputs, labels):
        return _as_list(self._loss(*outputs, *labels))

    def _measure(self, outputs, labels):
        """Adds to the metrics; what each says of this batch."""
        found = []
        for metric in self._metrics:
            values = _as_list(metric.compute(*outputs, *labels))
            found.append(metric.update(*[_numpy(v) for v in values]))
        return found

    def _result(self, losses, outputs, labels):
        values = [loss.numpy() for loss in losses]
        if not self._metrics:
            return values
        return values, self._measure(outputs, labels)

    def train_batch(self, inputs, labels=None, update=True):
        """One step on a batch. Returns the losses, and with metrics also what these say
        of the batch. Without `update` gradients are only added up."""
        self._need("train_batch", optimizer=self._optimizer, loss=self._loss)
        self.network.train()
        labels = _tensors(_as_list(labels))
        casts = self._casts
        with contextlib.nullcontext() if casts is None else auto_cast(**casts):
            outputs = self._outputs(self._runner, _tensors(_as_list(inputs)))
            losses = self._losses(outputs, labels)
            total = losses[0]
            for loss in losses[1:]:
                total = total + loss
        if self._scaler is not None:
            total = self._scaler.scale(total)
        total.backward()
        if update:
            self._update()
        return self._result(losses, outputs, labels)

    def _update(self):
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self._optimizer.clear_grad()

    def eval_batch(self, inputs, labels=None):
        """The losses of a batch, and with metrics also what these say of it."""
        self.network.eval()
        with no_grad():
            labels = _tensors(_as_list(labels))
            outputs = self._outputs(self.network, _tensors(_as_list(inputs)))
            losses = [] if self._loss is None else self._losses(outputs, labels)
            return self._result(losses, outputs, labels)

    def predict_batch(self, inputs):
        """The outputs for a batch, as arrays."""
        self.network.eval()
        with no_grad():
            outputs = self._outputs(self.network, _tensors(_as_list(inputs)))
            return [_numpy(output) for output in outputs]

    # ---- files

    def save(self, path, training=True):
        """Saves the parameters to PATH.pdparams, the state of the optimizer to PATH.pdopt
        and that of mixed precision to PATH.pdscaler; without `training` a model for inference to PATH.pdmodel and
        PATH.pdiparams."""
        from ..framework.io import save

        folder, name = os.path.split(path)
        if not name:
            raise ValueError(f"paddle.Model.save: {path!r} must end in a file name")
        if folder:
            os.makedirs(folder, exist_ok=True)
        if not training:
            return self._save_for_inference(path)
        save(self.network.state_dict(), path + ".pdparams")
        if self._optimizer is not None:
            save(self._optimizer.state_dict(), path + ".pdopt")
        if self._scaler is not None:
            save(self._scaler.state_dict(), path + ".pdscaler")

    def _save_for_inference(self, path):
        from .. import jit

        specs = self._inputs or self._seen
        if not specs:
            raise RuntimeError(
                "paddle.Model.save: what the network takes is not known: give `inputs` "
                "to paddle.Model, or run it once"
            )
        training = self.network.training
        self.network.eval()
        try:
            jit.save(self.network, path, input_spec=specs)
        finally:
            if training:
                self.network.train()

    def load(self, path, skip_mismatch=False, reset_optimizer=False):
        """Loads what save() wrote: the parameters, and the optimizer's state where there
        is one of it, unless reset_optimizer.

        skip_mismatch: leaves parameters as they are that the file does not have, or has
            in another shape, with a warning; else they are an error.
        """
        from ..framework.io import load

        path = os.fspath(path)
        for suffix in (".pdparams", ".pdopt", ".pdmodel"):
            path = path.removesuffix(suffix)
        state = load(path + ".pdparams")
        wrong = self._mismatches(state)
        if wrong and not skip_mismatch:
            raise ValueError(f"paddle.Model.load: {path}.pdparams: {wrong[0][1]}")
        for name, reason in wrong:
            warnings.warn(
                f"paddle.Model.load: {reason}; it stays as it is", stacklevel=2
            )
            state.pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of those that were skipped
            self.network.set_state_dict(state)
        if reset_optimizer:
            return
        if self._optimizer is not None and os.path.exists(path + ".pdopt"):
            self._optimizer.set_state_dict(load(path + ".pdopt"))
        if self._scaler is not None and os.path.exists(path + ".pdscaler"):
            self._scaler.load_state_dict(load(path + ".pdscaler"))

    def _mismatches(self, state):
        """(name, reason) of what does not fit the network."""
        found = []
        for name, own in self.network.state_dict().items():
            if name not in state:
                found.append((name, f"there is no {name}"))
            elif list(state[name].shape) != list(own.shape):
                shapes = (
                    f"{list(state[name].shape)}, but the network's {list(own.shape)}"
                )
                found.append((name, f"{name} has shape {shapes}"))
        return found

    # ---- over data

    def _loader(self, data, batch_size, shuffle, drop_last, num_workers, split):
        """What gives the batches of `data`: of a Dataset a DataLoader, in several
        processes with `split` for the part of this one; others are taken as they are."""
        from ..distributed import get_world_size
        from ..io import DataLoader, Dataset, DistributedBatchSampler, IterableDataset

        if not isinstance(data, Dataset):
            if not hasattr(data, "__iter__"):
                raise TypeError(
                    "paddle.Model: data must be a Dataset, a DataLoader or give batches "
                    f"one by one, but is a {type(data).__name__}"
                )
            return data
        if isinstance(data, IterableDataset):
            return DataLoader(
                data,
                batch_size=batch_size,
                drop_last=drop_last,
                num_workers=num_workers,
            )
        if split and get_world_size() > 1:
            sampler = DistributedBatchSampler(
                data, batch_size, shuffle=shuffle, drop_last=drop_last
            )
            return DataLoader(data, batch_sampler=sampler, num_workers=num_workers)
        return DataLoader(
            data,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            num_workers=num_workers,
        )

    def _split(self, batch, has_labels=True):
        """(inputs, labels) of a batch."""
        batch = _flat(batch)
        if self._inputs:
            count = len(self._inputs)
        else:
            count = _arguments(self.network.forward, len(batch) - has_labels)
        if count > len(batch):
            raise ValueError(
                f"paddle.Model: the network takes {count} inputs, but a batch has "
                f"{len(batch)} parts"
            )
        return batch[:count], batch[count:]

    def _names(self):
        """The names of what logs show."""
        names = ["loss"] if self._loss is not None else []
        for metric in self._metrics:
            names += _as_list(metric.name())
        return names

    def _log(self, result, step, inputs):
        losses = result[0] if self._metrics else result
        logs = {"loss": [float(loss.ravel()[0]) for loss in losses]} if losses else {}
        for metric in self._metrics:
            values = _as_list(metric.accumulate())
            logs.update(zip(_as_list(metric.name()), values))
        return {**logs, "step": step, "batch_size": inputs[0].shape[0]}

    def fit(
        self,
        train_data=None,
        eval_data=None,
        batch_size=1,
        epochs=1,
        eval_freq=1,
        log_freq=10,
        save_dir=None,
        save_freq=1,
        verbose=2,
        drop_last=False,
        shuffle=True,
        num_workers=0,
        callbacks=None,
        accumulate_grad_batches=1,
        num_iters=None,
    ):
        """Trains for `epochs` over train_data, and evaluates eval_data after every
        eval_freq of them.

        train_data, eval_data: a Dataset, which is cut into batches as batch_size, shuffle
            and drop_last say; or a DataLoader or another iterable of batches. An epoch
            without a batch is a ValueError.
        log_freq, verbose: see paddle.callbacks.ProgBarLogger.
        save_dir, save_freq: see paddle.callbacks.ModelCheckpoint.
        accumulate_grad_batches: the parameters change after so many batches.
        num_iters: ends after so many batches, also in the middle of an epoch.
        """
        self._need("fit", optimizer=self._optimizer, loss=self._loss)
        if train_data is None:
            raise ValueError("paddle.Model.fit: train_data is missing")
        if accumulate_grad_batches < 1:
            raise ValueError(
                "paddle.Model.fit: accumulate_grad_batches must be at least 1, not "
                f"{accumulate_grad_batches}"
            )
        batches = self._loader(
            train_data, batch_size, shuffle, drop_last, num_workers, split=True
        )
        tests = None
        if eval_data is not None:
            tests = self._loader(
                eval_data, batch_size, False, False, num_workers, False
            )
        steps = _length(batches)
        if num_iters is not None and steps is not None:
            steps = min(steps, num_iters)
        given = with_defaults(callbacks, log_freq, verbose, save_freq, save_dir, True)
        params = {
            "batch_size": batch_size,
            "epochs": epochs,
            "steps": steps,
            "verbose": verbose,
            "metrics": self._names(),
        }
        calls = CallbackList(given, self, params)
        self.stop_training = False
        left = num_iters
        logs = {}
        calls.on_train_begin(None)
        for epoch in range(epochs):
            calls.on_epoch_begin(epoch, None)
            logs, done = self._train_epoch(
                epoch, batches, calls, accumulate_grad_batches, left
            )
            if done == 0 and left != 0:
                # Who went on would save what was not trained over what was.
                raise ValueError(
                    f"paddle.Model.fit: epoch {epoch} had no batch, so nothing was "
                    "trained and nothing is saved: train_data is empty, has too few "
                    "samples for a batch with drop_last, or is an iterator that an "
                    "epoch before has used up"
                )
            calls.on_epoch_end(epoch, logs)
            if tests is not None and epoch % eval_freq == 0:
                logs = self._evaluate(tests, calls, None)
            if left is not None:
                left -= done
                if left <= 0:
                    break
            if self.stop_training:
                break
        calls.on_train_end(logs)

    def _train_epoch(self, epoch, batches, calls, every, most):
        """The logs of the last step, and how many there were."""
        sampler = getattr(batches, "batch_sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        for metric in self._metrics:
            metric.reset()
        total = _length(batches)
        if most is not None:
            total = most if total is None else min(total, most)
        logs, done, pending = {}, 0, False
        for step, batch in enumerate(batches):
            if most is not None and step >= most:
                break
            calls.on_train_batch_begin(step, logs)
            inputs, labels = self._split(batch)
            update = (step + 1) % every == 0 or step + 1 == total
            result = self.train_batch(inputs, labels, update)
            pending = not update
            logs = self._log(result, step, inputs)
            calls.on_train_batch_end(step, logs)
            done = step + 1
        if pending:  # nobody knew that it was the last one
            self._update()
        return logs, done

    def evaluate(
        self,
        eval_data,
        batch_size=1,
        log_freq=10,
        verbose=2,
        num_workers=0,
        callbacks=None,
        num_iters=None,
    ):
        """The loss of the last batch and the metrics over eval_data: {'loss': [...],
        'acc': ...}. In several processes each looks at all of the data."""
        tests = self._loader(eval_data, batch_size, False, False, num_workers, False)
        params = {"verbose": verbose, "metrics": self._names()}
        calls = CallbackList(with_defaults(callbacks, log_freq, verbose), self, params)
        logs = self._evaluate(tests, calls, num_iters)
        return {name: logs[name] for name in self._names() if name in logs}

    def _evaluate(self, tests, calls, most):
        for metric in self._metrics:
            metric.reset()
        steps = _length(tests)
        if most is not None:
            steps = most if steps is None else min(steps, most)
        calls.on_eval_begin({"steps": steps, "metrics": self._names()})
        logs = {}
        for step, batch in enumerate(tests):
            if most is not None and step >= most:
                break
            calls.on_eval_batch_begin(step, logs)
            inputs, labels = self._split(batch)
            logs = self._log(self.eval_batch(inputs, labels), step, inputs)
            calls.on_eval_batch_end(step, logs)
        calls.on_eval_end(logs)
        return logs

    def predict(
        self,
        test_data,
        batch_size=1,
        num_workers=0,
        stack_outputs=False,
        verbose=1,
        callbacks=None,
    ):
        """The outputs over test_data: for each output of the network a tuple of arrays,
        one for each batch; with stack_outputs one array of all."""
        import numpy as np

        tests = self._loader(test_data, batch_size, False, False, num_workers, False)
        calls = CallbackList(
            with_defaults(callbacks, 1, verbose), self, {"verbose": verbose}
        )
        calls.on_predict_begin({"steps": _length(tests), "metrics": []})
        logs, found = {}, []
        for step, batch in enumerate(tests):
            calls.on_predict_batch_begin(step, logs)
            inputs, _ = self._split(batch, has_labels=False)
            found.append(self.predict_batch(inputs))
            logs = {"step": step, "batch_size": inputs[0].shape[0]}
            calls.on_predict_batch_end(step, logs)
        calls.on_predict_end(logs)
        outputs = list(zip(*found))
        if stack_outputs:
            outputs = [np.concatenate(parts) for parts in outputs]
        return outputs


def _numpy(value):
    return value.numpy() if hasattr(value, "numpy") else value


def _length(batches):
    try:
        return len(batches)
    except TypeError:
        return None


def _arguments(forward, otherwise):
    """How many arguments forward() must be given; `otherwise` if it takes any number."""
    count = 0
    for parameter in inspect.signature(forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return max(otherwise, 1)
        if parameter.default is parameter.empty and parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        ):
            count += 1
    return max(count, 1)
