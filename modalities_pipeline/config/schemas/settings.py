"""The section `settings` of a training config."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FilePath, WrapValidator, model_validator

from modalities_pipeline.config.interfaces import NUMBER
from modalities_pipeline.config.pydantic_if_types import PydanticDebuggingType
from modalities_pipeline.config.schemas.short_configs import DEFAULT_REFERENCING_KEYS, DEFAULT_TRAINING_PROGRESS
from modalities_pipeline.config.unbuilt import Unbuilt


def _known_or_unbuilt(value: Any, validate: Callable[[Any], Any]) -> Any:
    """A number, or while a config is only checked, the component that will be one."""
    return value if isinstance(value, Unbuilt) and value.can_be(NUMBER) else validate(value)


Positive = Annotated[int, Field(strict=True, ge=1), WrapValidator(_known_or_unbuilt)]
NonNegative = Annotated[int, Field(strict=True, ge=0), WrapValidator(_known_or_unbuilt)]
LastStep = Annotated[int, Field(strict=True, ge=-1), WrapValidator(_known_or_unbuilt)]


class Settings(BaseModel):
    """Base of all settings: unknown keys are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, protected_namespaces=(), defer_build=True
    )


class CudaEnvSettings(Settings):
    """The place of this process in the run, as the launcher sets it."""

    local_rank: NonNegative
    world_size: Positive
    global_rank: NonNegative

    @model_validator(mode="after")
    def _check_rank(self) -> "CudaEnvSettings":
        are_known = isinstance(self.global_rank, int) and isinstance(self.world_size, int)
        if are_known and self.global_rank >= self.world_size:
            raise ValueError(f"global_rank {self.global_rank} has to be less than world_size {self.world_size}")
        return self


class Paths(Settings):
    """`experiments_root_path` and any other path that the file refers to."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Path] = Field(init=False)

    experiments_root_path: Path | None = None


class Intervals(Settings):
    """How often, in optimizer steps counted from the very first one."""

    training_log_interval_in_steps: Positive
    checkpointing_interval_in_steps: Positive
    evaluation_interval_in_steps: Positive


class ConsistencyEnforcement(Settings):
    """What has to hold. True: the run is refused without it, or sees to it itself. False: a warning, no more."""

    enforce_tokens_per_step_consistency: bool = True
    enforce_last_step_logged: bool = True
    enforce_last_step_evaluated: bool = True
    enforce_last_step_checkpointed: bool = True
    enforce_enough_tokens_in_dataset: bool = True


class StepProfile(Settings):
    """What one optimizer step consists of."""

    gradient_accumulation_steps: Positive
    local_train_micro_batch_size: Positive
    sequence_length: Positive
    dp_degree: Positive

    @property
    def global_num_samples_per_train_step(self) -> int:
        """Samples that one optimizer step consumes on all ranks."""
        return self.local_train_micro_batch_size * self.gradient_accumulation_steps * self.dp_degree

    @property
    def global_num_tokens_per_train_step(self) -> int:
        """Tokens that one optimizer step consumes on all ranks."""
        return self.global_num_samples_per_train_step * self.sequence_length


class TrainingTarget(Settings):
    """Where the training ends, counted from the very first step."""

    num_target_tokens: Positive
    num_target_steps: Positive


class TrainingProgressSettings(Settings):
    """Where the training begins; 0, 0, 0, -1 for a fresh one."""

    global_num_seen_tokens: NonNegative
    num_seen_steps: NonNegative
    num_seen_samples: NonNegative
    last_step: LastStep


class WarmstartCheckpointPaths(Settings):
    """The checkpoint that a warm start continues: a folder, or the files that FSDP1 wrote."""

    checkpoint_folder_path: Path | None = None
    model_checkpoint_path: Path | None = None
    optimizer_checkpoint_path: Path | None = None

    @model_validator(mode="after")
    def _has_one_form(self) -> "WarmstartCheckpointPaths":
        if (self.checkpoint_folder_path is None) == (self.model_checkpoint_path is None):
            raise ValueError("give either checkpoint_folder_path or model_checkpoint_path")
        if self.optimizer_checkpoint_path is not None and self.model_checkpoint_path is None:
            raise ValueError("optimizer_checkpoint_path needs model_checkpoint_path")
        return self


class TrainingSettings(Settings):
    """The section `settings` of a training config; `schemas.short_configs` fills in what a file may leave out."""

    experiment_id: str
    config_file_path: FilePath
    referencing_keys: dict[str, str] = dict(DEFAULT_REFERENCING_KEYS)
    cuda_env: CudaEnvSettings
    paths: Paths = Paths()
    intervals: Intervals
    consistency_enforcement: ConsistencyEnforcement = ConsistencyEnforcement()
    step_profile: StepProfile
    training_target: TrainingTarget
    training_progress: TrainingProgressSettings = TrainingProgressSettings(**DEFAULT_TRAINING_PROGRESS)
    warmstart_checkpoint_paths: WarmstartCheckpointPaths | None = None
    seed: NonNegative = 0
    debugging: PydanticDebuggingType | None = None
