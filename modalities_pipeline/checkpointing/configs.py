"""Configs of app states, of saving checkpoints and of loading them. Imports no torch."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.device_names import DeviceName
from modalities_pipeline.config.input_paths import InputPath
from modalities_pipeline.config.pydantic_if_types import (
    PydanticAppStateType,
    PydanticCheckpointSavingExecutionIFType,
    PydanticCheckpointSavingStrategyIFType,
    PydanticFSDP1CheckpointLoadingIFType,
    PydanticLRSchedulerIFType,
    PydanticOptimizerIFType,
    PydanticPytorchModuleOrListType,
    PydanticPytorchModuleType,
)
from modalities_pipeline.distributed.configs import MixedPrecisionSettings, ShardingStrategy

_GlobalRank = Annotated[int, Field(strict=True, ge=0, description="rank of this process, ${cuda_env:RANK}")]


class RawAppStateConfig(ComponentConfig):
    """Fields of the app state `raw`."""

    model: Annotated[PydanticPytorchModuleOrListType, Field(description="the model as it is trained")]
    optimizer: Annotated[PydanticOptimizerIFType, Field(description="that of this model")]
    lr_scheduler: Annotated[PydanticLRSchedulerIFType | None, Field(description="that of this optimizer")] = None


class DCPAppStateConfig(ComponentConfig):
    """Fields of the app state `dcp`."""

    raw_app_state: Annotated[PydanticAppStateType, Field(description="what the checkpoint is loaded into")]
    checkpoint_dir_path: Annotated[InputPath, Field(description="folder of the checkpoint")]


class CheckpointSavingConfig(ComponentConfig):
    """Fields of `checkpoint_saving`."""

    checkpoint_saving_strategy: Annotated[
        PydanticCheckpointSavingStrategyIFType, Field(description="which checkpoints are saved and kept")
    ]
    checkpoint_saving_execution: Annotated[
        PydanticCheckpointSavingExecutionIFType, Field(description="how and where they are written")
    ]


class SaveEveryKStepsCheckpointingStrategyConfig(ComponentConfig):
    """Fields of `save_every_k_steps_checkpointing_strategy`."""

    k: Annotated[int, Field(gt=0, description="steps between checkpoints; only where settings.intervals asks for one")]


class SaveKMostRecentCheckpointsStrategyConfig(ComponentConfig):
    """Fields of `save_k_most_recent_checkpoints_strategy`."""

    k: Annotated[int, Field(strict=True, ge=-1, description="checkpoints to keep; -1: all, 0: save none")]


class DCPCheckpointSavingConfig(ComponentConfig):
    """Fields of the checkpoint saving execution `dcp`."""

    checkpoint_path: Annotated[Path, Field(description="folder of all checkpoints of the experiment")]
    global_rank: _GlobalRank
    experiment_id: Annotated[str, Field(description="begins the name of each checkpoint")]


class FSDP1CheckpointSavingConfig(DCPCheckpointSavingConfig):
    """Fields of the checkpoint saving execution `fsdp1`."""


class DCPCheckpointLoadingConfig(ComponentConfig):
    """Fields of the checkpoint loading `dcp`."""

    global_rank: _GlobalRank


class FSDP1CheckpointLoadingConfig(ComponentConfig):
    """Fields of the checkpoint loading `fsdp1`, which wraps a model as `model/fsdp1_wrapped` does."""

    global_rank: _GlobalRank
    block_names: Annotated[
        list[str],
        Field(examples=[["GPT2Block"]], description="class names of the modules that become units of sharding"),
    ]
    mixed_precision_settings: Annotated[
        MixedPrecisionSettings,
        Field(examples=["BF_16"], description="dtypes of parameters, gradient reduction and buffers"),
    ]
    sharding_strategy: Annotated[
        ShardingStrategy, Field(description="member of torch.distributed.fsdp.ShardingStrategy")
    ]


class PrecisionEnum(StrEnum):
    """Floating point types of weights."""

    FP32 = "FP32"
    FP16 = "FP16"
    BF16 = "BF16"


class TorchCheckpointLoadingConfig(ComponentConfig):
    """Fields of the checkpoint loading `torch`."""

    device: Annotated[DeviceName, Field(description="where the model shall be: cpu, cuda, or the number of a GPU")]
    precision: Annotated[PrecisionEnum | None, Field(description="of the weights; null: as they are stored")] = None


class FSDP1CheckpointedModelConfig(ComponentConfig):
    """Fields of the model `fsdp1_checkpointed`."""

    checkpoint_loading: Annotated[PydanticFSDP1CheckpointLoadingIFType, Field(description="fsdp1, or torch")]
    checkpoint_path: Annotated[InputPath, Field(description="checkpoint folder, or file of weights")]
    model: Annotated[PydanticPytorchModuleType, Field(description="as it was built; fsdp1 wraps it")]


class FSDP1CheckpointedOptimizerConfig(ComponentConfig):
    """Fields of the optimizer `fsdp1_checkpointed`."""

    checkpoint_loading: Annotated[PydanticFSDP1CheckpointLoadingIFType, Field(description="fsdp1, or torch")]
    checkpoint_path: Annotated[
        InputPath, Field(description="file of the optimizer's state; a scheduler goes on if its last_epoch says so")
    ]
    wrapped_model: Annotated[PydanticPytorchModuleType, Field(description="the model/fsdp1_checkpointed")]
    optimizer: Annotated[PydanticOptimizerIFType, Field(description="of this model, whose state is loaded")]
