# SPDX-License-Identifier: Apache-2.0
"""Whether this installation trains."""


def run_check():
    """Trains a small model on the current device and prints that it worked.

    RuntimeError if the loss does not go down.
    """
    import paddle

    place = paddle.get_device()
    x = paddle.linspace(-1.0, 1.0, 32).reshape([16, 2])
    target = x.sum(axis=1, keepdim=True)
    layer = paddle.nn.Linear(2, 1)
    sgd = paddle.optimizer.SGD(0.1, parameters=layer.parameters())
    losses = []
    for _ in range(20):
        loss = ((layer(x) - target) ** 2).mean()
        loss.backward()
        sgd.step()
        sgd.clear_grad()
        losses.append(loss.item())
    if not losses[-1] < losses[0]:
        raise RuntimeError(
            f"a small model does not learn on {place}: its loss went from "
            f"{losses[0]} to {losses[-1]}"
        )
    print(f"paddle {paddle.__version__} works on {place}.")
