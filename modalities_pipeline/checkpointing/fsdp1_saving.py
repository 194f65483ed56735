"""Saving a model and its optimizer as one file each, as Modalities does for FSDP1 models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.folders import (
    find_fsdp1_checkpoints,
    fsdp1_file_paths,
    progresses_before,
    remove_fsdp1_checkpoint,
    remove_fsdp1_leftovers,
)
from modalities_pipeline.checkpointing.saving import CheckpointSavingExecutionABC
from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.distributed.env import current_device
from modalities_pipeline.distributed.shared_errors import errors_raised_once
from modalities_pipeline.exceptions import CheckpointingError, OutputNotWritableError
from modalities_pipeline.optim.optimizers_list import OptimizersList
from modalities_pipeline.progress.training_progress import TrainingProgress


class FSDP1CheckpointSaving(CheckpointSavingExecutionABC):
    """Two files per checkpoint in `checkpoint_path`, and `last_checkpoint_info.json` naming the newest two.

    Rank 0 gathers the whole state in the memory of its CPU and writes it, as dicts that `torch.load` reads without
    running code. The model's names are those of the plain model; the optimizer's state is by these names, too. Models
    that are not wrapped by FSDP1 are saved in the same way, also without a process group.
    """

    def file_paths(self, training_progress: TrainingProgress) -> tuple[Path, Path]:
        """Where the files of the model and of the optimizer of a state are, or would be."""
        return fsdp1_file_paths(self.checkpoint_path, self._experiment_id, training_progress)

    def saved_checkpoints(self, training_progress: TrainingProgress) -> list[TrainingProgress]:
        """See the base class; a model without its optimizer does not count."""
        return progresses_before(training_progress, find_fsdp1_checkpoints(self.checkpoint_path, self._experiment_id))

    def _remove(self, training_progress: TrainingProgress) -> None:
        remove_fsdp1_checkpoint(self.checkpoint_path, self._experiment_id, training_progress)

    def _save(self, training_progress: TrainingProgress, app_state: AppState) -> None:
        if isinstance(app_state.optimizer, OptimizersList):
            raise CheckpointingError("The parts of a model cannot be saved as one file. Use the execution 'dcp'.")
        (model,) = app_state.model_parts
        # On the CPU torch would crash, and there is nothing to move.
        options = StateDictOptions(full_state_dict=True, cpu_offload=current_device().type != "cpu")
        states = (
            get_model_state_dict(model, options=options),
            get_optimizer_state_dict(model, app_state.optimizer, options=options),
        )
        with errors_raised_once():
            if self._global_rank == 0:
                remove_fsdp1_leftovers(self.checkpoint_path, self._experiment_id)
                self._write(training_progress, *states)

    def _write(
        self, training_progress: TrainingProgress, model_state: Mapping[str, Any], optimizer_state: Mapping[str, Any]
    ) -> None:
        model_path, optimizer_path = self.file_paths(training_progress)
        # The model's file gets its name last, hence is there only with that of the optimizer.
        with atomic_path(model_path) as new_model_path:
            _write_file(model_state, new_model_path, model_path)
            with atomic_path(optimizer_path) as new_optimizer_path:
                _write_file(optimizer_state, new_optimizer_path, optimizer_path)
        self._write_info(model_checkpoint_path=model_path, optimizer_checkpoint_path=optimizer_path)


def _write_file(state: Mapping[str, Any], path: Path, final_path: Path) -> None:
    try:
        torch.save(dict(state), path)
    except RuntimeError as error:  # so torch reports a full disk
        raise OutputNotWritableError(f"The checkpoint {final_path} could not be written: {error}") from error
