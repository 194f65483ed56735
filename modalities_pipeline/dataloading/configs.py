"""Configs of datasets, samplers, collators, data loaders and generators of random batches."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import AliasChoices, Field, FilePath, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from modalities_pipeline.config.component import ComponentConfig, are_known, raise_at_keys
from modalities_pipeline.config.input_paths import InputPath
from modalities_pipeline.config.pydantic_if_types import (
    PydanticCollateFnIFType,
    PydanticDatasetIFType,
    PydanticDeviceMeshIFType,
    PydanticSamplerIFType,
    PydanticTokenizerIFType,
)
from modalities_pipeline.distributed.configs import ParallelismDegrees

_Count = Annotated[int, Field(strict=True, ge=0)]
_Positive = Annotated[int, Field(strict=True, gt=0)]
_SampleKey = Annotated[str, Field(description="name of the tokens in a sample", examples=["input_ids"])]
_PackedFile = Annotated[InputPath, Field(description="the .pbin file")]
_SequenceLength = Annotated[
    int,
    Field(
        strict=True,
        gt=1,
        validation_alias=AliasChoices("sequence_length", "block_size"),
        description="tokens that a sample gives the model",
        examples=[2048],
    ),
]


def _refuse(key: str, value: Any, message: str) -> NoReturn:
    """Refuse a value before the fields are validated, at its key."""
    details = InitErrorDetails(type="value_error", loc=(key,), input=value, ctx={"error": ValueError(message)})
    raise ValidationError.from_exception_data("config", [details])


class MemMapDatasetConfig(ComponentConfig):
    """Fields of `mem_map_dataset`."""

    raw_data_path: Annotated[FilePath, Field(description="the JSON-lines file")]
    index_path: Annotated[FilePath | None, Field(description="its index; by default beside it, with suffix .idx")] = (
        None
    )
    tokenizer: Annotated[PydanticTokenizerIFType, Field(description="makes token ids of the text")]
    jq_pattern: Annotated[str, Field(description="where the text is in a line", examples=[".text"])]
    sample_key: _SampleKey


class PackedMemMapDatasetContinuousConfig(ComponentConfig):
    """Fields of `packed_mem_map_dataset_continuous`.

    In configs of earlier versions of Modalities `block_size` is the number of all tokens of a sample. With
    `reuse_last_target` that is one more than `sequence_length`, for the last target; else it is the same.
    """

    raw_data_path: _PackedFile
    sequence_length: _SequenceLength
    sample_key: _SampleKey
    reuse_last_target: Annotated[
        bool, Field(description="whether the last target of a sample is also the first input of the next one")
    ] = True

    @model_validator(mode="before")
    @classmethod
    def _count_inputs_only(cls, values: Any) -> Any:
        block_size = values.get("block_size") if isinstance(values, dict) else None
        if not isinstance(block_size, int) or isinstance(block_size, bool) or not values.get("reuse_last_target", True):
            return values
        if block_size < 3:
            _refuse("block_size", block_size, "counts the last target, too, so it has to be at least 3")
        return {**values, "block_size": block_size - 1}


class PackedMemMapDatasetMegatronConfig(ComponentConfig):
    """Fields of `packed_mem_map_dataset_megatron`; `block_size` is Modalities' name of its sequence length."""

    raw_data_path: _PackedFile
    sequence_length: _SequenceLength
    sample_key: _SampleKey


class DummySampleDataType(StrEnum):
    """Kind of random numbers."""

    FLOAT = "float"
    INT = "int"


class DummySampleConfig(ComponentConfig):
    """One entry of a dummy sample."""

    sample_key: Annotated[str, Field(examples=["images"], description="name of the entry in a sample")]
    sample_shape: Annotated[tuple[int, ...], Field(examples=[[3, 4]], description="sizes of the entry's dimensions")]
    sample_type: Annotated[DummySampleDataType, Field(description="kind of random numbers")]


class DummyDatasetConfig(ComponentConfig):
    """Fields of `dummy_dataset`."""

    num_samples: Annotated[int, Field(ge=1, description="length of the dataset")]
    sample_definition: Annotated[list[DummySampleConfig], Field(description="entries of each sample")]


class CombinedDatasetConfig(ComponentConfig):
    """Fields of `combined`."""

    datasets: Annotated[list[PydanticDatasetIFType], Field(min_length=1, description="in this order")]


def _without_null(values: Any, names: Sequence[str]) -> Any:
    """The values without those of `names` that are null, so that these get their defaults."""
    if not isinstance(values, dict):
        return values
    if values.get("shuffle") is True and values.get("seed", 0) is None:
        _refuse("seed", None, "null leaves the order of the samples to chance; name a number")
    return {name: value for name, value in values.items() if value is not None or name not in names}


