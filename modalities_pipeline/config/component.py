"""The base of every component's config, and what validators of configs have in common."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from modalities_pipeline.config.checking.suggestions import closest_name, suggestion
from modalities_pipeline.config.unbuilt import Unbuilt

ConfigT = TypeVar("ConfigT", bound="ComponentConfig")


class ComponentConfig(BaseModel):
    """Fields of one component in a YAML file: unknown keys are refused, built objects are allowed as values."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        protected_namespaces=(),
        defer_build=True,  # a file uses few of the classes, and building their validators costs most of the import
    )


def are_known(*values: Any) -> bool:
    """Whether none of the values is a component that is not built yet, so that they can be compared."""
    return not any(isinstance(value, Unbuilt) for value in values)


def raise_at_keys(config: ComponentConfig, faults: Iterable[tuple[str, str]]) -> None:
    """Refuse a config in a validator after its fields are valid: one fault for each (field, what is wrong with it).

    Raises:
        ValidationError: there is a fault.
    """
    details = [
        InitErrorDetails(type="value_error", loc=(key,), input=getattr(config, key), ctx={"error": ValueError(message)})
        for key, message in faults
    ]
    if details:
        raise ValidationError.from_exception_data(type(config).__name__, details)


def validate_as(config_type: type[ConfigT], values: Mapping[str, Any], kind: str) -> ConfigT:
    """Validate by a class that depends on another key; `kind` is that key's value, for messages.

    Raises:
        ValidationError: as of the class itself, but an unknown key is said to be none of `kind`, and the key that was
            meant is then not missing as well.
    """
    try:
        return config_type.model_validate(values)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        unknown = {fault["loc"]: _names_at(config_type, fault["loc"]) for fault in faults if _is_unknown_key(fault)}
        intended = {(*loc[:-1], closest_name(str(loc[-1]), names)) for loc, names in unknown.items()}
        details = [
            _unknown_key(fault, kind, unknown[fault["loc"]]) if _is_unknown_key(fault) else _same(fault)
            for fault in faults
            if fault["type"] != "missing" or fault["loc"] not in intended
        ]
        raise ValidationError.from_exception_data(config_type.__name__, details) from None


def _is_unknown_key(fault: ErrorDetails) -> bool:
    return fault["type"] == "extra_forbidden"


def _names_at(config_type: Any, loc: tuple[int | str, ...]) -> list[str]:
    """The valid keys beside an unknown one."""
    for part in loc[:-1]:
        config_type = config_type.model_fields[part].annotation
    return list(config_type.model_fields)


def _unknown_key(fault: ErrorDetails, kind: str, names: list[str]) -> InitErrorDetails:
    words = {"kind": kind, "hint": suggestion(str(fault["loc"][-1]), names)}
    error = PydanticCustomError("unknown_key", "unknown key of {kind}{hint}", words)
    return InitErrorDetails(type=error, loc=fault["loc"], input=fault["input"])


def _same(fault: ErrorDetails) -> InitErrorDetails:
    return InitErrorDetails(type=fault["type"], loc=fault["loc"], input=fault["input"], ctx=fault.get("ctx", {}))
