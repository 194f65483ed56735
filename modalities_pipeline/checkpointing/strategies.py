"""When to save a checkpoint, and which older ones to delete then."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence

from modalities_pipeline.batch import EvaluationResultBatch
from modalities_pipeline.progress.training_progress import TrainingProgress


@dataclasses.dataclass(frozen=True)
class CheckpointingInstruction:
    """What to do now: save the current state or not, and delete these once it is saved."""

    save_current: bool = False
    checkpoints_to_delete: list[TrainingProgress] = dataclasses.field(default_factory=list)


class CheckpointSavingStrategyIF(ABC):
    """Decides about saving and deleting."""

    @abstractmethod
    def get_checkpoint_instruction(
        self,
        training_progress: TrainingProgress,
        saved: Sequence[TrainingProgress],
        evaluation_result: dict[str, EvaluationResultBatch] | None = None,
        early_stopping_criterion_fulfilled: bool = False,
    ) -> CheckpointingInstruction:
        """The instruction for the current step; `saved` are the older checkpoints on disk, fewest steps first."""


class SaveEveryKStepsCheckpointingStrategy(CheckpointSavingStrategyIF):
    """Saves at every multiple of `k` steps and deletes nothing."""

    def __init__(self, k: int) -> None:
        self.k = k

    def get_checkpoint_instruction(
        self,
        training_progress: TrainingProgress,
        saved: Sequence[TrainingProgress],
        evaluation_result: dict[str, EvaluationResultBatch] | None = None,
        early_stopping_criterion_fulfilled: bool = False,
    ) -> CheckpointingInstruction:
        """Save if the number of steps is a multiple of `k`, or the target is reached."""
        num_steps = training_progress.num_seen_steps_total
        is_last = num_steps == training_progress.num_target_steps
        return CheckpointingInstruction(save_current=num_steps % self.k == 0 or is_last)


class SaveKMostRecentCheckpointsStrategy(CheckpointSavingStrategyIF):
    """Saves whenever asked and keeps the `k` newest: -1 keeps all, 0 never saves."""

    def __init__(self, k: int = -1) -> None:
        self.k = k

    def get_checkpoint_instruction(
        self,
        training_progress: TrainingProgress,
        saved: Sequence[TrainingProgress],
        evaluation_result: dict[str, EvaluationResultBatch] | None = None,
        early_stopping_criterion_fulfilled: bool = False,
    ) -> CheckpointingInstruction:
        """Save, and delete what is then too many."""
        if self.k == 0:
            return CheckpointingInstruction()
        num_too_many = max(len(saved) + 1 - self.k, 0) if self.k > 0 else 0
        return CheckpointingInstruction(save_current=True, checkpoints_to_delete=list(saved[:num_too_many]))
