"""Configs of optimizers and gradient clippers. Imports no torch."""

from enum import Enum
from typing import Annotated, Self

from pydantic import AliasChoices, Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, raise_at_keys
from modalities_pipeline.config.model_parts import models_inside
from modalities_pipeline.config.named_enums import ByName
from modalities_pipeline.config.pydantic_if_types import (
    PydanticDeviceMeshIFType,
    PydanticPytorchModuleOrListType,
    PydanticPytorchModuleType,
)
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.distributed.configs import ParallelismDegrees, static_parallel_degree
from modalities_pipeline.optim.numbers import Number

# Models that leave weights on the meta device where they are.
_WITHOUT_WEIGHTS = {"gpt2", "gpt2_tp", "fsdp2_wrapped", "activation_checkpointed", "compiled", "debugging_enriched"}

_Beta = Annotated[Number, Field(ge=0.0, lt=1.0)]


class AdamOptimizerConfig(ComponentConfig):
    """Fields of `adam`."""

    lr: Annotated[Number, Field(ge=0.0, examples=[1e-4], description="learning rate")]
    wrapped_model: Annotated[PydanticPytorchModuleOrListType, Field(description="the model as it is trained")]
    betas: Annotated[
        tuple[_Beta, _Beta],
        Field(examples=[[0.9, 0.95]], description="decay of the running means of gradient and its square"),
    ]
    eps: Annotated[Number, Field(ge=0.0, examples=[1e-8], description="keeps a step finite where gradients are tiny")]
    weight_decay: Annotated[Number, Field(ge=0.0, examples=[0.1], description="pulls weights towards 0; 0: none")]
    weight_decay_groups_excluded: Annotated[
        list[str],
        Field(
            examples=[["embedding", "layernorm"]],
            description="groups of parameters without decay; gpt2 has linear, embedding and layernorm",
        ),
    ]
    foreach: Annotated[bool | None, Field(description="one call for many parameters; null: torch decides")] = None
    fused: Annotated[
        bool | None, Field(description="one kernel for all parameters, the fastest; null: torch decides")
    ] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        faults = []
        if self.foreach is True and self.fused is True:
            faults.append(("fused", "true, but foreach is true as well; set one of them to null"))
        chain = list(models_inside(self.wrapped_model))
        if chain and {model.variant_key for model in chain} <= _WITHOUT_WEIGHTS and _is_on_meta(chain[-1]):
            faults.append(("wrapped_model", "has no memory yet (use_meta_device); give the one of model_initialized"))
        raise_at_keys(self, faults)
        return self


class AdamWOptimizerConfig(AdamOptimizerConfig):
    """Fields of `adam_w`."""


class GradientClippingMode(Enum):
    """Norm of all gradients together; written by name or by value."""

    P1_NORM = 1
    P2_NORM = 2
    MAX_NORM = "inf"


NormType = Annotated[
    GradientClippingMode, ByName(), Field(examples=["P2_NORM"], description="norm over all gradients together")
]
MaxNorm = Annotated[
    float,
    Field(strict=True, gt=0.0, allow_inf_nan=False, description="gradients with a larger norm are scaled to it"),
]


class FSDP2LoggingOnlyGradientClipperConfig(ComponentConfig):
    """Fields of `fsdp2_logging_only`."""

    model_parts: PydanticPytorchModuleOrListType = Field(
        validation_alias=AliasChoices("model_parts", "wrapped_model"), description="the model as it is trained"
    )
    norm_type: NormType
    device_mesh: Annotated[
        PydanticDeviceMeshIFType | None,
        Field(description="that of the run; needed where the model is split for a pipeline"),
    ] = None

    @model_validator(mode="after")
    def _check_mesh(self) -> Self:
        is_split = any(model.component_key == "pipeline" for model in models_inside(self.model_parts))
        if is_split and self.device_mesh is None:
            message = "model_parts are those of a pipeline, whose other ranks have gradients, too; give the run's mesh"
            raise_at_keys(self, [("device_mesh", message)])
        if is_split and static_parallel_degree(self.device_mesh, [ParallelismDegrees.PP]) == 1:
            message = "model_parts are those of a pipeline, but this mesh has no pipeline_parallel_degree above 1"
            raise_at_keys(self, [("device_mesh", message)])
        return self


class FSDP2GradientClipperConfig(FSDP2LoggingOnlyGradientClipperConfig):
    """Fields of `fsdp2`."""

    max_norm: MaxNorm


class FSDP1LoggingOnlyGradientClipperConfig(ComponentConfig):
    """Fields of `fsdp1_logging_only`."""

    model_parts: PydanticPytorchModuleType = Field(
        validation_alias=AliasChoices("wrapped_model", "model_parts"), description="the model as it is trained"
    )
    norm_type: NormType


class FSDP1GradientClipperConfig(FSDP1LoggingOnlyGradientClipperConfig):
    """Fields of `fsdp1`."""

    max_norm: MaxNorm


def _is_on_meta(model: Unbuilt) -> bool:
    return getattr(model.config, "use_meta_device", None) is True


class DummyGradientClipperConfig(ComponentConfig):
    """No fields."""
