"""A config made of several: `extends` names files that it builds on, and single values are set from outside.

    extends: base.yaml        # or a list, in which later files win over earlier ones
    optimizer:
      config: {lr: 1e-4}      # mappings are merged key by key, anything else is replaced
    gradient_clipper: !remove

Two things differ from plain merging, because the outcome could never be meant: where `component_key` or `variant_key`
changes, the inherited `config` (of another component) is dropped, and likewise what another `norm_type`, `type_hint` or
`ac_variant` gives a meaning to; and where a component becomes a reference or the other way round, all of it is
replaced. Lists are replaced, but the top-level `plugins` are put one after the other.

Files are applied in the order in which `extends` lists them, each behind what it extends itself. A file that is
extended on two ways counts once, below both, so that what either changes is kept; a list that names a file behind one
that extends it would have no effect there, and is refused.
The path of an extended file is relative to the file that names it. Every other path of a config, also in an extended
file, is relative to the working directory, as always in Modalities. `${...}` are resolved in the merged config.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from modalities_pipeline.config.checking.suggestions import suggestion
from modalities_pipeline.config.extended_files import EXTENDS_KEY, read_layers
from modalities_pipeline.config.loader import document_of
from modalities_pipeline.config.origins import ConfigDocument, KeyPath, Origin
from modalities_pipeline.config.yaml_files.yaml_tags import REMOVE_TAG
from modalities_pipeline.config.yaml_files.yaml_tree import Node, parse_yaml
from modalities_pipeline.exceptions import ConfigError

PLUGINS_KEY = "plugins"

# a key -> the key beside it whose content is that of another thing once the first changes
_DEPENDING = {
    "component_key": "config",
    "variant_key": "config",
    "norm_type": "config",
    "type_hint": "config",
    "ac_variant": "ac_fun_params",
}
_NOT_TO_SET = {
    EXTENDS_KEY: "the files that it names are read before anything is set; write a file that extends them",
    PLUGINS_KEY: "paths of plugins are relative to the file that names them; write a file that extends this one",
}
_COMMAND_LINE = Origin("--set")
_DOTTED_KEY = re.compile(r"[^.\[\]\s][^.\[\]]*(?:\[[0-9]+\])*(?:\.[^.\[\]\s][^.\[\]]*(?:\[[0-9]+\])*)*")


class _Removed:
    def __repr__(self) -> str:
        return REMOVE_TAG


REMOVED = _Removed()  # the value of an override that removes its key


@dataclasses.dataclass(frozen=True)
class Override:
    """A value that is set in a config before it is resolved.

    Attributes:
        dotted_key: where, such as "optimizer.config.lr" or "layers[0].size" (or "layers.0.size").
        value: plain data, or `REMOVED`.
        origin: who says so.
    """

    dotted_key: str
    value: Any
    origin: Origin = _COMMAND_LINE


def parse_override(text: str) -> Override:
    """Read "a.b[0].c=1e-4"; the value is YAML as in a config file, `!remove` removes the key.

    Raises:
        ConfigError: the text is not KEY=VALUE, or the value is no valid YAML.
    """
    key, separator, value = text.partition("=")
    key = key.strip()
    if not separator or not _DOTTED_KEY.fullmatch(key):
        raise ConfigError(f"--set {text}: write KEY=VALUE, for example optimizer.config.lr=1e-4.")
    node = parse_yaml(value, f"--set {key}")
    if node is None:
        return Override(key, None)
    return Override(key, REMOVED if node.is_removal else document_of(Path(key), Node({"": node}, node.origin)).data[""])


def overrides_from(
    mapping: Mapping[str, Any], document: ConfigDocument | None = None, key_path: KeyPath = ()
) -> list[Override]:
    """Overrides given as dotted key -> value, such as those that stand in `document` at `key_path`."""
    return [
        Override(str(key), value, document.origin((*key_path, key)) if document else Origin("override"))
        for key, value in mapping.items()
    ]


def load_config(path: Path, overrides: Sequence[Override] = ()) -> ConfigDocument:
    """Read a config with everything that it extends, then set `overrides` in it, in their order.

    Raises:
        ConfigError: as `loader.load_yaml`; or an extended file is missing or extends itself, a key to remove is not
            there, or what an override wants to change does not exist.
    """
    path = Path(path)
    tree = functools.reduce(lambda below, layer: _merge(below, layer, ()), read_layers(path))
    for override in overrides:
        tree = _with_override(tree, override)
    return document_of(path, tree)


def _merge(base: Node, overlay: Node, key_path: KeyPath) -> Node:
    """The mapping `base` with what the mapping `overlay` changes."""
    entries = dict(base.value)
    for key, depending in _DEPENDING.items():
        if key in entries and key in overlay.value and entries[key].value != overlay.value[key].value:
            entries.pop(depending, None)
    for key, node in overlay.value.items():
        inherited = entries.get(key)
        if node.is_removal:
            _remove(entries, key, node.origin, key_path)
        elif inherited is None:
            entries[key] = node
        elif isinstance(inherited.value, dict) and isinstance(node.value, dict) and not _differ(inherited, node):
            entries[key] = _merge(inherited, node, (*key_path, key))
        elif (*key_path, key) == (PLUGINS_KEY,) and isinstance(inherited.value, list) and isinstance(node.value, list):
            entries[key] = Node([*inherited.value, *node.value], node.origin)
        else:
            entries[key] = node
    return Node(entries, overlay.origin)


def _differ(one: Node, other: Node) -> bool:
    """Whether one is a component and the other a reference."""
    kinds = [("component_key" in node.value, "instance_key" in node.value) for node in (one, other)]
    return sorted(kinds) == [(False, True), (True, False)]


def _remove(entries: dict[Any, Node], key: Any, origin: Origin, key_path: KeyPath) -> None:
    if key not in entries:
        dotted = ".".join(map(str, (*key_path, key)))
        raise ConfigError(
            f"{origin}: {dotted}: {REMOVE_TAG} finds no inherited key '{key}'{suggestion(str(key), map(str, entries))}"
        )
    del entries[key]


def _with_override(tree: Node, override: Override) -> Node:
    """A copy of the tree, as far as it changes."""
    if not _DOTTED_KEY.fullmatch(override.dotted_key):
        raise ConfigError(f"{override.origin}: '{override.dotted_key}' is no dotted key such as optimizer.config.lr.")
    parts = re.findall(r"[^.\[\]]+", override.dotted_key)
    if parts[0] in _NOT_TO_SET:
        raise ConfigError(f"{override.origin}: {override.dotted_key}: cannot be set, because {_NOT_TO_SET[parts[0]]}.")
    return _set(tree, parts, 0, override)


def _set(node: Node, parts: list[str], depth: int, override: Override) -> Node:
    """A copy of the collection `node` in which `parts[depth:]` leads to the override's value."""
    is_last = depth == len(parts) - 1
    children, key = _children(node, parts[depth])
    is_addition = is_last and isinstance(node.value, dict) and override.value is not REMOVED
    if key not in children and not is_addition:
        raise _missing(node, parts, depth, override)
    if not is_last:
        children[key] = _set(children[key], parts, depth + 1, override)
    elif override.value is REMOVED:
        del children[key]
    else:
        children[key] = _node_of(override.value, override.origin)
    return Node(children if isinstance(node.value, dict) else list(children.values()), node.origin)


