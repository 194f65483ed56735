"""Faults of a config: where each stands, and all of them as one error."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from modalities_pipeline.config.interpolation.value_sources import comes_from_environment
from modalities_pipeline.config.origins import ConfigDocument, KeyPath, Origin
from modalities_pipeline.exceptions import ConfigError

__all__ = ["ConfigFaultsError", "Fault", "fault_at", "raise_faults", "sorted_faults"]

_GIVEN = re.compile(r"\(given: .*\)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something wrong in a config, or something to know about it.

    Attributes:
        key_path: the key or list element it is about; () for the whole file.
        message: what is wrong, and the closest valid name if there is one.
        origin: file, line and column of that key, or of the nearest one above it that is there; None if not known.
        is_note: it does not keep the config from being used.
    """

    key_path: KeyPath
    message: str
    origin: Origin | None = None
    is_note: bool = False

    def __str__(self) -> str:
        """ "file:line:column: a.b.c: message"."""
        dotted_key = ".".join(map(str, self.key_path))
        return ": ".join(str(part) for part in (self.origin, dotted_key, self.message) if part not in (None, ""))


def fault_at(key_path: KeyPath, message: str, document: ConfigDocument | None, is_note: bool = False) -> Fault:
    """A fault with its place in the document; a value that was read from the environment is not repeated in it."""
    if document is None:
        return Fault(key_path, message, None, is_note)
    if "(given: " in message and comes_from_environment(document.data, key_path):
        message = _GIVEN.sub("(given: a value from the environment)", message)
    return Fault(key_path, message, document.origin(key_path), is_note)


class ConfigFaultsError(ConfigError):
    """A config is wrong; `faults` has all that is, and the message one line for each."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


def sorted_faults(faults: Iterable[Fault], path: Path | None = None) -> list[Fault]:
    """The faults by file and line, those of the file `path` first; each is said once."""
    once = {str(fault): fault for fault in faults}
    return sorted(once.values(), key=lambda fault: _place(fault, str(path)))


def _place(fault: Fault, first_source: str) -> tuple[bool, str, int, int]:
    origin = fault.origin
    if origin is None:
        return True, "", 0, 0
    return origin.source != first_source, origin.source, origin.line or 0, origin.column or 0


def raise_faults(faults: Iterable[Fault], path: Path | None = None) -> None:
    """Raise the faults that are no notes, if there are any, those of the file `path` first.

    Raises:
        ConfigFaultsError: there is a fault.
    """
    real = sorted_faults((fault for fault in faults if not fault.is_note), path)
    if real:
        raise ConfigFaultsError(real)
