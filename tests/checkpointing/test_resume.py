"""A config is changed just so that it continues from a checkpoint."""

from pathlib import Path

import pytest
import yaml

from modalities_pipeline.checkpointing.resume import checkpoint_path_of, overrides_to_resume
from modalities_pipeline.config.overlays import load_config, overrides_from
from modalities_pipeline.config.resolution import Unresolved
from modalities_pipeline.exceptions import CheckpointingError, ConfigError

RAW = {"component_key": "app_state", "variant_key": "raw", "config": {"model": "m"}}


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    folder = tmp_path / "eid_x-seen_steps_4-seen_tokens_512-target_steps_20-target_tokens_2560"
    folder.mkdir()
    (folder / ".metadata").touch()
    return folder


def _config(app_state: dict) -> dict:
    return {
        "app_state": app_state,
        "settings": {"step_profile": {"sequence_length": 8}, "training_progress": {"num_seen_steps": 0}},
    }


def _resumed(config: dict, checkpoint: Path) -> dict:
    """The content of a file with this config, with the overrides set in it."""
    path = checkpoint.parent / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return load_config(path, overrides_from(overrides_to_resume(config, checkpoint))).data


def test_raw_app_state_is_loaded_from_the_checkpoint(checkpoint):
    config = _config(RAW)
    changed = _resumed(config, checkpoint)
    assert changed["app_state_raw"] == RAW
    assert changed["app_state"]["variant_key"] == "dcp"
    assert changed["app_state"]["config"]["checkpoint_dir_path"] == str(checkpoint)
    assert changed["settings"]["training_progress"] == {
        "global_num_seen_tokens": 512,
        "num_seen_steps": 4,
        "num_seen_samples": 64,
        "last_step": 3,
    }


def test_a_warm_started_run_continues_from_its_own_checkpoint(checkpoint):
    config = _config({"component_key": "app_state", "variant_key": "dcp", "config": {"checkpoint_dir_path": "old"}})
    changed = _resumed(config, checkpoint)
    assert changed["app_state"]["config"]["checkpoint_dir_path"] == str(checkpoint)
    assert "app_state_raw" not in changed


def test_what_is_no_whole_checkpoint_is_refused(checkpoint, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".metadata").touch()
    with pytest.raises(ConfigError, match="not named like a checkpoint"):
        overrides_to_resume(_config(RAW), tmp_path / "other")
    (checkpoint / ".metadata").unlink()
    with pytest.raises(CheckpointingError, match="not complete"):
        overrides_to_resume(_config(RAW), checkpoint)


def test_folder_of_the_checkpoints_is_read_from_the_config():
    execution = {"config": {"checkpoint_path": "a/b"}}
    config = {"checkpoint_saving": {"config": {"checkpoint_saving_execution": execution}}}
    assert checkpoint_path_of(config) == Path("a/b")
    with pytest.raises(
        ConfigError, match=r"checkpoint_saving.config.checkpoint_saving_execution.config.checkpoint_path"
    ):
        checkpoint_path_of({})
    execution["config"]["checkpoint_path"] = Unresolved("${warmstart_env:x} is known in a warm start only")
    with pytest.raises(ConfigError, match=r"checkpoint_path: \$\{warmstart_env:x\} is known in a warm start only"):
        checkpoint_path_of(config)
