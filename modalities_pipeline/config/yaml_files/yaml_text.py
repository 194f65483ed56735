"""Plain data -> YAML that every reader, of YAML 1.1 or 1.2, ours or another, reads back as the same data."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from modalities_pipeline.config.origins import KeyPath

_WORD = r"[\w./+@%(){}$,:=!*?|<>~^;'&\[\]-]"
# text that needs no quotes where no flow collection surrounds it
_PLAIN_TEXT = re.compile(rf"(?:[^\W\d]|[/$]){_WORD}*(?: {_WORD}+)*")
_WORDS_OF_VALUES = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
# several lines, the first of which begins and the last of which ends with a visible character
_BLOCK_TEXT = re.compile(r"[^\s][^\n]*(?:\n[^\n]*)*\n[^\n]*[^\s]\n?")
_NEEDS_ESCAPE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_NEEDS_QUOTES = re.compile("[\x00-\x09\x0b-\x1f]|" + _NEEDS_ESCAPE.pattern)


class YamlLine(NamedTuple):
    """A line of YAML; `key_path` names the scalar or empty collection that begins in it, if one does."""

    text: str
    key_path: KeyPath | None


def to_yaml(data: Mapping[str, Any]) -> str:
    """The YAML text of plain data: nested dicts and lists of None, bool, int, float and str.

    Raises:
        TypeError: something else is among the data.
    """
    return "".join(f"{line.text}\n" for line in yaml_lines(data))


def yaml_lines(value: Any, key_path: KeyPath = (), indent: int = 0) -> Iterator[YamlLine]:
    """The lines of a value that begins in a line of its own, indented by so many blanks."""
    blanks = " " * indent
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entry(f"{blanks}{_scalar(key)}:", item, (*key_path, key), indent)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _item(item, (*key_path, index), indent)
    else:
        first, *more = _scalar_lines(value, indent)
        yield YamlLine(blanks + first, key_path)
        yield from (YamlLine(line, None) for line in more)


def _entry(start: str, value: Any, key_path: KeyPath, indent: int) -> Iterator[YamlLine]:
    if isinstance(value, Mapping | list) and value:
        yield YamlLine(start, None)
        yield from yaml_lines(value, key_path, indent + 2)
    else:
        first, *more = _scalar_lines(value, indent + 2)
        yield YamlLine(f"{start} {first}", key_path)
        yield from (YamlLine(line, None) for line in more)


def _item(value: Any, key_path: KeyPath, indent: int) -> Iterator[YamlLine]:
    lines = yaml_lines(value, key_path, indent + 2)
    first = next(lines)
    yield first._replace(text=f"{' ' * indent}- {first.text[indent + 2 :]}")
    yield from lines


def _scalar_lines(value: Any, indent: int) -> list[str]:
    """A scalar or empty collection; text of several lines as a block, if that says it exactly."""
    if isinstance(value, str) and _BLOCK_TEXT.fullmatch(value) and not _NEEDS_QUOTES.search(value):
        lines = value.removesuffix("\n").split("\n")
        return ["|" if value.endswith("\n") else "|-", *(" " * indent + line if line else "" for line in lines)]
    return [_scalar(value)]


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list):
        return "[]"
    raise TypeError(f"a {type(value).__name__} cannot be written as YAML")


def _float(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    digits, exponent, power = float.__repr__(value).partition("e")
    # without the point, readers of YAML 1.1 take 1e-05 for text
    return f"{digits}.0{exponent}{power}" if exponent and "." not in digits else f"{digits}{exponent}{power}"


def _text(text: str) -> str:
    if _PLAIN_TEXT.fullmatch(text) and ": " not in text and text[-1] != ":" and text.lower() not in _WORDS_OF_VALUES:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _NEEDS_ESCAPE.sub(lambda match: f"\\u{ord(match.group()):04x}", quoted)