def _children(node: Node, part: str) -> tuple[dict[Any, Node], Any]:
    """A node's children by key or index, and the key or index that `part` of a dotted key means."""
    if isinstance(node.value, dict):
        return dict(node.value), next((key for key in node.value if str(key) == part), part)
    children = dict(enumerate(node.value)) if isinstance(node.value, list) else {}
    return children, int(part) if part.isdecimal() else None


def _missing(node: Node, parts: list[str], depth: int, override: Override) -> ConfigError:
    above, missing = ".".join(parts[:depth]), ".".join(parts[: depth + 1])
    if isinstance(node.value, dict):
        what = f"there is no '{missing}' in the config{suggestion(parts[depth], map(str, node.value))}"
    elif isinstance(node.value, list):
        what = f"there is no '{missing}' in the config; '{above}' has {len(node.value)} elements, counted from 0"
    else:
        what = f"there is no '{missing}' in the config; '{above}' is {node.value!r} ({node.origin})"
    return ConfigError(f"{override.origin}: {override.dotted_key}: {what}")


def _node_of(value: Any, origin: Origin) -> Node:
    """Plain data as a tree, all of it of one origin."""
    if isinstance(value, Mapping):
        return Node({key: _node_of(item, origin) for key, item in value.items()}, origin)
    if isinstance(value, list | tuple):
        return Node([_node_of(item, origin) for item in value], origin)
    return Node(value, origin)
