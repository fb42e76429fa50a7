# SPDX-License-Identifier: Apache-2.0
"""Training steps as programs on a GPU against the same steps in torch, captured by hand as
a CUDA graph: the same weights and batches on both sides, whose losses must agree over the
first steps, or the ratio is void.

The first row of a model has the batch on the device already and fetches nothing: exe.run
replays the record of the program, torch its graph. The second has the copies of a feed on
the device and of the loss on both sides. What torch takes without a graph, and what a
step takes with arrays of numpy in and out, is said below. TF32 is as torch has it:
convolutions use it, matrix products do not.

    python benchmarks/static_gpu.py

Needs a GPU, and a build for it (tools/test-gpu makes one).
"""

import sys

import numpy as np
from eager_steps import MODELS as EAGER
from eager_steps import (
    make_batch,
    make_weights,
    paddle_parts,
    set_torch_weights,
    torch_parts,
)
from measure import Row

_, MLP, CNN = EAGER
MODELS = {
    "GPU MLP 32-128-128-2, SGD, 128": dict(EAGER[MLP], steps=(400, 12)),
    "GPU CNN 32x32, Adam, 32": dict(EAGER[CNN], steps=(100, 12)),
}
BAR = 1.05
LOSS_TOLERANCE = 1e-3  # relative, without TF32


def best_in_turns(torch, functions, repeat, turns):
    """As that of measure, to the end of what the device has to do."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    best = [float("inf")] * len(functions)
    order = list(range(len(functions)))
    for _ in range(turns):
        for i in order:
            torch.cuda.synchronize()
            start.record()
            for _ in range(repeat):
                functions[i]()
            end.record()
            torch.cuda.synchronize()
            best[i] = min(best[i], start.elapsed_time(end) * 1e3 / repeat)
        order.reverse()
    return best


def print_gpu_rows(what, run):
    """Prints the rows; whether a bar is missed."""
    import torch

    if not torch.cuda.is_available():
        print(f"{what} on a GPU: not measured, torch sees no GPU here")
        return False
    missed = False
    for row in run():
        print(row, flush=True)
        missed |= not row.ok
    return missed


# ---- ours
class Ours:
    def __init__(self, paddle, spec, weights, batch):
        static = paddle.static
        x, y = batch
        y = y.reshape(-1, 1)
        paddle.enable_static()
        self.program, startup = static.Program(), static.Program()
        with static.program_guard(self.program, startup):
            data = static.data("x", list(x.shape), "float32")
            label = static.data("y", list(y.shape), "int64")
            model, loss_layer, optimizer = paddle_parts(paddle, spec)
            self.loss = loss_layer(model(data), label)
            optimizer.minimize(self.loss)
        place = paddle.CUDAPlace(0)
        self.executor = static.Executor(place)
        self.scope = static.Scope()
        self.executor.run(startup, scope=self.scope)
        paddle.disable_static()
        for p, w in zip(model.parameters(), weights):
            self.scope.var(p.name).get_tensor().set(w, place)
        self.arrays = {"x": x, "y": y}
        self.tensors = {
            k: paddle.to_tensor(v, place=place) for k, v in self.arrays.items()
        }
        for key, value in self.arrays.items():
            self.scope.var(key).get_tensor().set(value, place)

    def run(self, feed=None, fetch=None, numpy=True):
        return self.executor.run(
            self.program, feed, fetch, scope=self.scope, return_numpy=numpy
        )

    def bare(self):
        self.run()

    def with_copies(self):
        return self.run(self.tensors, [self.loss], False)[0]

    def with_numpy(self):
        return self.run(self.arrays, [self.loss])[0]


# ---- torch
class Torch:
    def __init__(self, torch, spec, weights, batch, **more):
        self.weights = weights
        self.torch = torch
        if spec["optimizer"][0] == "Adam":
            more["capturable"] = True
        self.model, self.loss_layer, self.optimizer = torch_parts(
            torch, spec, "cuda", **more
        )
        self.x, self.y = (torch.from_numpy(a).cuda() for a in batch)
        self.into = self.x.clone(), self.y.clone()
        self.arrays = batch
        self.begin()
        self.capture()
        self.begin()

    def begin(self):
        set_torch_weights(self.torch, self.model, self.weights)
        with self.torch.no_grad():
            for state in self.optimizer.state.values():
                for value in state.values():
                    if value is not None:
                        value.zero_()

    def eager(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_layer(self.model(self.into[0]), self.into[1])
        loss.backward()
        self.optimizer.step()
        return loss

    def capture(self):
        cuda = self.torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(3):
                self.eager()
        cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = cuda.CUDAGraph()
        with cuda.graph(self.graph):
            self.loss = self.eager().detach()

    def bare(self):
        self.graph.replay()

    def with_copies(self):
        self.into[0].copy_(self.x)
        self.into[1].copy_(self.y)
        self.graph.replay()
        return self.loss.clone()

    def with_numpy(self):
        for into, array in zip(self.into, self.arrays):
            into.copy_(self.torch.from_numpy(array))
        self.graph.replay()
        return self.loss.cpu().numpy()


def check_losses(name, paddle, torch, spec, weights, batch):
    """Both sides take the same first steps, in full precision: TF32 has ten bits."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    ours = Ours(paddle, spec, weights, batch)
    peer = Torch(torch, spec, weights, batch)
    for i in range(20):
        a, b = ours.with_copies().numpy().item(), peer.with_copies().item()
        if abs(a - b) > LOSS_TOLERANCE * abs(b):
            raise AssertionError(f"{name}: loss of step {i} is {a}, the peer's {b}")
    torch.backends.cudnn.allow_tf32 = before


def run():
    import paddle
    import torch

    for name, spec in MODELS.items():
        rng = np.random.default_rng(7)
        weights, batch = make_weights(spec["layers"], rng), make_batch(spec, rng)
        check_losses(name, paddle, torch, spec, weights, batch)
        ours = Ours(paddle, spec, weights, batch)
        peer = Torch(torch, spec, weights, batch)
        fused = Torch(torch, spec, weights, batch, fused=True)
        for _ in range(4):  # each way of running has a record of its own
            ours.bare(), ours.with_numpy(), ours.with_copies()
        repeat, turns = spec["steps"]
        bare = best_in_turns(torch, [ours.bare, peer.bare, fused.bare], repeat, turns)
        copies = best_in_turns(
            torch, [ours.with_copies, peer.with_copies], repeat, turns
        )
        numpy = best_in_turns(torch, [ours.with_numpy, peer.with_numpy], repeat, turns)
        eager = best_in_turns(torch, [peer.eager], repeat // 4, 3)[0]
        note = f"torch with fused=True {bare[2]:.1f}, without a graph {eager:.1f}; "
        note += f"numpy in and out: ours {numpy[0]:.1f}, torch's graph {numpy[1]:.1f}"
        yield Row(name, bare[0], bare[1], "us", BAR, "its graph", note=note)
        yield Row("the same, device feed and fetch", *copies, "us", BAR, "its graph")
        if ours.executor._engine.num_replays == 0:
            raise AssertionError(f"{name}: the program was not recorded")


if __name__ == "__main__":
    sys.exit(print_gpu_rows("programs", run))
