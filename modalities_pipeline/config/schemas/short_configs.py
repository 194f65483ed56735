"""Settings that a training config may leave out, because they are the same in nearly every one."""

from collections.abc import Mapping
from typing import Any

DEFAULT_REFERENCING_KEYS = {"sample_key": "input_ids", "target_key": "target_ids", "prediction_key": "logits"}
DEFAULT_TRAINING_PROGRESS = {"global_num_seen_tokens": 0, "num_seen_steps": 0, "num_seen_samples": 0, "last_step": -1}
DEFAULT_SETTINGS: Mapping[str, Any] = {
    "experiment_id": "${modalities_env:experiment_id}",
    "config_file_path": "${modalities_env:config_file_path}",
    "referencing_keys": DEFAULT_REFERENCING_KEYS,
    "cuda_env": {
        "local_rank": "${cuda_env:LOCAL_RANK}",
        "global_rank": "${cuda_env:RANK}",
        "world_size": "${cuda_env:WORLD_SIZE}",
    },
    "paths": {},
    "consistency_enforcement": {},
    "training_progress": DEFAULT_TRAINING_PROGRESS,
}


def with_default_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a training config with what is missing in `settings`; they can be referred to like any others."""
    settings = data.get("settings")
    if not isinstance(settings, Mapping):
        return dict(data)  # for validation to name
    missing = {key: _copied(value) for key, value in DEFAULT_SETTINGS.items() if settings.get(key) is None}
    return {**data, "settings": {**settings, **missing}}


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
