# SPDX-License-Identifier: Apache-2.0
"""Makes the files of this folder; run it with real Paddle 2.6.2."""

import collections
import pickle

import numpy as np
import paddle

paddle.seed(1)
net = paddle.nn.Sequential(
    paddle.nn.Linear(3, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Linear(4, 2)
)
scheduler = paddle.optimizer.lr.StepDecay(0.1, step_size=2)
adam = paddle.optimizer.Adam(scheduler, parameters=net.parameters())
for _ in range(3):
    loss = net(paddle.to_tensor(np.arange(15, dtype="float32").reshape(5, 3))).mean()
    loss.backward()
    adam.step()
    adam.clear_grad()
    scheduler.step()

arrays = {}
for protocol in (2, 3, 4):
    paddle.save(net.state_dict(), f"net_p{protocol}.pdparams", protocol=protocol)
    paddle.save(adam.state_dict(), f"adam_p{protocol}.pdopt", protocol=protocol)
for key, value in net.state_dict().items():
    arrays["net." + key] = value.numpy()
for key, value in adam.state_dict().items():
    if isinstance(value, paddle.Tensor):
        arrays["adam." + key] = value.numpy()
np.savez("expected.npz", **arrays)

dtypes = ["bool", "uint8", "int8", "int16", "int32", "int64"]
dtypes += ["float16", "float32", "float64", "complex64", "complex128"]
mixed = {
    "tensors": {d: paddle.to_tensor(np.array([[0, 1, 2]]), dtype=d) for d in dtypes},
    "bfloat16": paddle.to_tensor([1.5, -2.0], dtype="bfloat16"),
    "array": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big_endian": np.arange(3, dtype=">i4"),
    "scalar": np.float64(2.5),
    "empty": paddle.zeros([0, 3]),
    "zero_d": paddle.to_tensor(7),
    "plain": [1, 2.5, True, None, "text", (1, "a"), -(2**70), {3: {}}],
    "ordered": collections.OrderedDict(b=1, a=2),
}
for protocol in (2, 4):
    paddle.save(mixed, f"mixed_p{protocol}.pdparams", protocol=protocol)

# What 2.0 wrote: plain arrays and a table from structured to parameter names.
old = {key: value.numpy() for key, value in net.state_dict().items()}
old["StructuredToParameterName@@"] = {
    key: value.name for key, value in net.state_dict().items()
}
with open("net_2_0.pdparams", "wb") as file:
    pickle.dump(old, file, protocol=2)

# How protocols 2 and 3 store an array of more than 1 GiB: in slices.
whole = np.arange(10, dtype="float32").reshape(2, 5)
with open("sliced.pdparams", "wb") as file:
    pickle.dump(
        {
            "w@@.0": whole.flatten()[:6],
            "w@@.1": whole.flatten()[6:],
            "UnpackBigParamInfor@@": {
                "w": {"OriginShape": (2, 5), "slices": ["w@@.0", "w@@.1"]}
            },
            "StructuredToParameterName@@": {"w": "linear_0.w_0"},
        },
        file,
        protocol=2,
    )
