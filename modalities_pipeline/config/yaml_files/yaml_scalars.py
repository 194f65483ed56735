"""What an unquoted YAML word means: YAML 1.1 as Modalities reads it, but for words that surprise people.

`1e-4` is a float, a date is text, `yes` and `off` are bools; `010` (8 or 10?) is refused, `1:30` is text (and not 90).
"""

import math
import re
from collections.abc import Callable
from typing import Any

_WORDS: dict[str, bool | None] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **{
        spelling: value
        for words, value in ((("yes", "true", "on"), True), (("no", "false", "off"), False))
        for word in words
        for spelling in (word, word.capitalize(), word.upper())
    },
}
_NUMBER_STARTS = frozenset("-+.0123456789")
_INTEGER = re.compile(r"[-+]?(?:0b_*[01][01_]*|0o_*[0-7][0-7_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|[0-9][0-9_]*)")
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+)"
)
_INFINITY = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_NOT_A_NUMBER = frozenset({".nan", ".NaN", ".NAN"})
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_MAX_DIGITS = 4000  # Python itself refuses to read more than 4300


def read_plain_scalar(text: str) -> Any:
    """The value of an unquoted word: None, bool, int, float or text.

    Raises:
        ValueError: it is a number that could mean two, or that no float or int can hold.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    if _INTEGER.fullmatch(text):
        return _read_integer(text)
    if _FLOAT.fullmatch(text):
        return _read_float(text)
    if _INFINITY.fullmatch(text):
        return -math.inf if text.startswith("-") else math.inf
    return math.nan if text in _NOT_A_NUMBER else text


def sexagesimal_value(text: str) -> int | float | None:
    """The number that other YAML 1.1 readers make of a word such as "1:30" (90); None if they make none."""
    if not _SEXAGESIMAL.fullmatch(text):
        return None
    value: int | float = 0
    for part in text.lstrip("-+").replace("_", "").split(":"):
        value = value * 60 + (float(part) if "." in part else int(part))
    return -value if text.startswith("-") else value


def note_of_plain_scalar(text: str) -> str | None:
    """What is worth knowing of an unquoted word that is read as text, but looks like a number; None if nothing."""
    if ":" in text and (number := sexagesimal_value(text)) is not None:
        return f"{text} is read as text; other YAML readers take it for the number {number}. Put it in quotes"
    if text.lstrip("-+").lower() in ("inf", "infinity", "nan"):
        return f"{text} is read as text; the number is written with a dot (.inf, -.inf, .nan). Put the text in quotes"
    return None


def read_tagged_scalar(tag: str, text: str) -> Any:
    """The value of a scalar with an explicit tag of YAML itself, such as "int" of `!!int 3`.

    Raises:
        KeyError: no scalar of YAML has this tag.
        ValueError: the text does not fit it.
    """
    return _READERS[tag](text)


def _read_integer(text: str) -> int:
    digits = text.replace("_", "")
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is too long")
    try:
        return int(digits, 0)
    except ValueError:
        stripped = digits.lstrip("-+").lstrip("0")
        octal = stripped if set(stripped) & set("89") else str(int(stripped, 8))
        what = "begins with a 0 too many" if octal == stripped else f"could mean two numbers ({stripped} or {octal})"
        raise ValueError(f"{text} {what}; write it without leading zeros, or in quotes if it is text") from None


def _read_float(text: str) -> float:
    value = float(text.replace("_", ""))
    if math.isinf(value):
        raise ValueError(f"{text} is beyond the numbers that a float can hold; write .inf if infinity is meant")
    return value


def _read_as(kinds: tuple[type, ...], name: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = read_plain_scalar(text)
        if type(value) not in kinds:
            raise ValueError(f"{text!r} is no {name}")
        return float(value) if name == "float" else value

    return read


_READERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": _read_as((int,), "int"),
    "float": _read_as((int, float), "float"),
    "bool": _read_as((bool,), "bool"),
    "null": _read_as((type(None),), "null"),
}
