"""Configs of device meshes, and of models that are spread over ranks. Imports no torch."""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, are_known, raise_at_keys
from modalities_pipeline.config.pydantic_if_types import (
    PydanticDeviceMeshIFType,
    PydanticPytorchModuleOrListType,
    PydanticPytorchModuleType,
)
from modalities_pipeline.config.unbuilt import Unbuilt

_Degree = Annotated[int, Field(strict=True, gt=0)]
_DataParallelDegree = Annotated[int, Field(strict=True, ge=-1)]


class ParallelismDegrees(StrEnum):
    """Dimensions of a mesh, by the kind of parallelism along them."""

    DP_REPLICATE = "dp_replicate"
    DP_SHARD = "dp_shard"
    CP = "cp"
    TP = "tp"
    PP = "pp"


# In the order in which a mesh has its dimensions.
_FIELDS = {
    ParallelismDegrees.PP: "pipeline_parallel_degree",
    ParallelismDegrees.DP_REPLICATE: "data_parallel_replicate_degree",
    ParallelismDegrees.DP_SHARD: "data_parallel_shard_degree",
    ParallelismDegrees.CP: "context_parallel_degree",
    ParallelismDegrees.TP: "tensor_parallel_degree",
}
DATA_PARALLEL = (ParallelismDegrees.DP_REPLICATE, ParallelismDegrees.DP_SHARD)

NO_CP = "there is no context parallelism: its ranks would all do the same work. Set it to 1"
NO_LOSS_PARALLEL = "every rank computes the loss of whole logits. Set it to false"


class DeviceMeshConfig(ComponentConfig):
    """Fields of the mesh. Of the data parallel degrees one may be -1: whatever is left of `world_size`.

    The device type is the run's (see `distributed.env`) unless given.
    """

    device_type: Annotated[str | None, Field(description="cuda or cpu; null: that of the run")] = None
    data_parallel_replicate_degree: Annotated[
        _DataParallelDegree, Field(description="groups of ranks with a whole model each")
    ] = 1
    data_parallel_shard_degree: Annotated[
        _DataParallelDegree, Field(description="ranks over which a model's parameters are split")
    ]
    tensor_parallel_degree: Annotated[_Degree, Field(description="ranks over which matrices are split")] = 1
    pipeline_parallel_degree: Annotated[_Degree, Field(description="ranks over which layers are spread")] = 1
    context_parallel_degree: Annotated[_Degree, Field(description="1: a sample is not split over ranks")] = 1
    enable_loss_parallel: Annotated[
        bool | None, Field(description="false: the loss is computed of whole logits, also with tensor parallelism")
    ] = False
    world_size: Annotated[_Degree, Field(description="number of processes, ${cuda_env:WORLD_SIZE}")]

    @property
    def degrees(self) -> dict[ParallelismDegrees, int] | None:
        """Size of each dimension, in the mesh's order, -1 filled in; None if a number is not known before building."""
        given = {kind: getattr(self, field) for kind, field in _FIELDS.items()}
        return fill_degrees(given, self.world_size) if are_known(self.world_size, *given.values()) else None

    @model_validator(mode="after")
    def _check_degrees(self) -> Self:
        faults = []
        if are_known(self.context_parallel_degree) and self.context_parallel_degree != 1:
            faults.append(("context_parallel_degree", NO_CP))
        if are_known(self.enable_loss_parallel) and self.enable_loss_parallel:
            faults.append(("enable_loss_parallel", NO_LOSS_PARALLEL))
        raise_at_keys(self, faults)
        _ = self.degrees  # raises a ValueError if they do not make up the world size
        return self


