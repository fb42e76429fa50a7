# SPDX-License-Identifier: Apache-2.0
"""To enter and leave paddle.amp.auto_cast, as every step of mixed precision does."""

from measure import Row, best_in_turns

ALLOWED_US = 2.0


def run():
    import paddle
    import torch

    def ours():
        with paddle.amp.auto_cast(dtype="bfloat16"):
            pass

    def peer():
        with torch.autocast("cpu", torch.bfloat16):
            pass

    best, of_torch = (1e6 * s for s in best_in_turns([ours, peer], 2000, 9))
    note = f"torch.autocast takes {of_torch:.1f} us"
    yield Row(
        "auto_cast, enter and leave", best, ALLOWED_US, "us", 1.0, "allowed", note=note
    )


if __name__ == "__main__":
    for row in run():
        print(row)
