"""The text of a document: what a jq pattern finds in a JSON line."""

import re
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
        import jq

        try:
            self._program: Any = jq.compile(jq_pattern)
        except ValueError as error:
            raise ConfigError(f"jq_pattern '{jq_pattern}' cannot be compiled: {str(error).strip()}.") from error
        self._jq_pattern = jq_pattern
        self._keys = jq_pattern[1:].split(".") if _KEY_PATH.fullmatch(jq_pattern) else None

    def extract(self, line: bytes) -> str:
        """The text of one line.

        Raises:
            BadDocumentError: the line is unreadable for jq, the pattern finds nothing, or not a string.
        """
        value = self._follow_keys(line)
        if value is None:
            value = self._run_jq(line)
        if value is None:
            raise BadDocumentError("missing_text", f"'{self._jq_pattern}' finds nothing{_keys_found(line)}")
        if not isinstance(value, str):
            raise BadDocumentError("not_a_string", f"'{self._jq_pattern}' gives {_kind(value)} instead of a string")
        return value

    def _follow_keys(self, line: bytes) -> Any:
        """The value at a plain key path; None where jq has to judge."""
        if self._keys is None:
            return None
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None
        for key in self._keys:
            if not isinstance(value, dict):
                return None
            value = value.get(key)
        return value

    def _run_jq(self, line: bytes) -> Any:
        try:
            return next(iter(self._program.input_text(line.decode())), None)
        except ValueError as error:
            raise BadDocumentError("unreadable_line", f"jq cannot read it: {str(error).strip()}") from error


def _keys_found(line: bytes) -> str:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return ""
    return f" (keys found: {', '.join(record) or 'none'})" if isinstance(record, dict) else ""


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", bool: "a boolean"}.get(type(value), "a number")
