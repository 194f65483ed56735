"""What a config reads from the environment: tokens and passwords, perhaps, which no message may repeat."""

import os
import re
from collections.abc import Collection
from pathlib import PurePath
from typing import Any

_MIN_LENGTH = 4  # shorter values stand in too many words by chance; where they are quoted as a value, see `masked_at`
_NO_SECRETS = frozenset({"true", "false", "null", "none"})
_GIVEN = re.compile(r"\(given: .*\)", re.DOTALL)
_HIDDEN_GIVEN = "(given: a value from the environment)"
_WORD = re.compile(r"[^\s${}:,.\[\]'\"]+")

_KeyPath = tuple[str | int, ...]


class EnvironmentValues:
    """The values of environment variables that a config read, and the values of the config that came of them.

    A config's `resolve` fills it; every message about the config passes through it.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # text that must not be shown -> variable
        self._pattern: re.Pattern[str] | None = None
        self._read_at: set[_KeyPath] = set()  # keys whose values came from the environment, and all above them

    def add(self, name: str, value: Any) -> None:
        """A variable was read, or a value was made of it."""
        if isinstance(value, bool) or not isinstance(value, str | int | float | PurePath):
            return
        text = str(value)
        for form in {text, *text.splitlines(), " ".join(text.split()), *_words_to_follow(text)}:
            for shown in (form.strip(), repr(form.strip())[1:-1]):
                if len(shown) >= _MIN_LENGTH and shown.lower() not in _NO_SECRETS and shown not in self._names:
                    self._names[shown] = name
                    self._pattern = None

    def add_read(self, key_path: _KeyPath, names: Collection[str], value: Any) -> None:
        """The scalar at a key path came of these variables."""
        self._read_at.update(key_path[:end] for end in range(1, len(key_path) + 1))
        # a text that only contains a variable may be shown otherwise: "/x/<value of NAME>"
        if not any(os.environ.get(name) and os.environ[name] in str(value) for name in names):
            self.add(", ".join(sorted(names)), value)

    def masked(self, message: str) -> str:
        """The message with "<value of NAME>" wherever it repeats a value."""
        if not self._names:
            return message
        if self._pattern is None:
            longest_first = sorted(self._names, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        return self._pattern.sub(lambda match: f"<value of {self._names[match[0]]}>", message)

    def masked_at(self, key_path: _KeyPath, message: str) -> str:
        """A message about a key; if its value was read from the environment, not even a short one is repeated."""
        if "(given: " in message and key_path in self._read_at:
            message = _GIVEN.sub(_HIDDEN_GIVEN, message)
        return self.masked(message)

    def masked_keys(self, key_path: _KeyPath, known: Collection[_KeyPath]) -> _KeyPath:
        """A key path in which keys that no file says, but a variable, are masked."""
        return tuple(
            self.masked(key) if isinstance(key, str) and key_path[: depth + 1] not in known else key
            for depth, key in enumerate(key_path)
        )


def _words_to_follow(text: str) -> list[str]:
    """The words of a value that holds `${...}` itself: whoever resolves it speaks of them one by one."""
    return _WORD.findall(text) if "${" in text else []
