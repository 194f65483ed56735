"""Settings of a training are checked together, and the shipped configs have no fault."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from modalities_pipeline.config.faults import find_faults
from modalities_pipeline.config.loader import load_app_config_dict, load_yaml
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.config.schemas import TrainingComponentsInstantiationModel, TrainingSettings, training_report

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def settings(tmp_path) -> dict[str, Any]:
    config = tmp_path / "config.yaml"
    config.touch()
    return {
        "experiment_id": "x",
        "config_file_path": config,
        "referencing_keys": {"sample_key": "input_ids"},
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
        "training_progress": {"global_num_seen_tokens": 0, "num_seen_steps": 0, "num_seen_samples": 0, "last_step": -1},
    }


def _change(settings: dict[str, Any], dotted_key: str, value: Any) -> dict[str, Any]:
    section, key = dotted_key.split(".")
    return {**settings, section: {**settings.get(section, {}), key: value}}


def test_consistent_settings_pass_and_paths_may_be_any(settings):
    validated = TrainingSettings.model_validate(settings)
    assert validated.step_profile.global_num_tokens_per_train_step == 96
    assert validated.paths.train_dataset_path == Path("data/train.pbin")
    assert validated.paths.experiments_root_path is None


@pytest.mark.parametrize(
    "key",
    [
        "intervals.training_log_intervall",
        "step_profile.gradient_acumulation_steps",
        "consistency_enforcement.enforce_last_step_loged",
        "training_target.num_steps",
        "cuda_env.rank",
    ],
)
def test_misspelt_settings_are_refused(settings, key):
    """B077"""
    with pytest.raises(ValidationError, match="extra_forbidden"):
        TrainingSettings.model_validate(_change(settings, key, True))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("intervals.evaluation_interval_in_steps", 0),
        ("training_target.num_target_steps", 1e3),
        ("training_target.num_target_tokens", -1),
        ("step_profile.sequence_length", "8"),
        ("cuda_env.global_rank", 2),
    ],
)
def test_values_that_cannot_work_are_refused(settings, key, value):
    """B078"""
    with pytest.raises(ValidationError):
        TrainingSettings.model_validate(_change(settings, key, value))


def test_tokens_that_do_not_fit_the_steps_are_refused_or_warned_about(settings, caplog):
    """B078: tokens per step not dividing the target."""
    wrong = _change(settings, "training_target.num_target_tokens", 959)
    with pytest.raises(ValidationError, match=r"959 tokens are left for 10 steps, but these consume 960 \(96 a step"):
        TrainingSettings.model_validate(wrong)
    TrainingSettings.model_validate(
        _change(wrong, "consistency_enforcement.enforce_tokens_per_step_consistency", False)
    )
    assert "959 tokens are left" in caplog.text


def test_a_run_that_is_already_finished_is_consistent(settings):
    progress = {"global_num_seen_tokens": 960, "num_seen_steps": 10, "num_seen_samples": 120, "last_step": 9}
    TrainingSettings.model_validate({**settings, "training_progress": progress})
    with pytest.raises(ValidationError, match="num_seen_steps 11 is beyond num_target_steps 10"):
        TrainingSettings.model_validate({**settings, "training_progress": {**progress, "num_seen_steps": 11}})


@pytest.mark.parametrize("num_seen_steps", [0, 3, 5])
def test_last_step_is_warned_about_only_if_it_is_left_out(settings, caplog, num_seen_steps):
    """The interval counts all steps, as the loop does, not those that remain."""
    progress = {**settings["training_progress"], "num_seen_steps": num_seen_steps}
    progress["global_num_seen_tokens"] = num_seen_steps * 96
    settings = {**settings, "training_progress": progress}
    TrainingSettings.model_validate(settings)
    assert not caplog.records
    enforcement = dict.fromkeys(
        ("enforce_last_step_logged", "enforce_last_step_evaluated", "enforce_last_step_checkpointed"), False
    )
    TrainingSettings.model_validate({**settings, "consistency_enforcement": enforcement})
    assert caplog.messages == ["The last step (10) will not be checkpointed: the interval is 4."]


def test_report_tells_target_and_tokens_per_step(settings):
    report = training_report(TrainingSettings.model_validate(settings), {"parameters": 5})
    assert "10 steps, 960 tokens" in report
    assert "96 = 2 data parallel ranks x 2 accumulated micro batches x 3 samples x 8" in report
    assert "parameters: 5" in report


def test_training_config_that_is_shipped_has_no_fault(tmp_path):
    path = CONFIGS / "train_tiny_cpu.yaml"
    document = load_yaml(path)
    config = load_app_config_dict(path, tmp_path, "x")
    assert find_faults(config, TrainingComponentsInstantiationModel, Registry(), path, document.position) == []