class _PassConfig(ComponentConfig):
    """What the samplers that go on from a given sample have in common."""

    dataset: Annotated[PydanticDatasetIFType, Field(description="where the samples are")]
    epoch: Annotated[_Count, Field(description="number of the first epoch")] = 0
    shuffle: Annotated[bool, Field(description="whether each epoch has an order of its own")] = False
    seed: Annotated[int, Field(description="of the shuffle")] = 0
    drop_last: Annotated[Literal[True], Field(description="whether an incomplete rest is left out")] = True
    skip_num_global_samples: Annotated[_Count, Field(description="samples, of all ranks, that were seen before")] = 0
    num_epochs: Annotated[_Positive, Field(description="how often to go through the data; not in Modalities")] = 1

    @model_validator(mode="before")
    @classmethod
    def _take_defaults_for_null(cls, values: Any) -> Any:
        return _without_null(values, ("shuffle", "seed"))


class _RankConfig(ComponentConfig):
    """What the samplers that are told their rank have in common."""

    rank: Annotated[_Count, Field(description="of this process among the data parallel ranks")]
    num_replicas: Annotated[_Positive, Field(description="number of data parallel ranks")]

    @model_validator(mode="after")
    def _check_rank(self) -> Self:
        if are_known(self.rank, self.num_replicas) and self.rank >= self.num_replicas:
            raise_at_keys(self, [("rank", f"has to be smaller than num_replicas ({self.num_replicas})")])
        return self


class DistributedSamplerConfig(_RankConfig):
    """Fields of `distributed_sampler`."""

    dataset: Annotated[PydanticDatasetIFType, Field(description="where the samples are")]
    shuffle: Annotated[bool, Field(description="whether the order is drawn; else that of the dataset")]
    seed: Annotated[int, Field(description="of the shuffle")] = 0
    drop_last: Annotated[Literal[True], Field(description="whether an incomplete rest is left out")] = True

    @model_validator(mode="before")
    @classmethod
    def _take_defaults_for_null(cls, values: Any) -> Any:
        return _without_null(values, ("seed",))


class ResumableDistributedSamplerConfig(_RankConfig, _PassConfig):
    """Fields of `resumable_distributed_sampler`."""


class ResumableDistributedMultiDimSamplerConfig(_PassConfig):
    """Fields of `resumable_distributed_multi_dim_sampler`."""

    device_mesh: Annotated[PydanticDeviceMeshIFType, Field(description="tells which samples are this rank's")]
    data_parallel_key: Annotated[
        ParallelismDegrees | Annotated[list[ParallelismDegrees], Field(min_length=1)],
        Field(
            description="one dimension of the mesh, as in Modalities, or all over which data is split",
            examples=["dp_shard"],
        ),
    ]


class SequentialSamplerConfig(ComponentConfig):
    """Fields of `sequential_sampler`."""

    data_source: Annotated[PydanticDatasetIFType, Field(description="the dataset")]


class BatchSamplerConfig(ComponentConfig):
    """Fields of the batch sampler."""

    sampler: Annotated[PydanticSamplerIFType, Field(description="decides which samples, and their order")]
    batch_size: Annotated[_Positive, Field(description="samples per rank and micro batch")]
    drop_last: Annotated[Literal[True], Field(description="whether an incomplete rest is left out")] = True


class LLMDataLoaderConfig(ComponentConfig):
    """Fields of the data loader."""

    dataloader_tag: Annotated[str, Field(description="name of the loader in reports")]
    dataset: Annotated[PydanticDatasetIFType, Field(description="where the samples are")]
    batch_sampler: Annotated[PydanticSamplerIFType, Field(description="decides which samples form a batch")]
    collate_fn: Annotated[PydanticCollateFnIFType | None, Field(description="by default that of torch")] = None
    num_workers: Annotated[_Count, Field(description="processes that read; 0: the training process itself")]
    pin_memory: Annotated[bool, Field(description="whether batches are page-locked, for faster copies to a GPU")]


class DataTypeEnum(StrEnum):
    """Kinds of numbers of a random batch."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    int64 = "int64"


class RandomDatasetBatchGeneratorConfig(ComponentConfig):
    """Fields of `dataset_batch_generator/random`; numbers are drawn from [min_val, max_val)."""

    dims: Annotated[
        dict[str, Annotated[int, Field(gt=0)]],
        Field(
            min_length=1,
            description="name of each dimension: its size; their order is that of the shape",
            examples=[{"batch_size": 4, "sequence_length": 2048}],
        ),
    ]
    data_type: Annotated[DataTypeEnum, Field(examples=["int64"], description="dtype of the numbers")]
    min_val: Annotated[int, Field(description="the lowest number")]
    max_val: Annotated[int, Field(examples=[50_000], description="above all numbers; of token ids the vocab_size")]

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if are_known(self.min_val, self.max_val) and self.min_val >= self.max_val:
            raise_at_keys(self, [("min_val", f"has to be smaller than max_val ({self.max_val})")])
        return self
