"""Saving distributed checkpoints (DCP): complete or not there, with Modalities' folder names."""

import contextlib
import json
from abc import ABC, abstractmethod
from pathlib import Path

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from modalities_pipeline.batch import EvaluationResultBatch
from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.dcp_folders import write_distributed
from modalities_pipeline.checkpointing.folders import (
    INFO_FILE_NAME,
    find_checkpoints,
    progresses_before,
    remove_checkpoint,
    remove_leftovers,
)
from modalities_pipeline.checkpointing.loading import STATE_KEY
from modalities_pipeline.checkpointing.strategies import CheckpointingInstruction, CheckpointSavingStrategyIF
from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.distributed.shared_errors import errors_raised_once
from modalities_pipeline.exceptions import CheckpointingError, ConfigError
from modalities_pipeline.progress.training_progress import TrainingProgress


class CheckpointSavingExecutionABC(ABC):
    """Writes and deletes the checkpoints of an experiment; every rank calls it.

    Raises:
        ConfigError: `global_rank` is that of another process.
    """

    def __init__(self, checkpoint_path: Path, global_rank: int, experiment_id: str) -> None:
        if dist.is_initialized() and global_rank != dist.get_rank():
            raise ConfigError(
                f"global_rank is {global_rank} on the process of rank {dist.get_rank()}, "
                "so that checkpoints would be written by several processes at once, or by none. Write "
                "${cuda_env:RANK}."
            )
        self.checkpoint_path = checkpoint_path
        self._global_rank = global_rank
        self._experiment_id = experiment_id

    @abstractmethod
    def saved_checkpoints(self, training_progress: TrainingProgress) -> list[TrainingProgress]:
        """Checkpoints of this experiment with fewer steps than the current ones, fewest first.

        Read from the disk, so that a run that was started again knows what the one before it saved.
        """

    @abstractmethod
    def _save(self, training_progress: TrainingProgress, app_state: AppState) -> None: ...

    @abstractmethod
    def _remove(self, training_progress: TrainingProgress) -> None: ...

    def run_checkpoint_instruction(
        self,
        checkpointing_instruction: CheckpointingInstruction,
        training_progress: TrainingProgress,
        app_state: AppState,
    ) -> None:
        """Save first, then delete on rank 0; a deletion that fails is logged and ends nothing.

        Raises:
            CheckpointingError, OutputNotWritableError: the checkpoint could not be written.
        """
        if checkpointing_instruction.save_current:
            self._save(training_progress, app_state)
        if self._global_rank == 0:
            for old in checkpointing_instruction.checkpoints_to_delete:
                self._remove(old)

    def _write_info(self, **paths: Path) -> None:
        """Name the newest checkpoint in `last_checkpoint_info.json`."""
        with atomic_path(self.checkpoint_path / INFO_FILE_NAME) as info_path:
            content = {key: str(path.absolute()) for key, path in paths.items()}
            info_path.write_text(json.dumps(content), encoding="utf-8")


class DCPCheckpointSaving(CheckpointSavingExecutionABC):
    """One folder per checkpoint below `checkpoint_path`, and `last_checkpoint_info.json` naming the newest.

    A folder gets its name when it is complete; killing the processes at any instant leaves older checkpoints untouched.
    Without a process group the checkpoint is that of one process.
    """

    def folder_path(self, training_progress: TrainingProgress) -> Path:
        """Where the checkpoint of a state is, or would be."""
        return self.checkpoint_path / training_progress.checkpoint_name(self._experiment_id)

    def saved_checkpoints(self, training_progress: TrainingProgress) -> list[TrainingProgress]:
        """See the base class; folders that are not complete do not count."""
        found = find_checkpoints(self.checkpoint_path, self._experiment_id)
        return progresses_before(training_progress, (progress for _, progress in found))

    def _remove(self, training_progress: TrainingProgress) -> None:
        remove_checkpoint(self.folder_path(training_progress))

    def _save(self, training_progress: TrainingProgress, app_state: AppState) -> None:
        final = self.folder_path(training_progress)
        is_first_rank = self._global_rank == 0
        try:
            with errors_raised_once():
                if is_first_rank:
                    self.checkpoint_path.mkdir(parents=True, exist_ok=True)
                    remove_leftovers(self.checkpoint_path, self._experiment_id)
            with errors_raised_once():
                with atomic_path(final) if is_first_rank else contextlib.nullcontext(final) as path:
                    write_distributed({STATE_KEY: app_state}, path)
                if is_first_rank:
                    self._write_info(checkpoint_folder_path=final)
        except (CheckpointException, OSError) as error:
            raise CheckpointingError(f"The checkpoint {final} could not be written: {error}") from error


class CheckpointSaving:
    """Saves checkpoints as a strategy decides and an execution writes."""

    def __init__(
        self,
        checkpoint_saving_strategy: CheckpointSavingStrategyIF,
        checkpoint_saving_execution: CheckpointSavingExecutionABC,
    ) -> None:
        self.checkpoint_saving_strategy = checkpoint_saving_strategy
        self.checkpoint_saving_execution = checkpoint_saving_execution

    def save_checkpoint(
        self,
        training_progress: TrainingProgress,
        evaluation_result: dict[str, EvaluationResultBatch] | None,
        app_state: AppState,
        early_stopping_criterion_fulfilled: bool = False,
    ) -> None:
        """Save and delete as the strategy decides; every rank has to call it."""
        instruction = self.checkpoint_saving_strategy.get_checkpoint_instruction(
            training_progress,
            self.checkpoint_saving_execution.saved_checkpoints(training_progress),
            evaluation_result,
            early_stopping_criterion_fulfilled,
        )
        self.checkpoint_saving_execution.run_checkpoint_instruction(instruction, training_progress, app_state)
