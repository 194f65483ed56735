"""Checkpoint folders on disk: which are complete, which is the newest. Imports no torch."""

import logging
import shutil
from pathlib import Path

from modalities_pipeline.exceptions import CheckpointingError
from modalities_pipeline.progress.training_progress import TrainingProgress, parse_checkpoint_name

logger = logging.getLogger(__name__)

INFO_FILE_NAME = "last_checkpoint_info.json"
_METADATA_FILE_NAME = ".metadata"
_TEMPORARY_SUFFIX = ".tmp"


def is_complete(checkpoint_folder_path: Path) -> bool:
    """Whether a folder holds a whole checkpoint: saving renames it last, with its metadata in it."""
    return (checkpoint_folder_path / _METADATA_FILE_NAME).is_file()


def require_complete(checkpoint_folder_path: Path) -> None:
    """Raise `CheckpointingError` if there is no whole checkpoint at a path that somebody asked for."""
    if not checkpoint_folder_path.is_dir():
        raise CheckpointingError(f"There is no checkpoint folder {checkpoint_folder_path}.")
    if not is_complete(checkpoint_folder_path):
        raise CheckpointingError(
            f"The checkpoint {checkpoint_folder_path} is not complete (no {_METADATA_FILE_NAME}). Use an older one."
        )


def find_checkpoints(checkpoint_path: Path, experiment_id: str | None = None) -> list[tuple[Path, TrainingProgress]]:
    """Complete checkpoints in a folder, those with fewest steps first; only those of `experiment_id` if given."""
    found = []
    for folder in checkpoint_path.glob("eid_*"):
        parsed = parse_checkpoint_name(folder)
        if parsed is None or (experiment_id is not None and parsed[0] != experiment_id):
            continue
        if is_complete(folder):
            found.append((folder, parsed[1]))
        else:
            logger.warning("The checkpoint %s is not complete and is passed over.", folder)
    return sorted(found, key=lambda item: (item[1].num_seen_steps_total, item[0].stat().st_mtime_ns))


def find_latest_checkpoint(checkpoint_path: Path) -> Path | None:
    """The complete checkpoint with the most steps in a folder, None if there is none."""
    checkpoints = find_checkpoints(checkpoint_path)
    return checkpoints[-1][0] if checkpoints else None


def remove_checkpoint(checkpoint_folder_path: Path) -> None:
    """Delete a checkpoint, renaming it first so that no half deleted one looks complete; a failure is only logged."""
    tombstone = checkpoint_folder_path.with_name(f".{checkpoint_folder_path.name}.deleted{_TEMPORARY_SUFFIX}")
    try:
        checkpoint_folder_path.rename(tombstone)
        shutil.rmtree(tombstone)
    except OSError as error:
        logger.warning("The old checkpoint %s could not be deleted: %s", checkpoint_folder_path, error)


def remove_leftovers(checkpoint_path: Path, experiment_id: str) -> None:
    """Delete what savings and deletions of this experiment left behind when they were killed."""
    for folder in checkpoint_path.glob(f".eid_{experiment_id}-seen_steps_*{_TEMPORARY_SUFFIX}"):
        shutil.rmtree(folder, ignore_errors=True)
