"""Finds every fault of a config that shows without building anything."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from modalities_pipeline.config.checking.copied_faults import fold_copies
from modalities_pipeline.config.checking.faults import Fault, fault_at
from modalities_pipeline.config.checking.node_checks import check_component_keys, check_reference_keys
from modalities_pipeline.config.checking.static_numbers import StaticNumbers
from modalities_pipeline.config.checking.suggestions import closest_name, suggestion
from modalities_pipeline.config.checking.validation import validate_unbuilt
from modalities_pipeline.config.checking.variables import without_variables
from modalities_pipeline.config.nodes import has_components, is_component, is_reference
from modalities_pipeline.config.origins import ConfigDocument, KeyPath
from modalities_pipeline.config.registry import Registry, cannot_build, import_target
from modalities_pipeline.config.resolution import Unresolved
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.exceptions import ConfigError

_INTERPOLATED = re.compile(r"\$\{\s*([^\s.:\[\]{}$]+)")  # the top-level key that a `${...}` reads
_THROUGH = " (through "  # begins the way by which a value is copied, at the end of an `Unresolved`'s reason


class StaticCheck:
    """The static value of each node of a config, and the faults found while making it.

    A component's static value is an `Unbuilt` (or its number, if it is one that is known), the same one for all who
    refer to a top-level key; that of data is the data. What is faulty, or not known here, is an `Unbuilt` of nothing.

    Args:
        data: the resolved config.
        registry: the known components.
        document: where nodes stand in the file, for messages.
        is_run: the config is about to be built, so what cannot be built, or is not there, is a fault and no note.

    Attributes:
        sections: after `check_model`, the static values of the top-level keys in use; data as instances of the models
            that they are fields of, left out if they are faulty.
    """

    def __init__(
        self, data: Mapping[str, Any], registry: Registry, document: ConfigDocument | None, is_run: bool = True
    ) -> None:
        self.sections: dict[str, Any] = {}
        self._data = data
        self._registry = registry
        self._document = document
        self._is_run = is_run
        self._has_notes_only = False
        self._numbers = StaticNumbers(registry, is_run)
        self._values: dict[str, Any] = {}
        self._open: list[str] = []
        self._faults: list[Fault] = []
        self._copied: dict[str, Fault] = {}  # cause -> first fault of a `${...}` that copies what has no value

    @property
    def faults(self) -> list[Fault]:
        """What was found so far."""
        causes = {fault.message for fault in self._faults}
        faults = [*self._faults, *(fault for cause, fault in self._copied.items() if cause not in causes)]
        return fold_copies(faults, self._document) if self._document else faults

    def check_model(self, components_model_type: type[BaseModel]) -> None:
        """Check the top-level keys that are fields of the model, all they refer to, and what has to hold between them.

        What has to hold is up to the model: `cross_checks(sections)`, if it has that class method, yields
        (key path, message) or (key path, message, is_note).
        """
        fields = components_model_type.model_fields
        values = {name: self.top_level(name) for name in fields if name in self._data}
        values = without_variables(components_model_type, values, self._document)
        self._values.update(values)
        _, faults = validate_unbuilt(components_model_type, values)
        misspelt = self._misspelt_keys(components_model_type)
        for key_path, message in faults:
            if key_path[-1:] == key_path and message == "is missing":
                self._add_missing(str(key_path[0]), misspelt)
            else:
                self.add(key_path, message)
        self._check_other_keys(components_model_type, misspelt)
        faulty = {key_path[0] for key_path, _ in faults if key_path}
        self.sections = {name: value for name, value in self._values.items() if name not in faulty}
        for name, field in fields.items():
            if name in self.sections and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                self.sections[name], _ = validate_unbuilt(field.annotation, self.sections[name])
        for finding in getattr(components_model_type, "cross_checks", _no_cross_checks)(self.sections):
            self.add(*finding)

    def check_parts(self) -> None:
        """Check every top-level key, as parts that are used one by one."""
        for name in self._data:
            self.top_level(name)
        self.sections = dict(self._values)

    def check_unused(self) -> None:
        """Note which top-level components nothing uses, and what is wrong with them."""
        misspelt = {fault.key_path for fault in self._faults}
        self._has_notes_only = True
        for name, node in self._data.items():
            if name not in self._values and (name,) not in misspelt and has_components(node):
                self.add((name,), "nothing uses this section")
                self.top_level(name)

    def _misspelt_keys(self, components_model_type: type[BaseModel]) -> dict[str, str]:
        """Field that the file lacks -> top-level key that nothing uses and that is probably meant to be it."""
        result: dict[str, str] = {}
        for key in self._unused_keys(components_model_type):
            free = [
                name for name in components_model_type.model_fields if name not in self._data and name not in result
            ]
            intended = closest_name(key, free)
            if intended is not None:
                result[intended] = key
        return result

    def _unused_keys(self, components_model_type: type[BaseModel]) -> list[str]:
        """Top-level keys that are no fields, that nothing refers to, and that no `${...}` reads."""
        text = str(self._document.data) if self._document else ""
        used = {*components_model_type.model_fields, *self._values, *_INTERPOLATED.findall(text)}
        return [key for key in self._data if key not in used]

    def _add_missing(self, name: str, misspelt: Mapping[str, str]) -> None:
        """Add that a top-level key is missing, unless it is there, but misspelt, which is said where it stands."""
        if name not in misspelt:
            closest = closest_name(name, self._data)
            self.add((name,), f"is missing (the file has '{closest}')" if closest else "is missing")

    def _check_other_keys(self, components_model_type: type[BaseModel], misspelt: Mapping[str, str]) -> None:
        """Add misspelt keys and, if the model refuses other keys than its own, those as well."""
        fields = components_model_type.model_fields
        for name, given in misspelt.items():
            what = "is missing" if fields[name].is_required() else "is not set"
            self.add((given,), f"nothing uses this key; did you mean '{name}', which {what}?")
        if components_model_type.model_config.get("extra") == "forbid":
            for key in self._unused_keys(components_model_type):
                if key not in misspelt.values():
                    self.add((key,), f"unknown key{suggestion(key, fields)}")

    def add(self, key_path: KeyPath, message: str, is_note: bool = False) -> None:
        """Add a fault, with the position of the nearest key that is there."""
        self._faults.append(self._fault(key_path, message, is_note))

    def _fault(self, key_path: KeyPath, message: str, is_note: bool) -> Fault:
        return fault_at(key_path, message, self._document, is_note or self._has_notes_only)

    def top_level(self, name: str) -> Any:
        """The static value of a top-level key."""
        if name not in self._values:
            self._open.append(name)
            self._values[name] = Unbuilt()  # for those who refer to it from within
            self._values[name] = self._value(self._data[name], (name,))
            self._open.pop()
        return self._values[name]

    def _value(self, node: Any, key_path: KeyPath) -> Any:
        if is_component(node):
            return self._component(node, key_path)
        if is_reference(node):
            return self._reference(node, key_path)
        if isinstance(node, dict):
            return {key: self._value(value, (*key_path, key)) for key, value in node.items()}
        if isinstance(node, list):
            return [self._value(value, (*key_path, index)) for index, value in enumerate(node)]
        if isinstance(node, Unresolved):
            self._unresolved(node, key_path)
            return Unbuilt()
        return node

    def _unresolved(self, value: Unresolved, key_path: KeyPath) -> None:
        """Add why a `${...}` has no value, once: not again where it is copied to."""
        fault = self._fault(key_path, value.reason, is_note=not (value.is_fault or self._is_run))
        cause, _, way = value.reason.partition(_THROUGH)
        if way:
            self._copied.setdefault(cause, fault)
        else:
            self._faults.append(fault)

    def _reference(self, node: dict[str, Any], key_path: KeyPath) -> Any:
        for where, message in check_reference_keys(node, self._data):
            self.add((*key_path, *where), message)
        target = node.get("instance_key")
        if not isinstance(target, str) or target not in self._data:
            return Unbuilt()
        if target in self._open:
            circle = " -> ".join([*self._open[self._open.index(target) :], target])
            self.add((*key_path, "instance_key"), f"refers to itself in a circle: {circle}")
            return Unbuilt()
        return self.top_level(target)

    def _component(self, node: dict[str, Any], key_path: KeyPath) -> Any:
        for where, message in check_component_keys(node):
            self.add((*key_path, *where), message)
        config = node.get("config")
        values = self._value(config, (*key_path, "config")) if isinstance(config, dict) else None
        component_key, variant_key = node.get("component_key"), node.get("variant_key")
        if not isinstance(component_key, str) or not isinstance(variant_key, str):
            return Unbuilt()
        try:
            entity = self._registry.get_entity(component_key, variant_key)
        except ConfigError as error:
            wrong = "variant_key" if self._registry.entities(component_key) else "component_key"
            self.add((*key_path, wrong), str(error))
            return Unbuilt()
        if entity.component_type is None:
            self.add(key_path, cannot_build(entity), is_note=not self._is_run)
        unbuilt = Unbuilt(entity.component_key, entity.variant_key, entity.interface)
        if values is None:
            return unbuilt
        config_type = import_target(entity.component_config_type)
        validated, config_faults = validate_unbuilt(config_type, values, is_config=True)
        for where, message in config_faults:
            self.add((*key_path, "config", *where), message)
        return self._number(unbuilt, validated, key_path)

    def _number(self, unbuilt: Unbuilt, config: BaseModel | None, key_path: KeyPath) -> Any:
        """The number that the component will be, if it is one that is known; else the component with its config."""
        component = Unbuilt(unbuilt.component_key, unbuilt.variant_key, unbuilt.interface, config)
        number = self._numbers.evaluate(component)
        if number.message is not None:
            self.add(key_path, number.message, number.is_note)
        return component if number.value is None else number.value


def _no_cross_checks(sections: Mapping[str, Any]) -> tuple[()]:
    return ()
