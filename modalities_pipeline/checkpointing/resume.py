"""Changes a training config so that it continues from a checkpoint. Imports no torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.checkpointing.folders import require_complete
from modalities_pipeline.config.resolution import Unresolved
from modalities_pipeline.exceptions import ConfigError
from modalities_pipeline.progress.training_progress import parse_checkpoint_name

_RAW_APP_STATE = "app_state_raw"


def checkpoint_path_of(config_dict: Mapping[str, Any]) -> Path:
    """The folder in which a (resolved) training config puts its checkpoints.

    Raises:
        ConfigError: the config has no such setting, or it has no value here.
    """
    keys = ("checkpoint_saving", "config", "checkpoint_saving_execution", "config", "checkpoint_path")
    value: Any = config_dict
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            raise ConfigError(f"The config says nowhere where its checkpoints are ({'.'.join(keys)} is missing).")
        value = value[key]
    if isinstance(value, Unresolved):
        raise ConfigError(f"Where the checkpoints are is not known here ({'.'.join(keys)}: {value.reason}).")
    return Path(value)


def overrides_to_resume(config_dict: Mapping[str, Any], checkpoint_folder_path: Path) -> dict[str, Any]:
    """Overrides (see `config.loader`) that let a training config start from a checkpoint folder.

    The app state is loaded from the checkpoint, and the training progress is what the folder's name says.

    Args:
        config_dict: the content of the config, `${...}` resolved.

    Raises:
        ConfigError: the folder's name says nothing about the progress.
    """
    require_complete(checkpoint_folder_path)
    parsed = parse_checkpoint_name(checkpoint_folder_path)
    if parsed is None:
        raise ConfigError(f"{checkpoint_folder_path} is not named like a checkpoint folder.")
    _, progress = parsed
    num_tokens = progress.num_seen_tokens_total
    app_state = config_dict["app_state"]
    overrides: dict[str, Any] = {}
    if app_state["variant_key"] == "dcp":
        overrides["app_state.config.checkpoint_dir_path"] = str(checkpoint_folder_path)
    else:
        overrides[_RAW_APP_STATE] = app_state
        overrides["app_state"] = {
            "component_key": "app_state",
            "variant_key": "dcp",
            "config": {
                "raw_app_state": {"instance_key": _RAW_APP_STATE, "pass_type": "BY_REFERENCE"},
                "checkpoint_dir_path": str(checkpoint_folder_path),
            },
        }
    overrides["settings.training_progress"] = {
        "global_num_seen_tokens": num_tokens,
        "num_seen_steps": progress.num_seen_steps_total,
        "num_seen_samples": num_tokens // config_dict["settings"]["step_profile"]["sequence_length"],
        "last_step": progress.num_seen_steps_total - 1,
    }
    return overrides
