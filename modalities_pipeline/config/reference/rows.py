"""A component as a row of the reference, and which components a field takes."""

import dataclasses

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import FSDP1_MODULE, FSDP2_MODULE, MODULE, NUMBER, can_be
from modalities_pipeline.config.reference.field_words import KeysOfInterface
from modalities_pipeline.config.registry import Registry

_NOT_MEANT = "layer_norm"  # a module, but no field that takes a model wants one
_MODELS = {MODULE, FSDP1_MODULE, FSDP2_MODULE}


@dataclasses.dataclass(frozen=True)
class ReferenceRow:
    """One variant, as text.

    Attributes:
        component_key, variant_key: its names.
        builder: "module:Name" of what builds it.
        config: "module:Name" of its config class.
        interface: name of the class that the built object has, "integer" for numbers, or "" if that is not known.
        description: one line.
        other_names: variant keys of other versions of Modalities.
    """

    component_key: str
    variant_key: str
    builder: str
    config: str
    interface: str
    description: str
    other_names: tuple[str, ...]


def row_of(entity: ComponentEntity) -> ReferenceRow:
    """The row of a variant."""
    return ReferenceRow(
        component_key=entity.component_key,
        variant_key=entity.variant_key,
        builder=_target(entity.component_type),
        config=_target(entity.component_config_type),
        interface="integer" if entity.interface == NUMBER else (entity.interface or "").rpartition(":")[2],
        description=entity.description,
        other_names=entity.old_variant_keys,
    )


def _target(target: object) -> str:
    if isinstance(target, str):
        return target
    return f"{getattr(target, '__module__', '')}:{getattr(target, '__qualname__', type(target).__name__)}"


def keys_of_interface(registry: Registry) -> KeysOfInterface:
    """Which components may be what a field wants; those of which nothing is known are left out."""
    declared = [(entity.component_key, entity.interface) for entity in registry.entities() if entity.interface]

    def keys_of(interface: str) -> list[str]:
        keys = dict.fromkeys(key for key, given in declared if can_be(given, interface))
        return [key for key in keys if key != _NOT_MEANT or interface not in _MODELS]

    return keys_of
