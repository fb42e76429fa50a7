# SPDX-License-Identifier: Apache-2.0
"""paddle.distributed.fleet with real processes."""

import numpy as np
import pytest

from tests.collective import training
from tests.collective.ranks import run

SCRIPT = "fleet_cases.py"
STEPS = 20


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize(
    "case",
    [
        "queries",
        "metrics",
        "user_defined",
        "user_defined_with_a_socket",
        "another_role",
        "static",
        "role_maker_alone",
        "mixed_precision",
    ],
)
def test_ranks_agree(case, num_ranks):
    run(num_ranks, SCRIPT, case)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_small_things_done_together(num_ranks):
    outputs = run(num_ranks, SCRIPT, "util")
    assert ["only here" in text for text in outputs] == [
        rank == 1 for rank in range(num_ranks)
    ]


@pytest.mark.parametrize(
    "kind, optimizer, num_ranks, tolerance",
    [("mlp", "Adam", 2, 1e-5), ("cnn", "Momentum", 3, 1e-6)],
)
def test_four_lines_make_a_script_distributed(
    tmp_path, kind, optimizer, num_ranks, tolerance
):
    out = tmp_path / "state.npz"
    run(num_ranks, SCRIPT, "train", kind, optimizer, out)
    model = training.make(kind)
    rule = training.make_optimizer(optimizer, model)
    for number in range(STEPS):
        training.step(model, rule, kind, number)
    training.assert_close(np.load(out), training.state(model), tolerance)
