"""The combinations of the lists in the section `sweep` of a config."""

import copy
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from modalities_pipeline.exceptions import ConfigError

_HASH_LENGTH = 16  # hexadecimal digits, as in Modalities


def combinations_of(sweep: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of one element of each list, in the order of the file, the last list changing fastest.

    Mappings only group: their lists count, too. What stands in a list is one value, whatever its kind, and so is what
    stands in no list.

    Raises:
        ConfigError: a list is empty, or has an element twice.
    """
    lists = dict(_lists(sweep, ()))
    for key_path, values in lists.items():
        _check_list(".".join(("sweep", *key_path)), values)
    for chosen in itertools.product(*lists.values()):
        combination = copy.deepcopy(dict(sweep))
        for key_path, value in zip(lists, chosen, strict=True):
            parent = combination
            for key in key_path[:-1]:
                parent = parent[key]
            parent[key_path[-1]] = copy.deepcopy(value)
        yield combination


def hash_of_combination(combination: Mapping[str, Any]) -> str:
    """16 hexadecimal digits that tell combinations of one sweep apart, whatever the order of their keys."""
    return hash_of_bytes(_canonical(combination).encode())


def hash_of_bytes(content: bytes) -> str:
    """The first 16 hexadecimal digits of the MD5 digest, by which Modalities names the folders of sweeps."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()[:_HASH_LENGTH]


def _lists(node: Mapping[str, Any], key_path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _lists(value, (*key_path, key))
        elif isinstance(value, list):
            yield (*key_path, key), value


def _check_list(name: str, values: list[Any]) -> None:
    if not values:
        raise ConfigError(f"{name}: the list is empty, so that there is nothing to run. Write at least one value.")
    seen: set[str] = set()
    for value in values:
        text = _canonical(value)
        if text in seen:
            raise ConfigError(f"{name}: {text} is there twice; both would be the same run. Leave one of them out.")
        seen.add(text)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
