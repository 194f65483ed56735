"""Configs of activation checkpointing and of compilation. Imports no torch."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from modalities_pipeline.config.component import ComponentConfig, raise_at_keys, validate_as
from modalities_pipeline.config.model_parts import models_inside
from modalities_pipeline.config.pydantic_if_types import (
    PydanticFSDP1ModuleType,
    PydanticPytorchModuleOrListType,
)


class ActivationCheckpointingVariants(StrEnum):
    """Which activations are computed again in the backward pass instead of being kept."""

    FULL_ACTIVATION_CHECKPOINTING = "full_activation_checkpointing"
    SELECTIVE_LAYER_ACTIVATION_CHECKPOINTING = "selective_layer_activation_checkpointing"
    SELECTIVE_OP_ACTIVATION_CHECKPOINTING = "selective_op_activation_checkpointing"


class SaveableOps(StrEnum):
    """Operations whose outputs are worth keeping, as paths from `torch`: products, attention, communication.

    Which attention runs depends on the device, so all of its kinds may be named together.
    """

    MM = "ops.aten.mm.default"
    EFFICIENT_ATTENTION = "ops.aten._scaled_dot_product_efficient_attention.default"
    FLASH_ATTENTION = "ops.aten._scaled_dot_product_flash_attention.default"
    FLASH_ATTENTION_CPU = "ops.aten._scaled_dot_product_flash_attention_for_cpu.default"
    CUDNN_ATTENTION = "ops.aten._scaled_dot_product_cudnn_attention.default"
    REDUCE_SCATTER = "ops._c10d_functional.reduce_scatter_tensor.default"
    MAX = "ops.aten.max.default"


class FullACParams(ComponentConfig):
    """No fields: every layer."""


class SelectiveLayerACParams(ComponentConfig):
    """Every `ac_freq`-th layer."""

    ac_freq: Annotated[int, Field(strict=True, ge=1, description="1: every layer, 2: every second one")]


class SelectiveOpACParams(ComponentConfig):
    """Every layer, but the outputs of the named operations are kept."""

    save_ops_keys: Annotated[
        list[SaveableOps],
        Field(min_length=1, description="operations whose outputs are kept; of ops.aten.mm.default every second one"),
    ]


ACParams = FullACParams | SelectiveLayerACParams | SelectiveOpACParams

AC_PARAMS_TYPES: dict[ActivationCheckpointingVariants, type[ACParams]] = {
    ActivationCheckpointingVariants.FULL_ACTIVATION_CHECKPOINTING: FullACParams,
    ActivationCheckpointingVariants.SELECTIVE_LAYER_ACTIVATION_CHECKPOINTING: SelectiveLayerACParams,
    ActivationCheckpointingVariants.SELECTIVE_OP_ACTIVATION_CHECKPOINTING: SelectiveOpACParams,
}


class ActivationCheckpointedModelConfig(ComponentConfig):
    """Fields of `activation_checkpointed`; `ac_variant` decides which fields `ac_fun_params` has."""

    ac_variant: Annotated[
        ActivationCheckpointingVariants,
        Field(description="all layers, every n-th layer, or all layers but for the outputs of some operations"),
    ]
    layers_fqn: Annotated[
        str, Field(examples=["transformer.h"], description="name of the module that holds the layers, as transformer.h")
    ]
    model: Annotated[
        PydanticPytorchModuleOrListType,
        Field(description="neither compiled nor sharded yet: activation_checkpointed, compiled, fsdp2_wrapped"),
    ]
    ac_fun_params: Annotated[ACParams, Field(description="{}, {ac_freq}, or {save_ops_keys}")]
    preserve_rng_state: Annotated[
        bool | None,
        Field(
            description="whether dropout drops the same again in the backward pass, without which gradients are "
            "wrong; null: for layers with dropout. Modalities: false"
        ),
    ] = None

    @field_validator("ac_fun_params", mode="wrap")
    @classmethod
    def _validate_by_variant(cls, params: Any, handler: Callable[[Any], Any], info: ValidationInfo) -> Any:
        variant = info.data.get("ac_variant")
        if not isinstance(variant, ActivationCheckpointingVariants):  # its own fault is reported
            return params
        if not isinstance(params, dict):
            return params if isinstance(params, AC_PARAMS_TYPES[variant]) else handler(params)
        return validate_as(AC_PARAMS_TYPES[variant], params, variant.value)

    @model_validator(mode="after")
    def _check_once(self) -> Self:
        others = [model.config for model in models_inside(self.model)]
        if any(isinstance(other, type(self)) and other.layers_fqn == self.layers_fqn for other in others):
            message = f"the layers {self.layers_fqn} have activation checkpointing already; apply it once"
            raise_at_keys(self, [("model", message)])
        return self


class FSDP1ActivationCheckpointedModelConfig(ComponentConfig):
    """Fields of `activation_checkpointed_fsdp1`."""

    model: Annotated[PydanticFSDP1ModuleType, Field(description="the model/fsdp1_wrapped")]
    activation_checkpointing_modules: Annotated[
        list[str] | None, Field(description="class names of the modules that are checkpointed; null or []: none")
    ] = Field(default_factory=list)


class CompiledModelConfig(ComponentConfig):
    """Fields of `compiled`."""

    model: Annotated[
        PydanticPytorchModuleOrListType,
        Field(description="not sharded yet: activation_checkpointed, compiled, fsdp2_wrapped"),
    ]
    block_names: Annotated[
        list[str],
        Field(examples=[["GPT2Block"]], description="class names of the modules that are compiled; of gpt2: GPT2Block"),
    ]
    fullgraph: Annotated[
        bool | None, Field(description="whether a block has to be one graph; null: as torch.compile does, not so")
    ] = True
    debug: Annotated[
        bool | None, Field(description="whether the compiler keeps a trace (inductor's trace.enabled)")
    ] = False

    @model_validator(mode="after")
    def _check_once(self) -> Self:
        others = [model.config for model in models_inside(self.model)]
        names = {name for other in others if isinstance(other, type(self)) for name in other.block_names}
        again = [name for name in self.block_names if name in names]
        if again:
            raise_at_keys(self, [("block_names", f"{', '.join(again)} is compiled already, in model; compile it once")])
        return self
