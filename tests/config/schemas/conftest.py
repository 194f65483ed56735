"""Fixtures of the tests of whole configs; its presence puts this folder on the path, for the modules they share."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Ten steps of 96 tokens on two ranks."""
    config = tmp_path / "config.yaml"
    config.touch()
    return {
        "experiment_id": "x",
        "config_file_path": config,
        "cuda_env": {"local_rank": 0, "world_size": 2, "global_rank": 0},
        "paths": {"train_dataset_path": "data/train.pbin"},
        "intervals": {
            "training_log_interval_in_steps": 1,
            "checkpointing_interval_in_steps": 4,
            "evaluation_interval_in_steps": 5,
        },
        "step_profile": {
            "gradient_accumulation_steps": 2,
            "local_train_micro_batch_size": 3,
            "sequence_length": 8,
            "dp_degree": 2,
        },
        "training_target": {"num_target_tokens": 960, "num_target_steps": 10},
    }
