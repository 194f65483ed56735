"""Top-level keys that nothing uses, and which of them are probably misspelt."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from modalities_pipeline.config.checking.suggestions import closest_name
from modalities_pipeline.config.nodes import is_component
from modalities_pipeline.config.origins import ConfigDocument

FILE_KEYS = ("extends", "plugins", "sweep")  # mean the file itself; `resolve` and the check never see the first two

_CLOSE = 0.8  # a key this like another one is a slip, and hardly a name of its own
_WORD = re.compile(r"[^\s.:,\[\]{}$'\"]+")


def keys_read(document: ConfigDocument | None) -> set[str]:
    """Every word of every text with `${`: among them are all top-level keys that `${...}` read."""
    return set(_words(document.data)) if document else set()


def _words(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        if "${" in node:
            yield from _WORD.findall(node)
    elif isinstance(node, Mapping | list):
        for item in node.values() if isinstance(node, Mapping) else node:
            yield from _words(item)


def intended_fields(unused: Iterable[str], model: type[BaseModel], data: Collection[str]) -> dict[str, str]:
    """Field that the file lacks -> unused key that is probably meant to be it."""
    result: dict[str, str] = {}
    for key in unused:
        free = [name for name in model.model_fields if name not in data and name not in result]
        intended = closest_name(key, free)
        if intended is not None:
            result[intended] = key
    return result


def slips(unused: Iterable[str], used: Iterable[str], data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(unused key, the key in use that it is a slip of); whole components have names of their own."""
    names = [*used, *FILE_KEYS]
    for key in unused:
        closest = None if key in FILE_KEYS or _is_full(data[key]) else closest_name(key, names, _CLOSE)
        if closest is not None:
            yield key, closest


def _is_full(node: Any) -> bool:
    """Whether a node is a component, or a list that holds some."""
    return any(map(is_component, node)) if isinstance(node, list) else is_component(node)


def keys_of_aliases(unused: Iterable[str], document: ConfigDocument | None) -> set[str]:
    """The unused keys whose content stands elsewhere, too, by YAML aliases (`*a`)."""
    by_origin: dict[str, set[str | int]] = {}
    for key_path, origin in document.origins.items() if document else ():
        if len(key_path) > 1 and origin.line is not None:
            by_origin.setdefault(str(origin), set()).add(key_path[0])
    shared = {key for keys in by_origin.values() if len(keys) > 1 for key in keys}
    return {key for key in unused if key in shared}
