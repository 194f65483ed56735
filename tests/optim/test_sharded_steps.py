"""Optimizers, gradient clippers and app states of models that are spread over ranks."""

from pathlib import Path

import pytest
import sharded_steps


@pytest.mark.multi_process
def test_two_ranks_clip_and_step_as_one_does(run_distributed, tmp_path):
    """B052, W22, W24: FSDP2, FSDP2 with tensor parallelism, FSDP1, a pipeline; shards that are empty on a rank."""
    run_distributed(Path(sharded_steps.__file__), 2, str(tmp_path))
