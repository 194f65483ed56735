"""Configs of the number conversions and of the calculator of model FLOPs utilisation."""

from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.pydantic_if_types import PydanticDeviceMeshIFType, PydanticPytorchModuleOrListType

Positive = Annotated[int, Field(strict=True, gt=0)]
NonNegative = Annotated[int, Field(strict=True, ge=0)]

# Modalities asks some conversions for `dp_degree` and others for `num_ranks`; it means the same, so each takes both.
_RANKS = "number of ranks that see different samples"
DpDegree = Annotated[
    int, Field(strict=True, gt=0, validation_alias=AliasChoices("dp_degree", "num_ranks"), description=_RANKS)
]
NumRanks = Annotated[
    int, Field(strict=True, gt=0, validation_alias=AliasChoices("num_ranks", "dp_degree"), description=_RANKS)
]
MicroBatchSize = Annotated[Positive, Field(description="samples per rank and micro batch")]
AccumulationSteps = Annotated[Positive, Field(description="micro batches per optimizer step")]
SequenceLength = Annotated[Positive, Field(description="tokens per sample")]
_CHECKPOINT = "checkpoints/eid_demo-seen_steps_50-seen_tokens_102400-target_steps_100-target_tokens_204800"
GlobalNumSamples = Annotated[NonNegative, Field(description="samples of all ranks together")]
GlobalNumTokens = Annotated[NonNegative, Field(description="tokens of all ranks together")]


class LocalNumBatchesFromNumSamplesConfig(ComponentConfig):
    """Fields of `local_num_batches_from_num_samples`."""

    num_ranks: NumRanks
    global_num_samples: GlobalNumSamples
    local_micro_batch_size: MicroBatchSize


class LocalNumBatchesFromNumTokensConfig(ComponentConfig):
    """Fields of `local_num_batches_from_num_tokens`."""

    num_ranks: NumRanks
    global_num_tokens: GlobalNumTokens
    sequence_length: SequenceLength
    local_micro_batch_size: MicroBatchSize


class NumSamplesFromNumTokensConfig(ComponentConfig):
    """Fields of `num_samples_from_num_tokens`."""

    num_tokens: Annotated[NonNegative, Field(description="tokens of all samples together")]
    sequence_length: SequenceLength


class NumStepsFromNumSamplesConfig(ComponentConfig):
    """Fields of `num_steps_from_num_samples`."""

    dp_degree: DpDegree
    local_micro_batch_size: MicroBatchSize
    global_num_samples: GlobalNumSamples
    gradient_accumulation_steps: AccumulationSteps


class NumStepsFromNumTokensConfig(ComponentConfig):
    """Fields of `num_steps_from_num_tokens`."""

    dp_degree: DpDegree
    local_micro_batch_size: MicroBatchSize
    global_num_tokens: GlobalNumTokens
    sequence_length: SequenceLength
    gradient_accumulation_steps: AccumulationSteps


class NumTokensFromNumStepsConfig(ComponentConfig):
    """Fields of `num_tokens_from_num_steps`."""

    num_steps: Annotated[NonNegative, Field(description="optimizer steps")]
    dp_degree: DpDegree
    local_micro_batch_size: MicroBatchSize
    sequence_length: SequenceLength
    gradient_accumulation_steps: AccumulationSteps


class NumberConversionFromCheckpointPathConfig(ComponentConfig):
    """Fields of all conversions that read a checkpoint's name."""

    checkpoint_path: Annotated[
        Path, Field(examples=[_CHECKPOINT], description="only the last component of the path is looked at")
    ]


class NumTokensFromPackedMemMapDatasetContinuousConfig(ComponentConfig):
    """Fields of `num_tokens_from_packed_mem_map_dataset_continuous`."""

    dataset_path: Annotated[Path, Field(description="the .pbin file")]
    sequence_length: SequenceLength
    dp_degree: DpDegree
    local_micro_batch_size: MicroBatchSize
    gradient_accumulation_steps: AccumulationSteps
    sample_key: Annotated[str, Field(description="as in Modalities; the number does not depend on it")] = "text"
    reuse_last_target: Annotated[bool, Field(description="as in the dataset's config")] = True


class NumStepsFromRawDatasetIndexConfig(ComponentConfig):
    """Fields of `num_steps_from_raw_dataset_index`."""

    raw_index_path: Annotated[Path, Field(description="the .idx file")]
    num_ranks: NumRanks
    local_micro_batch_size: MicroBatchSize
    gradient_accumulation_steps: AccumulationSteps


class VocabSizeFromPackedDatasetConfig(ComponentConfig):
    """Fields of `vocab_size_from_packed_dataset`; Modalities does not have it."""

    dataset_path: Annotated[Path, Field(description="the .pbin file, with its manifest beside it")]
    multiple_of: Annotated[Positive, Field(description="the size is rounded up to a multiple of this")] = 128


class GPT2MFUCalculatorConfig(ComponentConfig):
    """Fields of the MFU calculator `gpt2`: the shape of the model, and where it runs."""

    n_layer: Annotated[Positive, Field(examples=[12], description="n_layer of the model")]
    sequence_length: SequenceLength
    n_embd: Annotated[Positive, Field(examples=[768], description="n_embd of the model")]
    world_size: Annotated[Positive, Field(description="number of processes")]
    model_parts: Annotated[
        PydanticPytorchModuleOrListType,
        Field(
            validation_alias=AliasChoices("model_parts", "wrapped_model"),
            description="the model as it is trained, wrapped; with pipeline parallelism the list of its parts",
        ),
    ]
    device_mesh: Annotated[PydanticDeviceMeshIFType | None, Field(description="that of the run")] = None
