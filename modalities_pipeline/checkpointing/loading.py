"""Loading distributed checkpoints (DCP) into an app state, whatever the number of ranks that saved them."""

from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.dcp_folders import read_distributed_
from modalities_pipeline.checkpointing.folders import require_complete
from modalities_pipeline.exceptions import CheckpointingError

STATE_KEY = "app"
_MODEL_PREFIX = f"{STATE_KEY}.model."


class DCPCheckpointLoading:
    """Loads a checkpoint folder; every rank has to call it."""

    def __init__(self, global_rank: int) -> None:
        self._global_rank = global_rank

    def load_checkpoint_(self, app_state: AppState, checkpoint_dir_path: Path) -> AppState:
        """Load into `app_state` in place; raises as `load_app_state_`."""
        return load_app_state_(app_state, checkpoint_dir_path)


def get_dcp_checkpointed_app_state(raw_app_state: AppState, checkpoint_dir_path: Path) -> AppState:
    """`raw_app_state` with a checkpoint loaded into it; raises as `load_app_state_`."""
    return load_app_state_(raw_app_state, checkpoint_dir_path)


def load_app_state_(app_state: AppState, checkpoint_folder_path: Path) -> AppState:
    """Load a checkpoint folder into an app state in place, on all ranks, or in one process without a process group.

    Raises:
        CheckpointingError: the folder is not a whole checkpoint, the model's parameters are others than the
            checkpoint's (the message lists missing, unexpected and differently shaped ones), or a checkpoint was loaded
            before.
    """
    if app_state.is_loaded:
        raise CheckpointingError(
            "A checkpoint was already loaded into this app state. Build a new one to load another."
        )
    require_complete(checkpoint_folder_path)
    _refuse_other_model(app_state, checkpoint_folder_path)
    read_distributed_({STATE_KEY: app_state}, checkpoint_folder_path)
    return app_state


def _refuse_other_model(app_state: AppState, checkpoint_folder_path: Path) -> None:
    saved = {
        key.removeprefix(_MODEL_PREFIX): item
        for key, item in FileSystemReader(checkpoint_folder_path).read_metadata().state_dict_metadata.items()
        if key.startswith(_MODEL_PREFIX)
    }
    wanted: dict[str, Any] = app_state.state_dict()["model"]
    faults = {
        "missing in the checkpoint": sorted(wanted.keys() - saved.keys()),
        "only in the checkpoint": sorted(saved.keys() - wanted.keys()),
        "of another shape": [
            f"{key} ({_shape(saved[key])} in the checkpoint, {tuple(wanted[key].shape)} in the model)"
            for key in sorted(wanted.keys() & saved.keys())
            if _shape(saved[key]) != tuple(wanted[key].shape)
        ],
    }
    if any(faults.values()):
        lists = "; ".join(f"{what}: {', '.join(keys)}" for what, keys in faults.items() if keys)
        raise CheckpointingError(f"The checkpoint {checkpoint_folder_path} does not fit the model. {lists}.")


def _shape(item: Any) -> tuple[int, ...]:
    return tuple(item.size) if isinstance(item, TensorStorageMetadata) else tuple(torch.Size())