def fill_degrees(given: Mapping[ParallelismDegrees, int], world_size: int) -> dict[ParallelismDegrees, int]:
    """The sizes of a mesh's dimensions with the one that is -1 filled in.

    Raises:
        ValueError: a degree is 0, two are -1, or their product is not the number of processes.
    """
    empty = [kind for kind, degree in given.items() if degree == 0]
    if empty:
        raise ValueError(f"{_FIELDS[empty[0]]} is 0; use 1 for none, -1 for whatever is left")
    if list(given.values()).count(-1) > 1:
        raise ValueError("only one data parallel degree may be -1")
    known = {kind: degree for kind, degree in given.items() if degree != -1}
    product = math.prod(known.values())
    said = {kind: degree for kind, degree in known.items() if degree != 1 or kind in DATA_PARALLEL}
    words = " x ".join(f"{_FIELDS[kind]} {degree}" for kind, degree in said.items())
    if len(known) < len(given) and world_size % product:
        raise ValueError(f"world_size {world_size} is not a multiple of {words}")
    if len(known) == len(given) and product != world_size:
        raise ValueError(f"{words} is not world_size {world_size}")
    return {kind: world_size // product if degree == -1 else degree for kind, degree in given.items()}


def static_parallel_degree(
    device_mesh: Unbuilt | DeviceMeshConfig | Any, parallelism_methods: Iterable[ParallelismDegrees | str]
) -> int | None:
    """Product of a mesh's sizes along dimensions, from its config; None if that is not known before it is built.

    Args:
        device_mesh: a `DeviceMeshConfig`, or the `Unbuilt` that has one; anything else is not known.
        parallelism_methods: the dimensions, as in `number_conversion/parallel_degree`.
    """
    config = device_mesh.config if isinstance(device_mesh, Unbuilt) else device_mesh
    degrees = config.degrees if isinstance(config, DeviceMeshConfig) else None
    if degrees is None:
        return None
    return math.prod(degrees[kind] for kind in {ParallelismDegrees(method) for method in parallelism_methods})


class ParallelDegreeConfig(ComponentConfig):
    """Fields of the number conversion `parallel_degree`."""

    device_mesh: Annotated[PydanticDeviceMeshIFType, Field(description="whose dimensions are looked at")]
    parallelism_methods: Annotated[list[ParallelismDegrees], Field(description="dimensions whose sizes are multiplied")]

    def static_value(self) -> int | None:
        """The number without building the mesh; None if it is not known."""
        return static_parallel_degree(self.device_mesh, self.parallelism_methods)


class PyTorchDtypes(StrEnum):
    """Floating point types, by the names that configs use."""

    FP_16 = "FP_16"
    FP_32 = "FP_32"
    BF_16 = "BF_16"


class FSDP2MixedPrecisionSettings(ComponentConfig):
    """In what a block computes (its gathered parameters), and in what gradients are reduced over the ranks."""

    param_dtype: Annotated[
        PyTorchDtypes, Field(examples=["BF_16"], description="of the gathered parameters, and of what is computed")
    ]
    reduce_dtype: Annotated[
        PyTorchDtypes, Field(examples=["BF_16"], description="in which gradients are added over the ranks")
    ]


class FSDP2WrappedModelConfig(ComponentConfig):
    """Fields of `fsdp2_wrapped`."""

    model: Annotated[PydanticPytorchModuleOrListType, Field(description="whose parameters are sharded")]
    block_names: Annotated[
        list[str],
        Field(
            examples=[["GPT2Block"]],
            description="class names of the modules that become units of sharding; of gpt2: GPT2Block",
        ),
    ]
    mixed_precision_settings: FSDP2MixedPrecisionSettings
    reshard_after_forward: Annotated[
        bool,
        Field(description="whether parameters are gathered again for the backward pass: less memory, more traffic"),
    ] = True
    device_mesh: Annotated[PydanticDeviceMeshIFType, Field(description="whose data parallel dimensions are used")]
    layers_per_fsdp_unit: Annotated[int, Field(ge=1, description="blocks in a unit of sharding")] = 1


class MixedPrecisionSettings(StrEnum):
    """Dtypes of FSDP1 for parameters, gradient reduction and buffers."""

    FP_16 = "FP_16"
    BF_16 = "BF_16"
    BF_16_WORKING = "BF_16_WORKING"
    FP_32 = "FP_32"
    MIXED_PRECISION_MEGATRON = "MIXED_PRECISION_MEGATRON"
    NO_MIXED_PRECISION = "NO_MIXED_PRECISION"


class ShardingStrategy(StrEnum):
    """Members of `torch.distributed.fsdp.ShardingStrategy`, by name."""

    FULL_SHARD = "FULL_SHARD"
    SHARD_GRAD_OP = "SHARD_GRAD_OP"
    NO_SHARD = "NO_SHARD"
    HYBRID_SHARD = "HYBRID_SHARD"
    HYBRID_SHARD_ZERO2 = "_HYBRID_SHARD_ZERO2"


class FSDP1WrappedModelConfig(ComponentConfig):
    """Fields of `fsdp1_wrapped`."""

    model: Annotated[PydanticPytorchModuleType, Field(description="whose parameters are sharded")]
    sync_module_states: Annotated[
        bool, Field(examples=[True], description="whether all ranks start with the weights of rank 0")
    ]
    mixed_precision_settings: Annotated[
        MixedPrecisionSettings,
        Field(examples=["BF_16"], description="dtypes of parameters, gradient reduction and buffers"),
    ]
    sharding_strategy: Annotated[
        ShardingStrategy, Field(description="member of torch.distributed.fsdp.ShardingStrategy")
    ]
    block_names: Annotated[
        list[str],
        Field(examples=[["GPT2Block"]], description="class names of the modules that become units of sharding"),
    ]


class GPT2ModelTPConfig(ComponentConfig):
    """Fields of `gpt2_tp`."""

    model: Annotated[
        PydanticPytorchModuleOrListType,
        Field(description="gpt2 model as it was built; other wrappers come after this one"),
    ]
    device_mesh: Annotated[PydanticDeviceMeshIFType, Field(description="whose tensor parallel dimension is used")]

    @model_validator(mode="after")
    def _check_mesh(self) -> Self:
        degree = static_parallel_degree(self.device_mesh, [ParallelismDegrees.TP])
        if degree == 1:
            raise_at_keys(self, [("device_mesh", "the mesh needs a tensor_parallel_degree greater than 1")])
        if (static_parallel_degree(self.device_mesh, [ParallelismDegrees.DP_REPLICATE]) or 1) > 1:
            message = "gpt2_tp works with data_parallel_replicate_degree 1 only; use data_parallel_shard_degree"
            raise_at_keys(self, [("device_mesh", message)])
        raise_at_keys(self, [("model", fault) for fault in _tensor_parallel_faults(self.model, degree)])
        return self


def _tensor_parallel_faults(model: Any, degree: int | None) -> Iterable[str]:
    """What in the config of a gpt2 model, where that is known, does not go with `degree` ranks."""
    config = model.config if isinstance(model, Unbuilt) else None
    if getattr(config, "fused_loss", None) is not None:
        yield "gpt2_tp does not work with fused_loss; set the model's fused_loss to null"
    for field in ("n_head_q", "n_head_kv"):
        num_heads = getattr(config, field, None)
        if isinstance(num_heads, int) and degree and num_heads % degree:
            yield f"{field} {num_heads} is not a multiple of tensor_parallel_degree {degree}"
