"""What a whole run needs: the top-level keys of a YAML file and its settings."""

import logging
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, FilePath, model_validator
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.data import Dataset

from modalities_pipeline.checkpointing.app_state import AppState
from modalities_pipeline.checkpointing.saving import CheckpointSaving
from modalities_pipeline.dataloading.dataloader import LLMDataLoader
from modalities_pipeline.dataloading.datasets import SizedDataset
from modalities_pipeline.loss_functions import Loss
from modalities_pipeline.optim.gradient_clipping import GradientClipperIF
from modalities_pipeline.reporting.broker import MessageSubscriberIF

logger = logging.getLogger(__name__)

Positive = Annotated[int, Field(strict=True, ge=1)]
NonNegative = Annotated[int, Field(strict=True, ge=0)]


class Settings(BaseModel):
    """Base of all settings: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())


class CudaEnvSettings(Settings):
    """The place of this process in the run, as the launcher sets it."""

    local_rank: NonNegative
    world_size: Positive
    global_rank: NonNegative

    @model_validator(mode="after")
    def _check_rank(self) -> "CudaEnvSettings":
        if self.global_rank >= self.world_size:
            raise ValueError(f"global_rank {self.global_rank} has to be less than world_size {self.world_size}")
        return self


class Paths(Settings):
    """`experiments_root_path` and any other path that the file refers to."""

    model_config = ConfigDict(extra="allow")
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
    def global_num_tokens_per_train_step(self) -> int:
        """Tokens that one optimizer step consumes on all ranks."""
        return (
            self.local_train_micro_batch_size * self.sequence_length * self.gradient_accumulation_steps * self.dp_degree
        )


class TrainingTarget(Settings):
    """Where the training ends, counted from the very first step."""

    num_target_tokens: Positive
    num_target_steps: Positive


class TrainingProgressSettings(Settings):
    """Where the training begins; 0, 0, 0, -1 for a fresh one."""

    global_num_seen_tokens: NonNegative
    num_seen_steps: NonNegative
    num_seen_samples: NonNegative
    last_step: Annotated[int, Field(strict=True, ge=-1)]


class DCPWarmstartCheckpointPaths(Settings):
    """The checkpoint that a warm start continues."""

    checkpoint_folder_path: Path


class TrainingSettings(Settings):
    """The section `settings` of a training config."""

    experiment_id: str
    config_file_path: FilePath
    referencing_keys: dict[str, str]
    cuda_env: CudaEnvSettings
    paths: Paths
    intervals: Intervals
    consistency_enforcement: ConsistencyEnforcement = ConsistencyEnforcement()
    step_profile: StepProfile
    training_target: TrainingTarget
    training_progress: TrainingProgressSettings
    warmstart_checkpoint_paths: DCPWarmstartCheckpointPaths | None = None

    @model_validator(mode="after")
    def _check_consistency(self) -> "TrainingSettings":
        faults = list(filter(None, [self._describe_overshoot(), self._describe_token_mismatch()]))
        if faults:
            raise ValueError("; ".join(faults))
        self._warn_about_last_step()
        return self

    def _describe_overshoot(self) -> str | None:
        seen, target = self.training_progress.num_seen_steps, self.training_target.num_target_steps
        return f"num_seen_steps {seen} is beyond num_target_steps {target}" if seen > target else None

    def _describe_token_mismatch(self) -> str | None:
        num_tokens = self.training_target.num_target_tokens - self.training_progress.global_num_seen_tokens
        num_steps = self.training_target.num_target_steps - self.training_progress.num_seen_steps
        per_step = self.step_profile.global_num_tokens_per_train_step
        if num_tokens == num_steps * per_step or num_steps < 0:
            return None
        fault = (
            f"{num_tokens} tokens are left for {num_steps} steps, but these consume {num_steps * per_step} "
            f"({per_step} a step: gradient_accumulation_steps x local_train_micro_batch_size x sequence_length x "
            "dp_degree); mend training_target, or set consistency_enforcement.enforce_tokens_per_step_consistency to "
            "false"
        )
        if self.consistency_enforcement.enforce_tokens_per_step_consistency:
            return fault
        logger.warning("%s.", fault)
        return None

    def _warn_about_last_step(self) -> None:
        """Say what will be left out at the last step because neither its interval nor the enforcement demands it."""
        num_steps = self.training_target.num_target_steps
        intervals, enforcement = self.intervals, self.consistency_enforcement
        for what, interval, is_enforced in (
            ("logged", intervals.training_log_interval_in_steps, enforcement.enforce_last_step_logged),
            ("evaluated", intervals.evaluation_interval_in_steps, enforcement.enforce_last_step_evaluated),
            ("checkpointed", intervals.checkpointing_interval_in_steps, enforcement.enforce_last_step_checkpointed),
        ):
            if not is_enforced and num_steps % interval != 0:
                logger.warning("The last step (%d) will not be %s: the interval is %d.", num_steps, what, interval)


class TrainingComponentsInstantiationModel(BaseModel):
    """The components of a training, as top-level keys; other keys are only there to be referred to."""

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    settings: TrainingSettings
    app_state: AppState
    loss_fn: Loss
    train_dataset: Dataset
    train_dataloader: LLMDataLoader
    eval_dataloaders: list[LLMDataLoader]
    progress_subscriber: MessageSubscriberIF
    evaluation_subscriber: MessageSubscriberIF
    checkpoint_saving: CheckpointSaving
    gradient_clipper: GradientClipperIF
    model_raw: nn.Module
    device_mesh: DeviceMesh | None = None

    @model_validator(mode="after")
    def _check_dataset(self) -> "TrainingComponentsInstantiationModel":
        sequence_length = self.settings.step_profile.sequence_length
        num_samples = len(cast(SizedDataset, self.train_dataset))
        sampler = getattr(self.train_dataloader.batch_sampler, "sampler", None)
        num_epochs = getattr(sampler, "num_epochs", 1)
        num_tokens = num_samples * sequence_length * num_epochs
        num_target_tokens = self.settings.training_target.num_target_tokens
        if num_tokens >= num_target_tokens:
            return self
        fault = (
            f"the training dataset has {num_tokens} tokens ({num_samples} samples of {sequence_length}"
            f"{f', {num_epochs} epochs' if num_epochs > 1 else ''}), "
            f"num_target_tokens is {num_target_tokens}; use more data, or lower the target"
        )
        if self.settings.consistency_enforcement.enforce_enough_tokens_in_dataset:
            raise ValueError(fault)
        logger.warning("%s.", fault)
        return self

    @model_validator(mode="after")
    def _check_evaluation_data(self) -> "TrainingComponentsInstantiationModel":
        faults = [
            f"the evaluation data loader '{loader.dataloader_tag}' has no batch: its dataset has "
            f"{len(cast(SizedDataset, loader.dataset))} samples, {_batch_needs(loader)}; use more data, or smaller "
            "batches"
            for loader in self.eval_dataloaders
            if len(loader) == 0
        ]
        if faults:
            raise ValueError("; ".join(faults))
        return self


def _batch_needs(loader: LLMDataLoader) -> str:
    batch_size = getattr(loader.batch_sampler, "batch_size", 1)
    num_ranks = getattr(getattr(loader.batch_sampler, "sampler", None), "num_replicas", 1)
    return f"a batch on all ranks needs {batch_size * num_ranks} ({num_ranks} ranks x {batch_size})"


def training_report(settings: TrainingSettings, components: dict[str, Any]) -> str:
    """A block of text: what will be trained, how far, and what the run looks like."""
    profile, target, progress = settings.step_profile, settings.training_target, settings.training_progress
    lines = {
        "target": f"{target.num_target_steps} steps, {target.num_target_tokens} tokens",
        "done before": f"{progress.num_seen_steps} steps, {progress.global_num_seen_tokens} tokens",
        "tokens per step": (
            f"{profile.global_num_tokens_per_train_step} = {profile.dp_degree} data parallel ranks x "
            f"{profile.gradient_accumulation_steps} accumulated micro batches x {profile.local_train_micro_batch_size} "
            f"samples x {profile.sequence_length}"
        ),
        "intervals": ", ".join(f"{name.removesuffix('_in_steps')} {value}" for name, value in settings.intervals),
        **{name: str(value) for name, value in components.items()},
    }
    return "\n".join(["Training report", *(f"  {name}: {text}" for name, text in lines.items())])
