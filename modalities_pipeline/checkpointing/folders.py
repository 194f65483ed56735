"""Checkpoints on disk, folders and pairs of files: which are complete, which is the newest. Imports no torch."""

import contextlib
import glob
import logging
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from modalities_pipeline.exceptions import CheckpointingError
from modalities_pipeline.progress.training_progress import TrainingProgress, parse_checkpoint_name

logger = logging.getLogger(__name__)

INFO_FILE_NAME = "last_checkpoint_info.json"
_METADATA_FILE_NAME = ".metadata"
_TEMPORARY_SUFFIX = ".tmp"
_FILE_SUFFIX = ".bin"


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


def progresses_before(
    training_progress: TrainingProgress, progresses: Iterable[TrainingProgress]
) -> list[TrainingProgress]:
    """Those with fewer steps than the current ones, in their order."""
    num_steps = training_progress.num_seen_steps_total
    return [progress for progress in progresses if progress.num_seen_steps_total < num_steps]


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
    for folder in checkpoint_path.glob(f".eid_{glob.escape(experiment_id)}-seen_steps_*{_TEMPORARY_SUFFIX}"):
        shutil.rmtree(folder, ignore_errors=True)


def fsdp1_file_paths(
    checkpoint_path: Path, experiment_id: str, training_progress: TrainingProgress
) -> tuple[Path, Path]:
    """Where the files of the model and of the optimizer of a state are, or would be, as Modalities names them."""
    model, optimizer = (
        checkpoint_path / f"{training_progress.checkpoint_name(f'{experiment_id}-{entity}')}{_FILE_SUFFIX}"
        for entity in ("model", "optimizer")
    )
    return model, optimizer


def find_fsdp1_checkpoints(checkpoint_path: Path, experiment_id: str) -> list[TrainingProgress]:
    """States of an experiment of which both files are there, those with fewest steps first."""
    found = []
    for path in _fsdp1_model_files(checkpoint_path, glob.escape(experiment_id)):
        parsed = parse_checkpoint_name(path.with_name(path.name.removesuffix(_FILE_SUFFIX)))
        if parsed is None:
            continue
        if all(file.is_file() for file in fsdp1_file_paths(checkpoint_path, experiment_id, parsed[1])):
            found.append(parsed[1])
        else:
            logger.warning("The checkpoint %s has no file of the optimizer and is passed over.", path)
    return sorted(found, key=lambda progress: progress.num_seen_steps_total)


def has_fsdp1_files(checkpoint_path: Path) -> bool:
    """Whether FSDP1 saved a model in a folder, of whatever experiment."""
    return any(_fsdp1_model_files(checkpoint_path, "*"))


def _fsdp1_model_files(checkpoint_path: Path, experiment_id_pattern: str) -> Iterator[Path]:
    return checkpoint_path.glob(f"eid_{experiment_id_pattern}-model-seen_steps_*{_FILE_SUFFIX}")


def remove_fsdp1_checkpoint(checkpoint_path: Path, experiment_id: str, training_progress: TrainingProgress) -> None:
    """Delete both files of a checkpoint, that of the model first; a failure is only logged."""
    try:
        for path in fsdp1_file_paths(checkpoint_path, experiment_id, training_progress):
            path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("The old checkpoint %s could not be deleted: %s", path, error)


def remove_fsdp1_leftovers(checkpoint_path: Path, experiment_id: str) -> None:
    """Delete half written files that savings of this experiment left behind when they were killed."""
    for entity in ("model", "optimizer"):
        pattern = f".eid_{glob.escape(experiment_id)}-{entity}-seen_steps_*{_TEMPORARY_SUFFIX}"
        for path in checkpoint_path.glob(pattern):
            with contextlib.suppress(OSError):
                path.unlink()
