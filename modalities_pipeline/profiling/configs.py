"""Configs of the components of this folder. Imports no torch."""

import itertools
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, raise_at_keys
from modalities_pipeline.config.named_enums import ByName
from modalities_pipeline.config.pydantic_if_types import (
    PydanticDatasetBatchGeneratorIFType,
    PydanticLossIFType,
    PydanticOptimizerIFType,
    PydanticPytorchModuleType,
    PydanticSteppableProfilerIFType,
)
from modalities_pipeline.config.unbuilt import Unbuilt

_NumSteps = Annotated[int, Field(ge=0)]


class ModalitiesProfilerActivity(StrEnum):
    """Where time is spent that a profile shows."""

    CPU = "CPU"
    CUDA = "CUDA"


class SteppableForwardPassConfig(ComponentConfig):
    """Fields of `steppable_component/forward_pass`."""

    model: PydanticPytorchModuleType
    dataset_batch_generator: PydanticDatasetBatchGeneratorIFType
    loss_fn: Annotated[
        PydanticLossIFType | None, Field(description="a step includes the backward pass; null: it does not")
    ] = None
    optimizer: Annotated[
        PydanticOptimizerIFType | None, Field(description="a step includes its step; needs loss_fn")
    ] = None

    @model_validator(mode="after")
    def _check_optimizer(self) -> Self:
        if self.optimizer is not None and self.loss_fn is None:
            raise ValueError("optimizer does nothing without loss_fn; set loss_fn, or leave optimizer out")
        return self


class SteppableProfilerConfig(ComponentConfig):
    """What profilers with a schedule have in common."""

    num_wait_steps: Annotated[_NumSteps, Field(description="steps at the beginning that are left out")]
    num_warmup_steps: Annotated[_NumSteps, Field(description="steps after them that are not kept")]
    num_active_steps: Annotated[int, Field(ge=1, description="steps after them that are recorded")]
    tracked_ranks: Annotated[
        list[Annotated[int, Field(strict=True, ge=0)]] | None,
        Field(description="ranks that record and write files; null: all; []: none"),
    ] = None


class SteppableKernelProfilerConfig(SteppableProfilerConfig):
    """Fields of `steppable_profiler/kernel_tracing`; the flags are those of `torch.profiler.profile`."""

    profiler_activities: Annotated[
        list[Annotated[ModalitiesProfilerActivity, ByName()]],
        Field(min_length=1, description="where what runs is recorded"),
    ]
    profile_memory: Annotated[bool, Field(description="record how much memory is allocated")]
    record_shapes: Annotated[bool, Field(description="record the shapes of inputs")]
    with_flops: Annotated[bool, Field(description="estimate floating point operations")]
    with_stack: Annotated[bool, Field(description="record the place in the source")]
    with_modules: Annotated[bool, Field(description="record the module (of TorchScript models)")]
    output_folder_path: Annotated[Path, Field(description="where trace and summary are written")]


class SteppableMemoryProfilerConfig(SteppableProfilerConfig):
    """Fields of `steppable_profiler/memory_tracing`."""

    memory_snapshot_folder_path: Annotated[Path, Field(description="where the snapshot is written")]


class SteppableCombinedProfilerConfig(ComponentConfig):
    """Fields of `steppable_profiler/combined`."""

    profilers: Annotated[list[PydanticSteppableProfilerIFType], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_schedules(self) -> Self:
        """Two profiles of torch at once end the process."""
        configs = [profiler.config for profiler in self.profilers if isinstance(profiler, Unbuilt)]
        windows = sorted(
            (config.num_wait_steps, config.num_wait_steps + config.num_warmup_steps + config.num_active_steps)
            for config in configs
            if isinstance(config, SteppableKernelProfilerConfig)
        )
        for (_, end), (start, _) in itertools.pairwise(windows):
            if start < end:
                message = (
                    f"two kernel_tracing record at once (one until step {end}, one from step {start + 1}), but torch "
                    "can make one profile at a time; make num_wait_steps larger"
                )
                raise_at_keys(self, [("profilers", message)])
        return self


class SteppableNoProfilerConfig(ComponentConfig):
    """Nothing to set."""
