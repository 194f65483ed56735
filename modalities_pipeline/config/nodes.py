"""What a mapping in a config is: a component, a reference, or data."""

from typing import Any, TypeGuard

COMPONENT_KEYS = ("component_key", "variant_key", "config")
REFERENCE_KEYS = ("instance_key", "pass_type")


def is_component(node: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a node describes, perhaps wrongly, a component to be built."""
    return isinstance(node, dict) and ("component_key" in node or {"variant_key", "config"} <= node.keys())


def is_reference(node: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a node refers, perhaps wrongly, to the object of a top-level key."""
    return isinstance(node, dict) and not node.keys().isdisjoint(REFERENCE_KEYS) and not is_component(node)


def has_components(node: Any) -> bool:
    """Whether a component or a reference stands anywhere in a node."""
    if isinstance(node, dict):
        return is_component(node) or is_reference(node) or any(map(has_components, node.values()))
    return isinstance(node, list) and any(map(has_components, node))
