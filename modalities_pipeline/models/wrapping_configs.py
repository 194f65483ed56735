"""Configs of what changes a model without touching its maths, and of models of Hugging Face. Imports no torch."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from modalities_pipeline.config.component import ComponentConfig, validate_as
from modalities_pipeline.config.pydantic_if_types import (
    PydanticFSDP1ModuleType,
    PydanticPytorchModuleOrListType,
)


class ActivationCheckpointingVariants(StrEnum):
    """Which activations are computed again in the backward pass instead of being kept."""

    FULL_ACTIVATION_CHECKPOINTING = "full_activation_checkpointing"
    SELECTIVE_LAYER_ACTIVATION_CHECKPOINTING = "selective_layer_activation_checkpointing"
    SELECTIVE_OP_ACTIVATION_CHECKPOINTING = "selective_op_activation_checkpointing"


class FullACParams(ComponentConfig):
    """No fields: every layer."""


class SelectiveLayerACParams(ComponentConfig):
    """Every `ac_freq`-th layer."""

    ac_freq: Annotated[int, Field(strict=True, ge=1)]


class SelectiveOpACParams(ComponentConfig):
    """Every layer, but the outputs of the named operations are kept."""

    save_ops_keys: Annotated[list[str], Field(min_length=1)]


ACParams = FullACParams | SelectiveLayerACParams | SelectiveOpACParams

_PARAMS_TYPES: dict[ActivationCheckpointingVariants, type[ACParams]] = {
    ActivationCheckpointingVariants.FULL_ACTIVATION_CHECKPOINTING: FullACParams,
    ActivationCheckpointingVariants.SELECTIVE_LAYER_ACTIVATION_CHECKPOINTING: SelectiveLayerACParams,
    ActivationCheckpointingVariants.SELECTIVE_OP_ACTIVATION_CHECKPOINTING: SelectiveOpACParams,
}


class ActivationCheckpointedModelConfig(ComponentConfig):
    """Fields of `activation_checkpointed`; `ac_variant` decides which fields `ac_fun_params` has."""

    ac_variant: ActivationCheckpointingVariants
    layers_fqn: Annotated[
        str, Field(examples=["transformer.h"], description="name of the module that holds the layers, as transformer.h")
    ]
    model: PydanticPytorchModuleOrListType
    ac_fun_params: Annotated[ACParams, Field(description="{}, {ac_freq}, or {save_ops_keys}")]

    @field_validator("ac_fun_params", mode="wrap")
    @classmethod
    def _validate_by_variant(cls, params: Any, handler: Callable[[Any], Any], info: ValidationInfo) -> Any:
        variant = info.data.get("ac_variant")
        if not isinstance(variant, ActivationCheckpointingVariants):  # its own fault is reported
            return params
        if not isinstance(params, dict):
            return params if isinstance(params, _PARAMS_TYPES[variant]) else handler(params)
        return validate_as(_PARAMS_TYPES[variant], params, variant.value)


class FSDP1ActivationCheckpointedModelConfig(ComponentConfig):
    """Fields of `activation_checkpointed_fsdp1`."""

    model: PydanticFSDP1ModuleType
    activation_checkpointing_modules: Annotated[
        list[str] | None, Field(description="class names of the modules that are checkpointed")
    ] = Field(default_factory=list)


class CompiledModelConfig(ComponentConfig):
    """Fields of `compiled`."""

    model: PydanticPytorchModuleOrListType
    block_names: Annotated[list[str], Field(description="class names of the modules that are compiled")]
    fullgraph: Annotated[bool | None, Field(description="whether a block has to be one graph")] = True
    debug: Annotated[bool | None, Field(description="whether the compiler keeps a trace")] = False


class HuggingFaceModelTypes(StrEnum):
    """Classes of transformers that load a model."""

    AutoModelForCausalLM = "AutoModelForCausalLM"
    AutoModelForMaskedLM = "AutoModelForMaskedLM"


class HuggingFacePretrainedModelConfig(ComponentConfig):
    """Fields of `huggingface_pretrained_model`."""

    model_type: HuggingFaceModelTypes
    model_name: Annotated[Path, Field(description="folder of the model, or its name on the Hugging Face hub")]
    prediction_key: str
    huggingface_prediction_subscription_key: Annotated[
        str, Field(description="what to take from the model's own output, as logits")
    ]
    sample_key: str
    model_args: Any | None = None
    kwargs: Any | None = None
