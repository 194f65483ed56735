"""The report of a training says in numbers what its loop is going to do."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modalities_pipeline.config.interfaces import NUMBER
from modalities_pipeline.config.schemas.settings import TrainingSettings
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.progress.training_report import training_report


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Steps 4 to 10 of a training on two data parallel ranks of four."""
    config = tmp_path / "config.yaml"
    config.touch()
    return {
        "experiment_id": "x",
        "config_file_path": config,
        "cuda_env": {"local_rank": 0, "world_size": 4, "global_rank": 0},
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
        "training_progress": {
            "global_num_seen_tokens": 384,
            "num_seen_steps": 4,
            "num_seen_samples": 48,
            "last_step": 3,
        },
    }


def report(settings: dict[str, Any], **sections: Any) -> Any:
    return training_report({"settings": TrainingSettings.model_validate(settings), **sections}, ["beware"])


def test_a_step_is_counted_by_the_data_parallel_degree_not_by_the_ranks(settings):
    numbers = report(settings).as_dict()
    assert numbers["tokens_per_step"] == 96
    assert numbers["samples_per_step"] == 12


def test_numbers_are_those_of_the_config(settings):
    dataset = [None] * 60
    assert report(settings, train_dataset=dataset).as_dict() == {
        "num_target_steps": 10,
        "num_target_tokens": 960,
        "num_seen_steps": 4,
        "num_seen_tokens": 384,
        "tokens_per_step": 96,
        "samples_per_step": 12,
        "dp_degree": 2,
        "num_samples_in_dataset": 60,
        "num_epochs": 2.0,
        "training_log_interval_in_steps": 1,
        "evaluation_interval_in_steps": 5,
        "checkpointing_interval_in_steps": 4,
        "num_evaluations": 2,
        "num_checkpoints": 2,
        "warnings": "beware",
    }


@pytest.mark.parametrize("is_enforced", [True, False])
@pytest.mark.parametrize("interval", [1, 3, 4, 5, 10, 11])
@pytest.mark.parametrize("seen", [0, 4, 5, 10])
def test_evaluations_and_checkpoints_are_those_of_the_loop(settings, seen, interval, is_enforced):
    progress = {"num_seen_steps": seen, "last_step": seen - 1, "global_num_seen_tokens": 96 * seen}
    given = {
        **settings,
        "training_progress": {**settings["training_progress"], **progress},
        "intervals": dict.fromkeys(settings["intervals"], interval),
        "consistency_enforcement": {
            "enforce_last_step_evaluated": is_enforced,
            "enforce_last_step_checkpointed": is_enforced,
        },
    }
    expected = sum(step % interval == 0 or (is_enforced and step == 10) for step in range(seen + 1, 11))
    numbers = report(given).as_dict()
    assert (numbers["num_evaluations"], numbers["num_checkpoints"]) == (expected, expected)


def test_people_read_it_in_lines(settings):
    lines = report(settings, train_dataset=[None] * 60).text().splitlines()
    assert lines == [
        "Training report",
        "  target: 10 steps, 960 tokens",
        "  done before: 4 steps, 384 tokens",
        "  per step: 96 tokens = 2 data parallel ranks x 2 accumulated micro batches x 3 samples x 8 tokens",
        "  data: 60 samples, seen 2.00 times",
        "  every: 1 steps training log, 5 steps evaluation, 4 steps checkpointing",
        "  this run: 2 evaluations, 2 checkpoints",
        "  parameters: not known yet",
        "  memory per rank: no estimate for this model",
        "  warning: beware",
    ]


def test_without_all_numbers_there_is_no_report(settings):
    settings["training_target"]["num_target_tokens"] = Unbuilt("number_conversion", "custom", NUMBER)
    assert report(settings) is None
    assert training_report({}) is None


def test_a_built_model_is_counted_by_its_parameters(settings):
    sections = {"settings": TrainingSettings.model_validate(settings), "model_raw": SimpleNamespace()}
    built = training_report(sections, num_parameters=7)
    assert built is not None
    assert built.as_dict()["num_parameters"] == 7
