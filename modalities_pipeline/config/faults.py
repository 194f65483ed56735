"""Finds every fault of a config that shows without building anything."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from modalities_pipeline.config.errors import closest_name, describe, describe_fault, names_of_field, suggestion
from modalities_pipeline.config.loader import KeyPath, Position
from modalities_pipeline.config.nodes import COMPONENT_KEYS, REFERENCE_KEYS, has_components, is_component, is_reference
from modalities_pipeline.config.registry import Registry
from modalities_pipeline.exceptions import ConfigError

_PASS_TYPE = "BY_REFERENCE"


def find_faults(
    config_dict: dict[str, Any],
    components_model_type: type[BaseModel],
    registry: Registry,
    path: Path | None,
    position: Callable[[KeyPath], Position | None],
) -> list[str]:
    """One line per fault of the top-level keys that the model needs, and of all they refer to.

    Found are: missing and misspelt keys, values of the wrong type, unknown components, references that lead nowhere or
    in a circle. Values that come from components are left to the building.
    """
    finder = _FaultFinder(config_dict, registry, path, position)
    finder.check(components_model_type)
    return finder.faults


class _FaultFinder:
    def __init__(
        self,
        config_dict: dict[str, Any],
        registry: Registry,
        path: Path | None,
        position: Callable[[KeyPath], Position | None],
    ) -> None:
        self.faults: list[str] = []
        self._config_dict = config_dict
        self._registry = registry
        self._path = path
        self._position = position
        self._visited: set[str] = set()
        self._open: list[str] = []

    def check(self, components_model_type: type[BaseModel]) -> None:
        """Add to `faults` what is wrong with the fields of the model and all they refer to."""
        fields = components_model_type.model_fields
        given = {key: self._config_dict[key] for key in fields if key in self._config_dict}
        self._validate(components_model_type, given, ())
        for name in fields:
            if name in self._config_dict:
                self._top_level(name)
        for key in self._config_dict.keys() - fields.keys() - self._visited:
            intended = closest_name(str(key), [name for name in fields if name not in self._config_dict])
            if intended is not None:
                self._add((key,), f"nothing uses this key; did you mean '{intended}'?")

    def _add(self, key_path: KeyPath, message: str) -> None:
        self.faults.append(describe_fault(message, self._path, self._position, key_path))

    def _top_level(self, name: str) -> None:
        if name in self._visited:
            return
        self._open.append(name)
        self._node(self._config_dict[name], (name,))
        self._open.pop()
        self._visited.add(name)

    def _node(self, node: Any, key_path: KeyPath) -> None:
        if is_component(node):
            self._component(node, key_path)
        elif is_reference(node):
            self._reference(node, key_path)
        elif isinstance(node, dict):
            for key, value in node.items():
                self._node(value, (*key_path, key))
        elif isinstance(node, list):
            for index, value in enumerate(node):
                self._node(value, (*key_path, index))

    def _reference(self, node: dict[str, Any], key_path: KeyPath) -> None:
        target = node["instance_key"]
        for key in node.keys() - set(REFERENCE_KEYS):
            self._add((*key_path, key), f"unknown key in a reference{suggestion(str(key), REFERENCE_KEYS)}")
        if node.get("pass_type") != _PASS_TYPE:
            given = repr(node["pass_type"]) if "pass_type" in node else "nothing"
            self._add((*key_path, "pass_type"), f"has to be {_PASS_TYPE} (given: {given})")
        if target not in self._config_dict:
            self._add((*key_path, "instance_key"), f"there is no top-level key '{target}'{self._other_than(target)}")
        elif target in self._open:
            circle = " -> ".join([*self._open[self._open.index(target) :], target])
            self._add((*key_path, "instance_key"), f"refers to itself in a circle: {circle}")
        else:
            self._top_level(target)

    def _other_than(self, name: Any) -> str:
        return suggestion(str(name), map(str, self._config_dict))

    def _component(self, node: dict[str, Any], key_path: KeyPath) -> None:
        for key in node.keys() - set(COMPONENT_KEYS):
            self._add((*key_path, key), f"unknown key in a component{suggestion(str(key), COMPONENT_KEYS)}")
        missing = [key for key in COMPONENT_KEYS if key not in node]
        if missing:
            self._add(key_path, f"a component needs {', '.join(COMPONENT_KEYS)}; missing: {', '.join(missing)}")
            return
        config = node["config"]
        if not isinstance(config, dict):
            self._add((*key_path, "config"), "has to be a mapping; write 'config: {}' if there is nothing to set")
            return
        try:
            config_type = self._registry.get_config(node["component_key"], node["variant_key"])
        except ConfigError as error:
            self._add(key_path, str(error))
            return
        self._validate(config_type, config, (*key_path, "config"))
        for key, value in config.items():
            self._node(value, (*key_path, "config", key))

    def _validate(self, model: type[BaseModel], values: dict[str, Any], key_path: KeyPath) -> None:
        """Report the faults of all values that contain no component; those that do are known only once built."""
        left_out: set[str] = set()
        known = dict(_without_components(values, left_out))
        for name, field in model.model_fields.items():
            names = {name, *names_of_field(name, field)}
            if names & left_out:
                left_out |= names
        try:
            model.model_validate(known)
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                if not _follows_from(left_out, fault):
                    self._add((*key_path, *fault["loc"]), describe(fault, model))


def _follows_from(left_out: set[str], fault: ErrorDetails) -> bool:
    """Whether a fault may only be there because of the keys that were left out."""
    if not left_out:
        return False
    if fault["type"] == "missing":
        return str(fault["loc"][-1]) in left_out
    return fault["loc"] == ()  # a check of several keys together


def _without_components(values: dict[str, Any], left_out: set[str]) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if not has_components(value):
            yield key, value
        elif isinstance(value, dict) and not is_component(value) and not is_reference(value):
            yield key, dict(_without_components(value, left_out))
        else:
            left_out.add(key)
