"""Builds components from a resolved config: references, sharing, order. All faults of a file are reported together."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from modalities_pipeline.config.errors import describe_validation_error
from modalities_pipeline.config.faults import find_faults
from modalities_pipeline.config.loader import KeyPath, Position
from modalities_pipeline.config.nodes import is_component, is_reference
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.exceptions import ConfigError

logger = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=BaseModel)


class ComponentFactory:
    """Turns component nodes into objects.

    A node `{component_key, variant_key, config}` becomes what the registry says; `{instance_key, pass_type}` becomes
    the object built for the top-level key `instance_key`, the same object for everyone who refers to it; anything else
    is data.

    Args:
        registry: the known components.
        path: the YAML file, for messages.
        position: line and column of a key of that file, for messages.
    """

    def __init__(
        self,
        registry: Registry,
        path: Path | None = None,
        position: Callable[[KeyPath], Position | None] = lambda key_path: None,
    ) -> None:
        self._registry = registry
        self._path = path
        self._position = position

    def build_components(self, config_dict: dict[str, Any], components_model_type: type[ModelT]) -> ModelT:
        """Build the top-level keys that are fields of `components_model_type`, and what they refer to.

        Everything that can be checked without building anything is checked first.

        Raises:
            ConfigError: all faults found, one a line, with file, line, key and the closest valid name.
        """
        self._raise_if(find_faults(config_dict, components_model_type, self._registry, self._path, self._position))
        build = _Build(self, config_dict)
        fields = components_model_type.model_fields
        ordered = sorted(fields, key=lambda name: not fields[name].is_required())
        built = {name: build.top_level(name) for name in ordered if name in config_dict}
        return self.validate(components_model_type, built, ())

    def build_component(self, node: dict[str, Any]) -> Any:
        """Build one component node that refers to nothing outside itself."""
        return self.build_components({"component": node}, _OneComponent).component

    def create(self, component_key: str, variant_key: str, config: dict[str, Any], key_path: KeyPath) -> Any:
        """Validate a config whose components are built already, and build the component."""
        validated = self.validate(self._registry.get_config(component_key, variant_key), config, (*key_path, "config"))
        arguments = {name: getattr(validated, name) for name in type(validated).model_fields}
        component = self._registry.get_component(component_key, variant_key)(**arguments)
        logger.debug("Built %s: %s", ".".join(map(str, key_path)), type(component).__name__)
        return component

    def validate(self, model: type[ModelT], values: dict[str, Any], key_path: KeyPath) -> ModelT:
        """Validate values with a pydantic model, raising `ConfigError` with all faults."""
        try:
            return model.model_validate(values)
        except ValidationError as error:
            lines = describe_validation_error(error, self._path, self._position, key_path, model)
            raise ConfigError("\n".join(lines)) from None

    def _raise_if(self, faults: list[str]) -> None:
        if faults:
            raise ConfigError("\n".join(faults))


class _OneComponent(BaseModel):
    component: Any


class _Build:
    """One pass over one config; remembers what was built for each top-level key."""

    def __init__(self, factory: ComponentFactory, config_dict: dict[str, Any]) -> None:
        self._factory = factory
        self._config_dict = config_dict
        self._built: dict[str, Any] = {}

    def top_level(self, name: str) -> Any:
        """The object of a top-level key, built at its first use."""
        if name not in self._built:
            self._built[name] = self._node(self._config_dict[name], (name,))
        return self._built[name]

    def _node(self, node: Any, key_path: KeyPath) -> Any:
        if is_reference(node):
            return self.top_level(node["instance_key"])
        if is_component(node):
            config = {key: self._node(value, (*key_path, "config", key)) for key, value in node["config"].items()}
            return self._factory.create(node["component_key"], node["variant_key"], config, key_path)
        if isinstance(node, dict):
            return {key: self._node(value, (*key_path, key)) for key, value in node.items()}
        if isinstance(node, list):
            return [self._node(value, (*key_path, index)) for index, value in enumerate(node)]
        return node
