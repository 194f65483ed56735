"""Where the values of a config come from, through `${...}`, from other nodes."""

import re
from typing import Any

from modalities_pipeline.config.origins import KeyPath

# a text that is nothing but one reference to a node, absolute ("a.b[0]") or relative (".b", "..b")
_REFERENCE = re.compile(r"\$\{\s*(\.*[^${}:\s.]+(?:\.[^${}:\s.]+)*)\s*\}")
_KEY = re.compile(r"[^.\[\]]+")
_MAX_STEPS = 100  # of a chain of references; a longer one is a circle


def source_of(data: Any, key_path: KeyPath) -> KeyPath:
    """Where the value at a key path is written down: the end of the chain of `${a.b}` that lead to it."""
    for _ in range(_MAX_STEPS):
        copied_to = _first_copy(data, key_path)
        if copied_to is None:
            return key_path
        depth, target = copied_to
        key_path = (*target, *key_path[depth:])
    return key_path


def _first_copy(data: Any, key_path: KeyPath) -> tuple[int, KeyPath] | None:
    """How many keys lead to the first node that is a reference, and where that one points to."""
    node = data
    for depth, key in enumerate((*key_path, None)):
        if isinstance(node, str):
            match = _REFERENCE.fullmatch(node)
            target = target_of(match[1], data, key_path[:depth]) if match else None
            return None if target is None else (depth, target)
        if key is None or not _has(node, key):
            return None
        node = node[key]
    return None


def target_of(dotted_key: str, data: Any, key_path: KeyPath) -> KeyPath | None:
    """Where `${dotted_key}` at a key path leads without any other `${...}` on the way; None if nowhere.

    As many dots as the key begins with, so many keys up from the value it starts; without any, at the top.
    """
    num_dots = len(dotted_key) - len(dotted_key.lstrip("."))
    if num_dots > len(key_path):
        return None
    target: KeyPath = key_path[: len(key_path) - num_dots] if num_dots else ()
    node = value_at(data, target)
    for part in _KEY.findall(dotted_key):
        key = int(part) if isinstance(node, list) and part.isdecimal() else part
        if not _has(node, key):
            return None
        target, node = (*target, key), node[key]
    return target


def _has(node: Any, key: str | int) -> bool:
    if isinstance(node, dict):
        return key in node
    return isinstance(node, list) and isinstance(key, int) and key < len(node)


def value_at(node: Any, key_path: KeyPath) -> Any:
    """The node at a key path that is there."""
    for key in key_path:
        node = node[key]
    return node
