"""Faults of a config: where each stands, and all of them as one error."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from modalities_pipeline.config.origins import ConfigDocument, KeyPath, Origin
from modalities_pipeline.exceptions import ConfigError

__all__ = ["ConfigFaultsError", "Fault", "fault_at", "raise_faults", "sorted_faults"]


# a file can hold them in quotes, as "\e"; a terminal would obey them. The lines of a message are its own
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_WHITE_SPACE = re.compile(r"[\t\n]")


def _escaped(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]


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
        dotted_key = _WHITE_SPACE.sub(_escaped, ".".join(map(str, self.key_path)))
        parts = (self.origin, dotted_key, self.message)
        return _CONTROL_CHARACTER.sub(_escaped, ": ".join(str(part) for part in parts if part not in (None, "")))


def fault_at(key_path: KeyPath, message: str, document: ConfigDocument | None, is_note: bool = False) -> Fault:
    """A fault with its place in the document; a value that was read from the environment is not repeated in it."""
    if document is None:
        return Fault(key_path, message, None, is_note)
    origin, environment = document.origin(key_path), document.environment
    shown_path = environment.masked_keys(key_path, document.origins.keys())
    return Fault(shown_path, environment.masked_at(key_path, message), origin, is_note)


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
