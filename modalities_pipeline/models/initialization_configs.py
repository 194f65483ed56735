"""Configs of initial weights. Imports no torch."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from modalities_pipeline.config.component import ComponentConfig, raise_at_keys
from modalities_pipeline.config.pydantic_if_types import (
    PydanticModelInitializationIFType,
    PydanticPytorchModuleOrListType,
)

StrictPositive = Annotated[int, Field(strict=True, gt=0)]


class WeightInitializedModelConfig(ComponentConfig):
    """Fields of `model_initialized`."""

    model: Annotated[PydanticPytorchModuleOrListType, Field(description="may be sharded")]
    model_initializer: Annotated[PydanticModelInitializationIFType, Field(description="has the rules")]


class SupportWeightInitModels(StrEnum):
    """Models whose parameter names `composed` knows."""

    GPT2 = "gpt2"
    COCA = "coca"


class WeightInitTypes(StrEnum):
    """Schemes of `composed`: each one adds rules to the one before."""

    PLAIN = "plain"
    SCALED = "scaled"
    SCALED_EMBED = "scaled_embed"


class ComposedModelInitializationConfig(ComponentConfig):
    """Fields of `composed`."""

    model_type: Annotated[SupportWeightInitModels, Field(description="whose names of parameters there are rules for")]
    weight_init_type: Annotated[
        WeightInitTypes,
        Field(description="scaled: output projections smaller with depth; scaled_embed: large embeddings as well"),
    ]
    mean: Annotated[
        float, Field(allow_inf_nan=False, examples=[0.0], description="of the normal distribution of the weights")
    ]
    std: Annotated[
        Annotated[float, Field(strict=True, ge=0.0, allow_inf_nan=False)] | Literal["auto"],
        Field(examples=[0.02], description="its standard deviation; auto: sqrt(2 / (5 * hidden_dim))"),
    ]
    hidden_dim: Annotated[StrictPositive | None, Field(description="width of the model, for std auto")] = None
    num_layers: Annotated[
        StrictPositive | None, Field(description="depth of the model, unless plain; scaled: std / sqrt(2 * num_layers)")
    ] = None

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        faults = []
        if self.std == "auto" and self.hidden_dim is None:
            faults.append(("std", "'auto' needs hidden_dim"))
        if self.std != "auto" and self.hidden_dim is not None:
            faults.append(("hidden_dim", "has an effect only with std 'auto'; leave it out"))
        if self.weight_init_type is WeightInitTypes.PLAIN and self.num_layers is not None:
            faults.append(("num_layers", "has no effect with weight_init_type 'plain'; leave it out"))
        if self.weight_init_type is not WeightInitTypes.PLAIN and self.num_layers is None:
            faults.append(("weight_init_type", f"'{self.weight_init_type.value}' needs num_layers"))
        raise_at_keys(self, faults)
        return self


class GPT2Llama3LikeInitializationConfig(ComponentConfig):
    """Fields of `gpt2_llama3_like`."""

    num_layers: Annotated[StrictPositive, Field(description="depth of the model")]
    n_embd: Annotated[StrictPositive, Field(description="width of the model")]
    depth_init: Annotated[bool, Field(description="whether deeper layers start smaller")] = True
