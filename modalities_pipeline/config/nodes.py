"""What a mapping in a config is: a component, a reference, or data."""

from typing import Any, TypeGuard

COMPONENT_KEYS = ("component_key", "variant_key", "config")
REFERENCE_KEYS = ("instance_key", "pass_type")


def is_component(node: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a node describes a component to be built."""
    return isinstance(node, dict) and "component_key" in node


def is_reference(node: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a node refers to the object of a top-level key."""
    return isinstance(node, dict) and "instance_key" in node and "component_key" not in node


def has_components(node: Any) -> bool:
    """Whether a component or a reference stands anywhere in a node."""
    if is_component(node) or is_reference(node):
        return True
    if isinstance(node, dict):
        return any(has_components(value) for value in node.values())
    return isinstance(node, list) and any(has_components(value) for value in node)
