"""Which class implements which `component_key`/`variant_key` of a YAML file."""

import importlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel

from modalities_pipeline.config.checking.suggestions import closest_name, suggestion
from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.exceptions import ConfigError

__all__ = ["ComponentEntity", "Registry", "import_target"]

logger = logging.getLogger(__name__)

_warnings_given: set[str] = set()


class Registry:
    """All known components; without `components` those of this package."""

    def __init__(self, components: Iterable[ComponentEntity] | None = None) -> None:
        if components is None:
            from modalities_pipeline.config.components import COMPONENTS

            components = COMPONENTS
        self._entities: dict[tuple[str, str], ComponentEntity] = {}
        self._new_names: dict[tuple[str, str], str] = {}
        self._broken: set[tuple[str, str]] = set()
        for entity in components:
            self._add(entity)

    def _add(self, entity: ComponentEntity) -> None:
        self._entities[entity.component_key, entity.variant_key] = entity
        self._new_names.pop((entity.component_key, entity.variant_key), None)
        for old_name in entity.old_variant_keys:
            self._new_names[entity.component_key, old_name] = entity.variant_key

    def add_entity(
        self,
        component_key: str,
        variant_key: str,
        component_type: Callable[..., Any] | str,
        component_config_type: type[BaseModel] | str,
        interface: str | None = None,
        description: str = "",
    ) -> None:
        """Add a variant, replacing one of the same name, which is worth a warning.

        Args:
            component_key, variant_key: its names in YAML files.
            component_type: what builds it from the fields of its config, an object or "module:Name".
            component_config_type: the pydantic class of its config, or "module:Name".
            interface: what it will be, see `config.interfaces`; None if not known.
            description: one line about it.

        Raises:
            ConfigError: `component_config_type` is no class of pydantic's.
        """
        is_class = isinstance(component_config_type, type) and issubclass(component_config_type, BaseModel)
        if not is_class and not isinstance(component_config_type, str):
            raise ConfigError(
                f"{component_key}/{variant_key}: the config type has to be a subclass of pydantic's BaseModel, not "
                f"{component_config_type!r}."
            )
        if (component_key, variant_key) in self._entities:
            _warn_once(f"component {component_key}/{variant_key} is replaced by {_name_of(component_type)}")
        self._add(
            ComponentEntity(component_key, variant_key, component_type, component_config_type, interface, description)
        )

    def add_broken(self, component_key: str, variant_key: str) -> None:
        """Remember a variant that is meant to be there, but whose fault is told elsewhere."""
        self._broken.add((component_key, variant_key))

    def is_broken(self, component_key: str, variant_key: str) -> bool:
        """Whether nothing more is to be said of nodes of this variant."""
        return (component_key, variant_key) in self._broken

    def entities(self, component_key: str | None = None) -> list[ComponentEntity]:
        """All rows, or those of one component, in the order in which they were added."""
        return [entity for entity in self._entities.values() if component_key in (None, entity.component_key)]

    def get_entity(self, component_key: str, variant_key: str) -> ComponentEntity:
        """The row of a variant, also under one of its old names, which is worth a warning.

        Raises:
            ConfigError: there is no such component or variant; the message names the closest or lists all.
        """
        new_name = self._new_names.get((component_key, variant_key))
        if new_name is not None:
            _warn_once(f"component {component_key}/{variant_key} is called {component_key}/{new_name} now")
            variant_key = new_name
        entity = self._entities.get((component_key, variant_key))
        if entity is None:
            raise ConfigError(self._describe_unknown(component_key, variant_key))
        return entity

    def get_component(self, component_key: str, variant_key: str) -> Callable[..., Any]:
        """The class or function that builds a variant; raises as `get_entity`."""
        return import_target(self.get_entity(component_key, variant_key).component_type)

    def get_config(self, component_key: str, variant_key: str) -> type[BaseModel]:
        """The config class of a variant; raises as `get_entity`."""
        return import_target(self.get_entity(component_key, variant_key).component_config_type)

    def _describe_unknown(self, component_key: str, variant_key: str) -> str:
        variants = {variant for key, variant in self._entities if key == component_key}
        owners = [key for key, variant in self._entities if variant == variant_key]
        what, name, names = "variant_key", variant_key, variants
        if not variants:
            what, name, names = "component_key", component_key, {key for key, _ in self._entities}
        hint = suggestion(name, names)
        of_component = f" of component '{component_key}'" if variants else ""
        if len(owners) == 1 and closest_name(name, names) is None:
            hint = f"; there is {owners[0]}/{variant_key}"
        return f"unknown {what} '{name}'{of_component}{hint}"


def _warn_once(message: str) -> None:
    if message not in _warnings_given:
        _warnings_given.add(message)
        logger.warning("%s", message)


def _name_of(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__qualname__", repr(target))


def import_target(target: Any) -> Any:
    """Turn "module:Name" (Name may be dotted) into the object; leave anything else as it is."""
    if not isinstance(target, str):
        return target
    module_name, _, name = target.partition(":")
    value: Any = importlib.import_module(module_name)
    for part in name.split("."):
        value = getattr(value, part)
    return value
