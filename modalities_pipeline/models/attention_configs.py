"""Configs of attention. Imports no torch."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, WrapValidator, field_validator
from pydantic_core import InitErrorDetails

from modalities_pipeline.config.component import ComponentConfig, validate_as
from modalities_pipeline.models.norm_configs import LayerNormWrapperConfig

StrictCount = Annotated[int, Field(strict=True, ge=0)]
_DIMENSIONS_OF_POSITIONS = (-2, 2)  # the same one of (batch, heads, positions, width)


class AttentionImplementation(StrEnum):
    """How the scaled dot product is computed."""

    MANUAL = "manual"
    PYTORCH_FLASH = "pytorch_flash"
    DAO_FLASH = "dao_flash"


class RotaryTransformConfig(ComponentConfig):
    """Rotary position embedding; `n_head` is the number of query heads, positions run along `seq_length_dim`."""

    n_embd: Annotated[StrictCount, Field(description="that of the model")]
    n_head: Annotated[StrictCount, Field(description="query heads of the model")]
    seq_length_dim: Annotated[int, Field(strict=True, description="dimension of the positions, -2")]
    base_freq: Annotated[int, Field(strict=True, ge=10_000, description="larger for long contexts")]
    rounds_frequencies: Annotated[
        bool,
        Field(
            description="whether frequencies, sines and cosines are rounded to the dtype of the keys, as in "
            "Modalities; for models that were trained so, where that was bfloat16"
        ),
    ] = False

    @field_validator("seq_length_dim")
    @classmethod
    def _check_dimension(cls, dimension: int) -> int:
        if dimension not in _DIMENSIONS_OF_POSITIONS:
            raise ValueError(f"has to be -2, where queries and keys have their positions (given: {dimension})")
        return dimension


class IdentityTransformConfig(ComponentConfig):
    """No fields: queries, keys and values stay as they are."""


class RotaryTransformEntry(ComponentConfig):
    """An entry of `qkv_transforms` that rotates queries and keys."""

    type_hint: Literal["RotaryTransform"]
    config: RotaryTransformConfig


class IdentityTransformEntry(ComponentConfig):
    """An entry of `qkv_transforms` that changes nothing."""

    type_hint: Literal["IdentityTransform"]
    config: IdentityTransformConfig


_ENTRY_TYPES: dict[Any, type[RotaryTransformEntry | IdentityTransformEntry]] = {
    "RotaryTransform": RotaryTransformEntry,
    "IdentityTransform": IdentityTransformEntry,
}


def _by_type_hint(entry: Any, handler: Callable[[Any], Any]) -> Any:
    """Validate by the class of the entry's `type_hint` alone, so that faults are those of that class."""
    if not isinstance(entry, dict):
        return handler(entry)
    type_hint = entry.get("type_hint")
    if isinstance(type_hint, str) and type_hint in _ENTRY_TYPES:
        return validate_as(_ENTRY_TYPES[type_hint], entry, type_hint)
    fault = InitErrorDetails(type="missing", loc=("type_hint",), input=entry)
    if "type_hint" in entry:
        expected = " or ".join(repr(name) for name in _ENTRY_TYPES)
        fault = InitErrorDetails(type="enum", loc=("type_hint",), input=type_hint, ctx={"expected": expected})
    raise ValidationError.from_exception_data("qkv_transforms", [fault])


QkvTransformEntry = Annotated[RotaryTransformEntry | IdentityTransformEntry, WrapValidator(_by_type_hint)]


class AttentionConfig(ComponentConfig):
    """What happens to queries, keys and values before the dot product: transforms in order, then a norm per head."""

    qkv_transforms: Annotated[list[QkvTransformEntry], Field(description="done in this order; may be empty")]
    qk_norm_config: Annotated[
        LayerNormWrapperConfig | None, Field(description="norm of queries and keys, of the size of a head")
    ] = None
