"""Configs of losses, optimizers and gradient clippers. Imports no torch."""

from enum import Enum
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from modalities_pipeline.config.component import ComponentConfig
from modalities_pipeline.config.named_enums import ByName
from modalities_pipeline.config.pydantic_if_types import (
    PydanticDeviceMeshIFType,
    PydanticPytorchModuleOrListType,
    PydanticPytorchModuleType,
)


def _no_truth_value(value: Any) -> Any:
    """Text may be a number, as Modalities has it; true and false are slips."""
    if isinstance(value, bool):
        raise ValueError(f"has to be a number (given: {str(value).lower()})")
    return value


_Number = Annotated[float, BeforeValidator(_no_truth_value), Field(allow_inf_nan=False)]
_Beta = Annotated[_Number, Field(ge=0.0, lt=1.0)]


class CLMCrossEntropyLossConfig(ComponentConfig):
    """Fields of `clm_cross_entropy_loss`."""

    target_key: Annotated[
        str, Field(examples=["target_ids"], description="key of the token ids to be predicted, in a batch's targets")
    ]
    prediction_key: Annotated[str, Field(examples=["logits"], description="key of the logits in the predictions")]


class NCELossConfig(ComponentConfig):
    """Fields of `nce_loss`."""

    prediction_key1: str
    prediction_key2: str
    is_asymmetric: Annotated[bool, Field(description="whether only the first predicts the second")] = True
    temperature: _Number = 1.0


class AdamOptimizerConfig(ComponentConfig):
    """Fields of `adam`."""

    lr: Annotated[_Number, Field(ge=0.0, examples=[1e-4], description="learning rate")]
    wrapped_model: Annotated[PydanticPytorchModuleOrListType, Field(description="the model as it is trained")]
    betas: Annotated[
        tuple[_Beta, _Beta],
        Field(examples=[[0.9, 0.95]], description="decay of the running means of gradient and its square"),
    ]
    eps: Annotated[_Number, Field(ge=0.0, examples=[1e-8], description="keeps a step finite where gradients are tiny")]
    weight_decay: Annotated[_Number, Field(ge=0.0, examples=[0.1], description="pulls weights towards 0; 0: none")]
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


class AdamWOptimizerConfig(AdamOptimizerConfig):
    """Fields of `adam_w`."""


class GradientClippingMode(Enum):
    """Norm of all gradients together; written by name or by value."""

    P1_NORM = 1
    P2_NORM = 2
    MAX_NORM = "inf"


NormType = Annotated[GradientClippingMode, ByName(), Field(description="norm over all gradients together")]
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
        PydanticDeviceMeshIFType | None, Field(description="that of the model, if it is sharded")
    ] = None


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


class DummyGradientClipperConfig(ComponentConfig):
    """No fields."""
