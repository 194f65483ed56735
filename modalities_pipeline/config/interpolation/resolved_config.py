"""A config whose `${...}` have been replaced by their values."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from modalities_pipeline.config.origins import ConfigDocument, KeyPath
from modalities_pipeline.exceptions import ConfigError


@dataclasses.dataclass(frozen=True)
class Unresolved:
    """Stands where a `${...}` has no value.

    Attributes:
        reason: why, in words.
        is_fault: False if the value is only not known here (a warm start's checkpoint, when a config is only checked).
    """

    reason: str
    is_fault: bool = True


@dataclasses.dataclass(frozen=True)
class ResolvedConfig:
    """A config without `${...}`.

    Attributes:
        document: as it stands in the files.
        data: plain dicts, lists and scalars; an `Unresolved` where there is no value.
        env_reads: key path of a scalar -> names of the environment variables that were read for it (not the ranks).
    """

    document: ConfigDocument
    data: dict[str, Any]
    env_reads: Mapping[KeyPath, frozenset[str]]

    def unresolved(self) -> Iterator[tuple[KeyPath, Unresolved]]:
        """Every value that could not be resolved, with its key path."""
        yield from _unresolved(self.data, ())

    def raise_if_unresolved(self) -> None:
        """Raise `ConfigError` with one line for each value that could not be resolved."""
        lines = [
            f"{self.document.origin(key_path)}: {'.'.join(map(str, key_path))}: {unresolved.reason}"
            for key_path, unresolved in self.unresolved()
        ]
        if lines:
            raise ConfigError("\n".join(lines))


def with_reasons(value: Any, change: Callable[[str], str]) -> Any:
    """The value with the reason of every `Unresolved` in it changed."""
    if isinstance(value, dict):
        return {key: with_reasons(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [with_reasons(item, change) for item in value]
    return dataclasses.replace(value, reason=change(value.reason)) if isinstance(value, Unresolved) else value


def _unresolved(value: Any, key_path: KeyPath) -> Iterator[tuple[KeyPath, Unresolved]]:
    if isinstance(value, Unresolved):
        yield key_path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _unresolved(item, (*key_path, key))
