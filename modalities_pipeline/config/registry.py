"""Which class implements which `component_key`/`variant_key` of a YAML file."""

import dataclasses
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel

from modalities_pipeline.config.components import COMPONENTS
from modalities_pipeline.config.errors import suggestion
from modalities_pipeline.exceptions import ConfigError


@dataclasses.dataclass(frozen=True)
class ComponentEntity:
    """One variant of a component; types may be "module:Name" strings, imported when first asked for."""

    component_key: str
    variant_key: str
    component_type: Callable[..., Any] | str
    component_config_type: type[BaseModel] | str


class Registry:
    """All known components; without `components` those of this package."""

    def __init__(self, components: Iterable[ComponentEntity] | None = None) -> None:
        if components is None:
            components = [ComponentEntity(*key, *types) for key, types in COMPONENTS.items()]
        self._entities = {(entity.component_key, entity.variant_key): entity for entity in components}

    def add_entity(
        self,
        component_key: str,
        variant_key: str,
        component_type: Callable[..., Any] | str,
        component_config_type: type[BaseModel] | str,
    ) -> None:
        """Add a variant, replacing one of the same name."""
        entity = ComponentEntity(component_key, variant_key, component_type, component_config_type)
        self._entities[component_key, variant_key] = entity

    def get_component(self, component_key: str, variant_key: str) -> Callable[..., Any]:
        """The class or function that builds a variant.

        Raises:
            ConfigError: there is no such component or variant; the message names the closest or lists all.
        """
        return _import(self._entity(component_key, variant_key).component_type)

    def get_config(self, component_key: str, variant_key: str) -> type[BaseModel]:
        """The config class of a variant; raises as `get_component`."""
        return _import(self._entity(component_key, variant_key).component_config_type)

    def _entity(self, component_key: str, variant_key: str) -> ComponentEntity:
        entity = self._entities.get((component_key, variant_key))
        if entity is not None:
            return entity
        variants = {variant for key, variant in self._entities if key == component_key}
        if not variants:
            keys = {key for key, _ in self._entities}
            raise ConfigError(f"unknown component_key '{component_key}'{suggestion(str(component_key), keys)}")
        hint = suggestion(str(variant_key), variants)
        raise ConfigError(f"unknown variant_key '{variant_key}' of component '{component_key}'{hint}")


def _import(target: Any) -> Any:
    """Turn "module:Name" (Name may be dotted) into the object; leave anything else as it is."""
    if not isinstance(target, str):
        return target
    module_name, _, name = target.partition(":")
    value: Any = importlib.import_module(module_name)
    for part in name.split("."):
        value = getattr(value, part)
    return value
