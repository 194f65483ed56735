"""Where the values of a config stand: file, line and column of every node."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.config.secrets import EnvironmentValues

KeyPath = tuple[str | int, ...]
Position = tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """Where a key or list element comes from; `str()` gives "file:line:column".

    Attributes:
        source: the file's path as it was given, or what else the value comes from (such as "--set").
        line, column: counted from 1; None if the source has no lines.
    """

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.source, self.line, self.column) if part is not None)


@dataclasses.dataclass(frozen=True)
class ConfigDocument:
    """The content of a config (plain dicts, lists, scalars; `${...}` unresolved) and where each node stands.

    Attributes:
        path: the file that was asked for; nodes may come from files that it extends.
        data: the content.
        origins: key path -> origin, for every key and list element.
        text_notes: key path -> what is worth knowing of how its value is written.
        environment: what `resolve` read from environment variables, which messages must not repeat.
    """

    path: Path
    data: dict[str, Any]
    origins: Mapping[KeyPath, Origin]
    text_notes: Mapping[KeyPath, str] = dataclasses.field(default_factory=dict)
    environment: EnvironmentValues = dataclasses.field(default_factory=EnvironmentValues, compare=False, repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether there is no key at all."""
        return not self.data

    def origin(self, key_path: KeyPath) -> Origin:
        """The origin of a key or list element, or of the nearest one above it that is there."""
        for end in range(len(key_path), 0, -1):
            if key_path[:end] in self.origins:
                return self.origins[key_path[:end]]
        return Origin(str(self.path))

    @property
    def positions(self) -> Mapping[KeyPath, Position]:
        """Key path -> line and column."""
        return {
            key_path: (origin.line, origin.column)
            for key_path, origin in self.origins.items()
            if origin.line is not None and origin.column is not None
        }

    def position(self, key_path: KeyPath) -> Position | None:
        """Line and column (from 1) of a key or list element, None if the file has no such key."""
        origin = self.origins.get(key_path)
        return None if origin is None or origin.line is None or origin.column is None else (origin.line, origin.column)
