"""Whether component and reference nodes have the keys they need."""

from collections.abc import Iterator, Mapping
from typing import Any

from modalities_pipeline.config.checking.suggestions import closest_name, suggestion
from modalities_pipeline.config.checking.wording import short
from modalities_pipeline.config.nodes import COMPONENT_KEYS, REFERENCE_KEYS
from modalities_pipeline.config.origins import KeyPath

_PASS_TYPE = "BY_REFERENCE"


def check_component_keys(node: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong with the keys of a component node itself, and where in it."""
    missing = [key for key in COMPONENT_KEYS if key not in node]
    for key in node:
        if key not in COMPONENT_KEYS:
            intended = closest_name(str(key), missing)
            missing = [name for name in missing if name != intended]
            yield (key,), f"unknown key in a component{suggestion(intended or str(key), COMPONENT_KEYS)}"
    if missing:
        yield (), f"a component needs {', '.join(COMPONENT_KEYS)}; missing: {', '.join(missing)}"
    for key in ("component_key", "variant_key"):
        if key in node and not isinstance(node[key], str):
            yield (key,), f"has to be a text (given: {short(node[key])})"
    if "config" in node and not isinstance(node["config"], dict):
        given = "" if node["config"] is None else f" (given: {short(node['config'])})"
        yield ("config",), f"has to be a mapping; write 'config: {{}}' if there is nothing to set{given}"


def check_reference_keys(node: Mapping[str, Any], top_level: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """What is wrong with a reference node, and where in it."""
    missing = [key for key in REFERENCE_KEYS if key not in node]
    for key in node:
        if key not in REFERENCE_KEYS:
            intended = closest_name(str(key), missing)
            missing = [name for name in missing if name != intended]
            yield (key,), f"unknown key in a reference{suggestion(intended or str(key), REFERENCE_KEYS)}"
    for key in missing:
        value = _PASS_TYPE if key == "pass_type" else "NAME"
        yield (key,), f"is missing; write '{key}: {value}'"
    if node.get("pass_type", _PASS_TYPE) != _PASS_TYPE:
        yield ("pass_type",), f"has to be {_PASS_TYPE} (given: {short(node['pass_type'])})"
    if "instance_key" in node:
        yield from _check_target(node["instance_key"], top_level)


def _check_target(target: Any, top_level: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    if not isinstance(target, str):
        yield ("instance_key",), f"has to be the name of a top-level key (given: {short(target)})"
    elif target not in top_level:
        yield ("instance_key",), f"there is no top-level key '{target}'{_other_target(target, top_level)}"


def _other_target(target: str, top_level: Mapping[str, Any]) -> str:
    first = target.partition(".")[0]
    if first != target and first in top_level:
        return (
            f"; a reference names a whole top-level section: give '{target}' a section of its own and refer to that, "
            f"or copy the value with '${{{target}}}'"
        )
    return suggestion(target, map(str, top_level))
