# SPDX-License-Identifier: Apache-2.0
"""paddle.Model in several processes: the same as one on the joined batches."""

import pytest

from tests.collective.ranks import run

SCRIPT = "model_cases.py"


@pytest.mark.parametrize("every", [1, 3])
def test_fit_averages_gradients_and_the_first_rank_speaks(tmp_path, every):
    first, second = run(2, SCRIPT, "fit", tmp_path, every)
    assert "Epoch 3/3" in first and "save checkpoint at" in first
    assert "Epoch" not in second and "save checkpoint" not in second
    assert "rank 1 is done" in second
