"""Why a `${...}` has no value, in words."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from modalities_pipeline.config.checking.suggestions import suggestion
from modalities_pipeline.config.interpolation.resolvers import NotResolvableError, known_resolvers
from modalities_pipeline.config.origins import KeyPath

_REFERENCE = re.compile(r"\$\{\s*([^${}:\s]+)\s*\}")
_RESOLVER = re.compile(r"\$\{\s*([A-Za-z_][\w.-]*)\s*:")
_MISSING_KEY = re.compile(r"Interpolation key '(.*)' not found")
_NOT_A_CONTAINER = re.compile(r"Error trying to access (\S+): node `(.*)` is not a container")
_UNSUPPORTED = re.compile(r"Unsupported interpolation type (\S+)")
_MISSING_VALUE = re.compile(r"Missing mandatory value: (\S+)")
_RAISED = re.compile(r"(\w+) raised while resolving interpolation: (.*)")
_NAME_PARTS = re.compile(r"[^.\[\]]+")
_MAX_WAY = 120  # references followed to tell a circle


def describe_failure(
    error: BaseException, text: str, key_path: KeyPath, data: Mapping[str, Any], env_reads: Set[str]
) -> tuple[str, bool]:
    """The reason for an exception that OmegaConf raised, and whether it is a fault.

    Args:
        error: the exception.
        text: the value with `${...}`, as it stands in the file.
        key_path: where.
        data: the whole config, unresolved.
        env_reads: environment variables read before; their values are masked.
    """
    for cause in _chain(error):
        if isinstance(cause, NotResolvableError):
            return _led_by(text, cause.reason), cause.is_fault
    return _masked(_reason(error, text, key_path, data), env_reads), True


def describe_grammar_error(text: str) -> str:
    """What is wrong with a text that holds `${`, but is no interpolation."""
    if text.count("{") > text.count("}"):
        return f"in '{text}', a '${{' is not closed by '}}'"
    return f"'{text}' is no valid ${{...}}; write ${{a.b}} or ${{resolver:argument}}, or \\${{ for the text itself"


def _reason(error: BaseException, text: str, key_path: KeyPath, data: Mapping[str, Any]) -> str:
    message = str(getattr(error, "msg", None) or error).split("\n    full_key:")[0]
    if isinstance(error, RecursionError) or "RecursionError" in message:
        return f"references to references, more than {_MAX_WAY} of them or in a circle; write it flatter"
    if "ecursive interpolation" in message:
        return describe_circle(text, key_path, None, data)
    if "nterpolation to parent" in message:
        return describe_circle(text, key_path, data, data)
    if found := _MISSING_KEY.search(message):
        reason = _dangling(found[1], key_path, data)
        return reason if found[1] in text else _led_by(text, reason)
    if found := _NOT_A_CONTAINER.search(message):
        return f"${{{found[1]}}} refers to nothing: '{found[2]}' is neither a mapping nor a list"
    if found := _UNSUPPORTED.search(message):
        return _led_by(text, f"there is no resolver '{found[1]}'{suggestion(found[1], known_resolvers())}")
    if found := _MISSING_VALUE.search(message):
        return f"it refers to '{found[1]}', whose value is ??? (to be filled in)"
    if "resolved to a missing value" in message:
        return "the answer is ??? (to be filled in)"
    resolver = _RESOLVER.search(text)
    name = f"the resolver '{resolver[1]}'" if resolver else "a resolver"
    if found := _RAISED.search(message):
        return f"{name} failed: {found[1]}: {found[2]}"
    return " ".join(message.split())


def _dangling(name: str, key_path: KeyPath, data: Mapping[str, Any]) -> str:
    """Which part of a reference is not there; dots in front count from the neighbours of `key_path` upwards."""
    num_dots = len(name) - len(name.lstrip("."))
    above = [str(key) for key in key_path[: len(key_path) - num_dots]] if num_dots else []
    node = _at(data, above)
    for part in _NAME_PARTS.findall(name):
        valid = {str(key): value for key, value in _items(node)}
        if part not in valid:
            where = f" in '{'.'.join(above)}'" if above else ""
            hint = (
                f"; it has {len(valid)} elements, counted from 0" if isinstance(node, list) else suggestion(part, valid)
            )
            return f"${{{name}}} refers to nothing: there is no '{part}'{where}{hint}"
        node, above = valid[part], [*above, part]
    return f"${{{name}}} refers to nothing"


def _at(data: Any, names: Iterable[str]) -> Any:
    """The value at a dotted key's parts, None if there is none."""
    for name in names:
        data = {str(key): value for key, value in _items(data)}.get(name)
    return data


def _items(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, Mapping):
        yield from node.items()
    elif isinstance(node, list):
        yield from enumerate(node)


def describe_circle(text: str, key_path: KeyPath, target: Any, data: Mapping[str, Any]) -> str:
    """Why `text` at `key_path`, which refers to the place of `target`, leads back to itself."""
    if isinstance(target, Mapping | list):
        return f"{text} refers to a mapping or list that contains it"
    way = _way_back(".".join(map(str, key_path)), [], data, set())
    return f"it refers to itself in a circle{': ' + ' -> '.join(way) if way else ''}"


def _way_back(name: str, way: list[str], data: Mapping[str, Any], visited: set[str]) -> list[str] | None:
    """The names on the way from a key back to it, as far as plain `${a.b}` show them."""
    if name in way:
        return [*way[way.index(name) :], name]
    if name in visited or len(way) > _MAX_WAY:
        return None
    visited.add(name)
    for text in _texts(_at(data, _NAME_PARTS.findall(name))):
        for target in _REFERENCE.findall(text):
            if circle := _way_back(target, [*way, name], data, visited):
                return circle
    return None


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    for _, value in _items(node):
        yield from _texts(value)


def through(text: str, reason: str) -> str:
    """A reason found elsewhere, with the reference that leads there; a circle or a longer way is told already."""
    return reason if reason.endswith("})") or " circle" in reason else f"{reason} (through {text})"


def _led_by(text: str, reason: str) -> str:
    """A reason, with the first reference of the text unless the text asks a resolver itself."""
    reference = _REFERENCE.search(text)
    return through(reference[0], reason) if reference and not _RESOLVER.search(text) else reason


def _masked(reason: str, env_reads: Set[str]) -> str:
    """A resolver's own message may quote its argument."""
    for name in env_reads:
        value = os.environ.get(name)
        if value:
            reason = reason.replace(value, f"<value of {name}>")
    return reason


def _chain(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    seen: set[int] = set()
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__
