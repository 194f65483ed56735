"""The text of a document: what a jq pattern finds in a JSON line."""

import contextlib
import functools
import re
from collections.abc import Sequence
from typing import Any

import orjson

from modalities_pipeline.exceptions import ConfigError

_KEY_PATH = re.compile(r"(?:\.[A-Za-z_][A-Za-z0-9_]*)+")


class BadDocumentError(ValueError):
    """A line yields no text; `reason` is a word for counting, the message one for people."""

    def __init__(self, reason: str, message: str) -> None:
        """Remember the reason."""
        super().__init__(message)
        self.reason = reason


class TextExtractor:
    """Applies a jq pattern to JSON lines; the pattern's first output counts.

    Plain key paths such as `.text` take a faster way with the same results.
    """

    def __init__(self, jq_pattern: str) -> None:
        """Compile the pattern.

        Raises:
            ConfigError: it is no jq pattern.
        """
        self._program = _compiled(jq_pattern)
        self._jq_pattern = jq_pattern
        self._keys = jq_pattern[1:].split(".") if _KEY_PATH.fullmatch(jq_pattern) else None

    def extract(self, line: bytes) -> str:
        """The text of one line.

        Raises:
            BadDocumentError: the line is unreadable for jq, or the pattern fails, finds nothing, or not a string.
        """
        value = self._follow_keys(line)
        return value if isinstance(value, str) else self._extract_with_jq(line)

    def extract_all(self, lines: Sequence[bytes]) -> tuple[list[str], list[tuple[int, BadDocumentError]]]:
        """The texts of the good ones of many lines, and (position, error) of each bad one, both in order."""
        if self._keys is not None and len(self._keys) == 1:
            key, parse = self._keys[0], orjson.loads
            with contextlib.suppress(orjson.JSONDecodeError, LookupError, TypeError):
                values = [parse(line)[key] for line in lines]
                if all(type(value) is str for value in values):
                    return values, []
        texts: list[str] = []
        faults: list[tuple[int, BadDocumentError]] = []
        for position, line in enumerate(lines):
            try:
                texts.append(self.extract(line))
            except BadDocumentError as error:
                faults.append((position, error))
        return texts, faults

    def _follow_keys(self, line: bytes) -> Any:
        """The value at a plain key path; None where jq has to judge."""
        if self._keys is None:
            return None
        try:
            value = orjson.loads(line)
            for key in self._keys:
                value = value[key]
        except (orjson.JSONDecodeError, LookupError, TypeError):
            return None
        return value

    def _extract_with_jq(self, line: bytes) -> str:
        try:
            value = next(iter(self._program.input_text(line.decode())), None)
        except ValueError as error:
            message = str(error).strip()
            if _is_readable_for_jq(line):
                raise BadDocumentError("jq_failed", f"'{self._jq_pattern}' fails: {message}") from error
            raise BadDocumentError("unreadable_line", f"jq cannot read it: {message}") from error
        if value is None:
            raise BadDocumentError("missing_text", f"'{self._jq_pattern}' finds nothing{_keys_found(line)}")
        if not isinstance(value, str):
            raise BadDocumentError("not_a_string", f"'{self._jq_pattern}' gives {_kind(value)} instead of a string")
        return value


@functools.lru_cache(maxsize=64)
def _compiled(jq_pattern: str) -> Any:
    """The jq program of a pattern; compiling takes longer than packing a small file, so a program is kept."""
    import jq

    try:
        return jq.compile(jq_pattern)
    except ValueError as error:
        raise ConfigError(f"jq_pattern '{jq_pattern}' cannot be compiled: {str(error).strip()}.") from error


def _is_readable_for_jq(line: bytes) -> bool:
    """Whether jq reads the line's first value, so that what failed is the pattern; asked only about bad lines."""
    try:
        next(iter(_compiled(".").input_text(line.decode())), None)
    except ValueError:
        return False
    return True


def _keys_found(line: bytes) -> str:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return ""
    return f" (keys found: {', '.join(record) or 'none'})" if isinstance(record, dict) else ""


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", bool: "a boolean"}.get(type(value), "a number")
