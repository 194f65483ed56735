"""A minimal YAML example of a component, made from the required fields of its config."""

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import annotated_types
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from modalities_pipeline.config.checking.error_locations import names_of_field
from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.nodes import is_reference
from modalities_pipeline.config.pydantic_if_types import PydanticThirdPartyTypeIF
from modalities_pipeline.config.reference.field_words import (
    KeysOfInterface,
    enum_spellings,
    is_enum,
    is_union,
    unwrapped,
)

_SCALARS: dict[Any, Any] = {bool: False, dict: {}, list: []}
_OF_THE_RUN = {  # fields whose value is the process' own, so that a number in the file would be wrong on others
    "global_rank": "${cuda_env:RANK}",
    "local_rank": "${cuda_env:LOCAL_RANK}",
    "rank": "${cuda_env:RANK}",
    "num_replicas": "${cuda_env:WORLD_SIZE}",
    "world_size": "${cuda_env:WORLD_SIZE}",
    "experiment_id": "${modalities_env:experiment_id}",
}


class _Flow(dict[str, Any]):
    """A mapping that is written on one line."""


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists in mappings."""
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:
        """Write what comes twice twice."""
        return True


_Dumper.add_representer(
    _Flow, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True)
)


def example_of(entity: ComponentEntity, config_type: type[BaseModel], keys_of: KeysOfInterface) -> str:
    """The component as YAML under a top-level key; other components are referred to by the key of their kind.

    One of the same kind is referred to as `<kind>_raw`, as a section cannot refer to itself. `Field(examples=[...])`
    gives a value that fits where no value can be guessed, also for a field that need not be.
    """
    node = {
        "component_key": entity.component_key,
        "variant_key": entity.variant_key,
        "config": example_config(config_type, _keys_of_others(entity.component_key, keys_of)) or _Flow(),
    }
    return yaml.dump({entity.component_key: node}, Dumper=_Dumper, sort_keys=False, width=110)


def _keys_of_others(component_key: str, keys_of: KeysOfInterface) -> KeysOfInterface:
    return lambda interface: [f"{key}_raw" if key == component_key else key for key in keys_of(interface)]


def example_config(config_type: type[BaseModel], keys_of: KeysOfInterface) -> dict[str, Any]:
    """Values of the required fields, and of those that have an example."""
    return {
        names_of_field(name, field)[0]: _example_of_field(name, field, keys_of)
        for name, field in config_type.model_fields.items()
        if field.is_required() or field.examples
    }


def _example_of_field(name: str, field: FieldInfo, keys_of: KeysOfInterface) -> Any:
    if field.examples:
        example = field.examples[0]
        return _Flow(example) if is_reference(example) else example
    return _value(name, field.annotation, field.metadata, keys_of)


def _value(name: str, annotation: Any, metadata: Any, keys_of: KeysOfInterface) -> Any:
    annotation, marks = unwrapped(annotation, metadata)
    for mark in marks:
        if isinstance(mark, FieldInfo) and mark.examples:
            return mark.examples[0]
        if isinstance(mark, PydanticThirdPartyTypeIF):
            return _reference(name, keys_of(mark.interface))
    if is_enum(annotation):
        return enum_spellings(annotation, marks)[0]
    if is_union(annotation):
        return _value(name, get_args(annotation)[0], (), keys_of)
    if isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, BaseModel):
        return example_config(annotation, keys_of)
    if annotation in (str, int) and name in _OF_THE_RUN:
        return _OF_THE_RUN[name]
    if annotation is str:
        return f"<{name}>"
    if annotation is Path:
        return f"path/to/{name.removesuffix('_path')}"
    if annotation in (int, float):
        return _number(annotation, marks)
    return _SCALARS.get(annotation, _collection(name, annotation, keys_of))


def _reference(name: str, keys: list[str]) -> dict[str, Any]:
    key = name if name in keys or not keys else keys[0]
    return _Flow(instance_key=key, pass_type="BY_REFERENCE")


def _number(kind: type[int] | type[float], marks: list[Any]) -> int | float:
    """The smallest integer within the limits; for other numbers 1.0, or 0.5 if it has to be less."""
    if kind is float:
        return 0.5 if any(isinstance(mark, annotated_types.Lt) for mark in marks) else 1.0
    smallest = 0
    for mark in marks:
        limit: Any = getattr(mark, "ge", getattr(mark, "gt", None))
        if isinstance(mark, annotated_types.Ge | annotated_types.Gt):
            smallest = int(limit) + isinstance(mark, annotated_types.Gt)
    return smallest


def _collection(name: str, annotation: Any, keys_of: KeysOfInterface) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return arguments[0]
    if origin is dict:
        return {name.removesuffix("s"): _value(name, arguments[1], (), keys_of)}
    if origin is tuple and Ellipsis not in arguments:
        return [_value(name, argument, (), keys_of) for argument in arguments]
    if arguments:
        return [_value(name.removesuffix("s"), arguments[0], (), keys_of)]
    return f"<{name}>"
