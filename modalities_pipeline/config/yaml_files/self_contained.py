"""Writes a config that is made of several files and of options as one file that says it all."""

import re
from pathlib import Path
from typing import Any

from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.yaml_files.yaml_text import to_yaml

_FILE_AND_NAME = re.compile(r"(?P<file>.+\.py):(?P<name>[^:]+)")


def self_contained_text(document: ConfigDocument, made_from: str) -> str:
    """The YAML text of a config with everything that it extends; `${...}` stay as they are, comments are lost."""
    content = to_yaml(self_contained_data(document))
    return f"# {made_from}, with all that it extends and the values that were set from outside\n{content}"


def self_contained_data(document: ConfigDocument) -> dict[str, Any]:
    """The content of a config; files of plugins, given relative to the file that names them, by absolute paths."""
    plugins = document.data.get("plugins")
    if not isinstance(plugins, list):
        return document.data
    absolute = []
    for index, plugin in enumerate(plugins):
        origin = document.origin(("plugins", index))
        folder = (Path(origin.source) if origin.line is not None else document.path).absolute().parent
        absolute.append(_with_absolute_files(plugin, folder))
    return {**document.data, "plugins": absolute}


def _with_absolute_files(plugin: Any, folder: Path) -> Any:
    if not isinstance(plugin, dict):
        return plugin
    matches = {key: _FILE_AND_NAME.fullmatch(value) for key, value in plugin.items() if isinstance(value, str)}
    return {
        **plugin,
        **{key: f"{folder / match['file']}:{match['name']}" for key, match in matches.items() if match is not None},
    }
