"""The text of a config, changed in few places: all else stays as its author wrote it, comments and anchors, too."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import yaml

from modalities_pipeline.config.yaml_files.yaml_text import to_yaml
from modalities_pipeline.exceptions import ConfigError

_SCRIPT = re.compile(r"(?P<path>.+\.py)(?P<name>:.+)")  # of a plugin


@dataclasses.dataclass(frozen=True)
class _Change:
    """Characters `start` up to `end` (exclusive) of the text become `replacement`."""

    start: int
    end: int
    replacement: str


class ConfigText:
    """A config file whose section `sweep` can be replaced, and that works from another folder, too.

    Args:
        path: the YAML file; it has been loaded before, so that it is known to be valid.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = path.read_text(encoding="utf-8-sig")
        root = yaml.compose(self._text, Loader=yaml.SafeLoader)
        self._root = root if isinstance(root, yaml.MappingNode) else None

    def with_sweep(self, sweep: dict[str, Any]) -> str:
        """The text with `sweep` as its section of that name; relative paths of other configs are made absolute.

        Raises:
            ConfigError: the whole file is a mapping in braces.
        """
        if self._root is not None and self._root.flow_style:
            raise ConfigError(f"{self._path}: a config with a sweep has to be written without braces around it.")
        changes = [*self._path_changes(), *self._sweep_changes(sweep)]
        text = self._text
        for change in sorted(changes, key=lambda change: change.start, reverse=True):
            text = text[: change.start] + change.replacement + text[change.end :]
        if any(key.value == "sweep" for key, _ in self._items()):
            return text
        return f"{text.rstrip()}\n\n{_dump(sweep)}\n"

    def _items(self) -> list[tuple[yaml.Node, yaml.Node]]:
        return self._root.value if self._root is not None else []

    def _sweep_changes(self, sweep: dict[str, Any]) -> Iterator[_Change]:
        for key, value in self._items():
            if key.value == "sweep":
                start, end = key.start_mark.index, value.end_mark.index
                yield _Change(start, start + len(_without_following_comments(self._text[start:end])), _dump(sweep))

    def _path_changes(self) -> Iterator[_Change]:
        for key, value in self._items():
            if key.value == "extends":
                for node in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    yield from self._absolute(node, str(node.value), "")
            elif key.value == "plugins" and isinstance(value, yaml.SequenceNode):
                for node in _values_of_mappings(value):
                    script = _SCRIPT.fullmatch(str(node.value))
                    if script:
                        yield from self._absolute(node, script["path"], script["name"])

    def _absolute(self, node: yaml.Node, path: str, rest: str) -> Iterator[_Change]:
        if not Path(path).is_absolute():
            absolute = f"{(self._path.parent / path).resolve()}{rest}"
            yield _Change(node.start_mark.index, node.end_mark.index, json.dumps(absolute, ensure_ascii=False))


def _values_of_mappings(sequence: yaml.SequenceNode) -> Iterator[yaml.ScalarNode]:
    for element in sequence.value:
        if isinstance(element, yaml.MappingNode):
            yield from (value for _, value in element.value if isinstance(value, yaml.ScalarNode))


def _without_following_comments(text: str) -> str:
    """A block without the blank lines and comments that PyYAML counts to it, although they belong to what follows."""
    lines = text.rstrip().split("\n")
    while len(lines) > 1 and lines[-1].lstrip()[:1] in ("", "#"):
        lines.pop()
    return "\n".join(lines).rstrip()


def _dump(sweep: dict[str, Any]) -> str:
    return to_yaml({"sweep": _with_paths_as_text(sweep)}).rstrip("\n")


def _with_paths_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_paths_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_paths_as_text(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value
