"""Which source code the plugins of a training config come from, without importing any of it."""

import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from modalities_pipeline.data.files import digest_file

_PATHS = ("component_path", "config_path")


def plugin_identities(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name of a setting, what it is): for each plugin, the names in it and the digests of its files.

    Where a file lies does not count. Of a package, the module that is named counts, not what it imports; of one that
    is not found, only its name: the training will say that it is not there.
    """
    plugins = config.get("plugins")
    for plugin in plugins if isinstance(plugins, list) else []:
        if not isinstance(plugin, Mapping):
            continue
        for key in _PATHS:
            target = plugin.get(key)
            if isinstance(target, str):
                module, _, name = target.rpartition(":")
                path = Path(module) if module.endswith(".py") else _module_file(module)
                digest = digest_file(path) if path is not None and path.is_file() else module
                yield f"plugins.{plugin.get('component_key')}.{plugin.get('variant_key')}.{key}", f"{name} {digest}"


def _module_file(module: str) -> Path | None:
    """The file of a module, found as an import would find it."""
    search: list[str] | None = list(sys.path)
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), search)
        if spec is None:
            return None
        if end == len(parts):
            return Path(spec.origin) if spec.origin else None
        search = list(spec.submodule_search_locations or [])
    return None
