"""Finds every fault of a config that shows without building anything."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from modalities_pipeline.config.checking.copied_faults import fold_copies
from modalities_pipeline.config.checking.faults import Fault, fault_at
from modalities_pipeline.config.checking.missing_values import MissingValues
from modalities_pipeline.config.checking.node_checks import check_component_keys, check_reference_keys
from modalities_pipeline.config.checking.static_numbers import StaticNumbers
from modalities_pipeline.config.checking.suggestions import closest_name, suggestion
from modalities_pipeline.config.checking.unused_keys import (
    FILE_KEYS,
    intended_fields,
    keys_of_aliases,
    keys_read,
    slips,
)
from modalities_pipeline.config.checking.validation import validate_unbuilt
from modalities_pipeline.config.checking.variables import without_variables
from modalities_pipeline.config.input_paths import missing_paths
from modalities_pipeline.config.nodes import has_components, is_component, is_reference
from modalities_pipeline.config.origins import ConfigDocument, KeyPath
from modalities_pipeline.config.registry import Registry, import_target
from modalities_pipeline.config.resolution import Unresolved
from modalities_pipeline.config.schemas.kinds import describe_other_kind, kind_of_model
from modalities_pipeline.config.unbuilt import Unbuilt
from modalities_pipeline.exceptions import ConfigError

_IS_MISSING = "is missing"


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
        self._missing = MissingValues()
        self._references: dict[KeyPath, str] = {}  # to data, which are used where the reference stands
        self._keys_read = keys_read(document)
        for key_path, note in document.text_notes.items() if document else ():
            self.add(key_path, note, is_note=True)

    @property
    def faults(self) -> list[Fault]:
        """What was found so far."""
        missing = self._missing.told(self._document)
        told_at = {fault.key_path for fault in missing}
        others = [fault for fault in self._faults if not (fault.key_path in told_at and fault.message == _IS_MISSING)]
        faults = [*others, *missing]
        return fold_copies(faults, self._document, self._references) if self._document else faults

    def check_model(self, components_model_type: type[BaseModel]) -> None:
        """Check the top-level keys that are fields of the model, all they refer to, and what has to hold between them.

        What has to hold is up to the model: `cross_checks(sections)`, if it has that class method, yields
        (key path, message) or (key path, message, is_note).
        """
        kind = kind_of_model(components_model_type)
        other_kind = describe_other_kind(self._document.data, kind) if self._document else None
        if other_kind is not None:
            self.add((), other_kind)
            self._values = dict.fromkeys(self._data)  # nothing else of it is worth telling
            return
        fields = components_model_type.model_fields
        values = {name: self.top_level(name) for name in fields if name in self._data}
        values = without_variables(components_model_type, values, self._document)
        self._values.update(values)
        _, faults = validate_unbuilt(components_model_type, values)
        unused = self._unused_keys(components_model_type)
        misspelt = intended_fields(unused, components_model_type, self._data)
        for key_path, message in faults:
            if key_path[-1:] == key_path and message == _IS_MISSING:
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
        self._add_slips(self._data, ())
        if not any(map(has_components, self._data.values())):
            self.add((), "nothing in this file is a component, so there was nothing to check", is_note=True)
        self.sections = dict(self._values)

    def check_unused(self) -> None:
        """Note which top-level keys nothing uses, and what is wrong with components in them."""
        told = {fault.key_path for fault in self._faults}
        self._has_notes_only = True
        unused = [key for key in self._data if key not in self._values and (key,) not in told and key not in FILE_KEYS]
        used_as_alias = keys_of_aliases(unused, self._document)
        for name in unused:
            has_parts = has_components(self._data[name])
            if name not in self._keys_read and name not in used_as_alias:
                self.add((name,), f"nothing uses this {'section' if has_parts else 'key'}")
            if has_parts:
                self.top_level(name)

    def _unused_keys(self, components_model_type: type[BaseModel]) -> list[str]:
        """Top-level keys that are no fields, that nothing refers to, and that no `${...}` reads."""
        used = {*components_model_type.model_fields, *self._values, *self._keys_read}
        return [key for key in self._data if key not in used]

    def _add_missing(self, name: str, misspelt: Mapping[str, str]) -> None:
        """Add that a top-level key is missing, unless it is there, but misspelt, which is said where it stands."""
        if name not in misspelt:
            closest = closest_name(name, self._data)
            self.add((name,), f"is missing (the file has '{closest}')" if closest else _IS_MISSING)

    def _check_other_keys(self, components_model_type: type[BaseModel], misspelt: Mapping[str, str]) -> None:
        """Add misspelt keys and, if the model refuses other keys than its own, those as well."""
        fields = components_model_type.model_fields
        for name, given in misspelt.items():
            what = "is missing" if fields[name].is_required() else "is not set"
            self.add((given,), f"nothing uses this key; did you mean '{name}', which {what}?")
        self._add_slips(
            [key for key in self._unused_keys(components_model_type) if key not in misspelt.values()],
            [*fields, *self._values, *(key for key in self._data if key in self._keys_read)],
        )
        if components_model_type.model_config.get("extra") == "forbid":
            for key in self._unused_keys(components_model_type):
                if key not in misspelt.values():
                    self.add((key,), f"unknown key{suggestion(key, fields)}")

    def _add_slips(self, unused: Iterable[str], used: Iterable[str]) -> None:
        for key, intended in slips(unused, used, self._data):
            self.add((key,), f"nothing uses this key; did you mean '{intended}'?")

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
        is_note = not (value.is_fault or self._is_run)
        self._missing.add(value, self._fault(key_path, value.reason, is_note))

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
        if not is_component(self._data[target]):
            self._references[key_path] = target
        return self.top_level(target)

    def _component(self, node: dict[str, Any], key_path: KeyPath) -> Any:
        for where, message in check_component_keys(node):
            self.add((*key_path, *where), message)
        config = node.get("config")
        values = self._value(config, (*key_path, "config")) if isinstance(config, dict) else None
        component_key, variant_key = node.get("component_key"), node.get("variant_key")
        if not isinstance(component_key, str) or not isinstance(variant_key, str):
            return Unbuilt()
        if self._registry.is_broken(component_key, variant_key):
            return Unbuilt()
        try:
            entity = self._registry.get_entity(component_key, variant_key)
        except ConfigError as error:
            wrong = "variant_key" if self._registry.entities(component_key) else "component_key"
            self.add((*key_path, wrong), str(error))
            return Unbuilt()
        unbuilt = Unbuilt(entity.component_key, entity.variant_key, entity.interface)
        if values is None:
            return unbuilt
        config_type = import_target(entity.component_config_type)
        validated, config_faults = validate_unbuilt(config_type, values, is_config=True)
        for where, message in config_faults:
            self.add((*key_path, "config", *where), message)
        for field, path in missing_paths(validated) if validated is not None else ():
            self.add((*key_path, "config", field), f"{path} does not exist here", is_note=not self._is_run)
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
