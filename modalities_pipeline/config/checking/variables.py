"""Values that stand in a file only to be read by other keys, as `${settings.width}`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from modalities_pipeline.config.checking.error_locations import models_in, names_of_field
from modalities_pipeline.config.origins import ConfigDocument, KeyPath

_INTERPOLATED_KEY = re.compile(r"\$\{(\.*)([^${}:.][^${}:]*)\}")


def without_variables(
    model: type[BaseModel], values: Mapping[str, Any], document: ConfigDocument | None
) -> dict[str, Any]:
    """The values without keys that the model, or one that is a field of it, does not know, but `${...}` reads.

    Such a key is no spelling mistake: somebody gave a value a name to use it elsewhere in the file.
    """
    if document is None:
        return dict(values)
    keys_read = set(_keys_read(document.data, ()))
    return {key: _pruned(model, key, value, (key,), keys_read) for key, value in values.items()}


def _pruned(model: type[BaseModel], key: str, value: Any, key_path: KeyPath, keys_read: set[KeyPath]) -> Any:
    """The value of a field of the model, pruned if the field's type is a model."""
    field = next((f for name, f in model.model_fields.items() if key in (name, *names_of_field(name, f))), None)
    inner = next(iter(models_in(field.annotation)), None) if field is not None else None
    if inner is None or not isinstance(value, dict) or inner.model_config.get("extra") != "forbid":
        return value
    known = {choice for name, field in inner.model_fields.items() for choice in (name, *names_of_field(name, field))}
    return {
        name: _pruned(inner, name, item, (*key_path, name), keys_read)
        for name, item in value.items()
        if name in known or not _is_read((*key_path, name), keys_read)
    }


def _is_read(key_path: KeyPath, keys_read: set[KeyPath]) -> bool:
    return any(read[: len(key_path)] == key_path for read in keys_read)


def _keys_read(node: Any, key_path: KeyPath) -> Iterator[KeyPath]:
    """Every key that a `${a.b}`, `${.b}` or `${..b}` in the node names."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _keys_read(value, (*key_path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _keys_read(value, (*key_path, index))
    elif isinstance(node, str) and "${" in node:
        for dots, name in _INTERPOLATED_KEY.findall(node):
            parts = tuple(re.findall(r"[^.\[\]]+", name))
            yield (*key_path[: len(key_path) - len(dots)], *parts) if dots else parts
