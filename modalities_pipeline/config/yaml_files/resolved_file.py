"""Writing a resolved config: as a file that can be read again, and for people, with where each value comes from."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from modalities_pipeline.config.checking.suggestions import suggestion
from modalities_pipeline.config.interpolation.omega import is_interpolated
from modalities_pipeline.config.origins import KeyPath
from modalities_pipeline.config.resolution import ResolvedConfig, Unresolved
from modalities_pipeline.config.yaml_files.yaml_text import YamlLine, to_yaml, yaml_lines
from modalities_pipeline.data.files import atomic_path
from modalities_pipeline.exceptions import ConfigError

_LITERAL_INTERPOLATION = re.compile(r"(\\*)\$\{")
_NOT_PRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_COMMENT_COLUMN = 60


def to_plain(resolved: ResolvedConfig) -> dict[str, Any]:
    """What a config file has to say to mean the resolved config, as dicts, lists, None, bool, int, float and str.

    A value whose resolution read an environment variable (but for the ranks) stays the `${...}` of the file, so that
    secrets are written nowhere; also a whole mapping, if `${...}` made it and one of its values is such. So does what
    could not be resolved. Paths become text, and `${` in a resolved text becomes `\\${`.
    """
    return _Plain(resolved).data


def write_resolved(resolved: ResolvedConfig, path: Path) -> None:
    """Write `to_plain` as YAML that any safe YAML loader reads; `loader` and `resolution` make the same config of it.

    Raises:
        OutputNotWritableError: the file cannot be written.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(to_yaml(to_plain(resolved)), encoding="utf-8")


def render_with_origins(resolved: ResolvedConfig, key_path: KeyPath = ()) -> str:
    """The YAML of `to_plain`, or of its part at `key_path`, each value with a comment that says where it comes from.

    For example `lr: 0.006  # base.yaml:12 <- ${settings.lr}`: line 12 of base.yaml refers to settings.lr.

    Raises:
        ConfigError: there is nothing at `key_path`.
    """
    part: Any = to_plain(resolved)
    for depth, key in enumerate(key_path):
        items = dict(_items(part))
        if key not in items:
            dotted = ".".join(map(str, key_path[: depth + 1]))
            raise ConfigError(
                f"{resolved.document.path}: there is no '{dotted}'{suggestion(str(key), map(str, items))}"
            )
        part = items[key]
    lines = list(yaml_lines(part, key_path))
    width = min(_MAX_COMMENT_COLUMN, max(len(line.text) for line in lines))
    provenance = _Provenance(resolved)
    return "".join(f"{_with_comment(line, width, provenance)}\n" for line in lines)


def _with_comment(line: YamlLine, width: int, provenance: "_Provenance") -> str:
    if line.key_path is None:
        return line.text
    return f"{line.text.ljust(width)}  # {_NOT_PRINTABLE.sub('?', provenance.of(line.key_path))}"


class _Provenance:
    """Says of each value where it comes from."""

    def __init__(self, resolved: ResolvedConfig) -> None:
        self._document = resolved.document
        self._failures: dict[KeyPath, Unresolved] = {}
        self._variables: dict[KeyPath, set[str]] = {}
        for path, failure in resolved.unresolved():
            for above in _self_and_above(path):
                self._failures.setdefault(above, failure)
        for path, names in resolved.env_reads.items():
            for above in _self_and_above(path):
                self._variables.setdefault(above, set()).update(names)

    def of(self, key_path: KeyPath) -> str:
        """ "file:line", and what made the value if it does not stand there."""
        origin = self._document.origin(key_path)
        place = f"{origin.source}:{origin.line}" if origin.line is not None else origin.source
        text = _interpolation(self._document.data, key_path)
        if failure := self._failures.get(key_path):
            kind = "cannot be resolved" if failure.is_fault else "not known here"
            return f"{place}: {kind}: {failure.reason}"
        if variables := self._variables.get(key_path):
            return f"{place}: not shown, because it comes from the environment ({', '.join(sorted(variables))})"
        return f"{place} <- {text}" if text is not None else place


def _self_and_above(key_path: KeyPath) -> Iterator[KeyPath]:
    for end in range(len(key_path) + 1):
        yield key_path[:end]


def _interpolation(data: Any, key_path: KeyPath) -> str | None:
    """The `${...}` of the file that made the value at a key path, if one did."""
    for key in key_path:
        data = dict(_items(data)).get(key)
        if is_interpolated(data):
            return data
    return None


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


class _Plain:
    def __init__(self, resolved: ResolvedConfig) -> None:
        ends = [*resolved.env_reads, *(path for path, _ in resolved.unresolved())]
        self._kept = {above for path in ends for above in _self_and_above(path)}
        self.data: dict[str, Any] = self._value(resolved.data, resolved.document.data, ())

    def _value(self, value: Any, written: Any, key_path: KeyPath) -> Any:
        """A resolved value; `written` is what the file says in its place, None if it says nothing there."""
        if is_interpolated(written) and (key_path in self._kept or not _is_plain(value)):
            return written
        said = dict(_items(written))
        if isinstance(value, Mapping):
            return {key: self._value(item, said.get(key), (*key_path, key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._value(item, said.get(index), (*key_path, index)) for index, item in enumerate(value)]
        if isinstance(value, PurePath):
            value = str(value)
        if isinstance(value, str):
            return _LITERAL_INTERPOLATION.sub(r"\1\1\\${", value)
        return value


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str | PurePath)
