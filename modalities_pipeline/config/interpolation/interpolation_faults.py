"""Why a `${...}` has no value, in words."""

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
_TOO_HIGH = re.compile(r"Error resolving key '(\.+[^']*)'")
_RAISED = re.compile(r"(\w+) raised while resolving interpolation: (.*)")
_PARSER = re.compile(r"\bGrammarParseError\b")
_NAME_PARTS = re.compile(r"[^.\[\]]+")
_MAX_WAY = 120  # references followed to tell a circle
_MAX_SHOWN = 200  # characters of a reference


def describe_failure(
    error: BaseException, text: str, key_path: KeyPath, data: Mapping[str, Any], env_reads: Set[str]
) -> tuple[str, bool]:
    """The reason for an exception that OmegaConf raised, and whether it is a fault.

    Args:
        error: the exception.
        text: the value with `${...}`, as it stands in the file.
        key_path: where.
        data: the whole config, unresolved.
        env_reads: environment variables read before; what a parser says of their values is left out.
    """
    for cause in _chain(error):
        if isinstance(cause, NotResolvableError):
            return _led_by(text, cause.reason), cause.is_fault
    reason = _reason(error, text, key_path, data)
    return (_without_quotes(reason, env_reads) if env_reads else reason), True


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
        reason = describe_dangling(found[1], key_path, data)
        return reason if found[1] in text else _led_by(text, reason)
    if found := _NOT_A_CONTAINER.search(message):
        return f"${{{found[1]}}} refers to nothing: '{found[2]}' is neither a mapping nor a list"
    if found := _UNSUPPORTED.search(message):
        return _led_by(text, f"there is no resolver '{found[1]}'{suggestion(found[1], known_resolvers())}")
    if found := _MISSING_VALUE.search(message):
        return f"it refers to '{found[1]}', whose value is ??? (to be filled in)"
    if "resolved to a missing value" in message:
        return "the answer is ??? (to be filled in)"
    if found := _TOO_HIGH.search(message):
        return f"${{{_cut(found[1])}}} leads above the top level; it has too many dots in front"
    if "Conflicting integer and string keys" in message:
        return _describe_conflict(data)
    resolver = _RESOLVER.search(text)
    name = f"the resolver '{resolver[1]}'" if resolver else "a resolver"
    if found := _RAISED.search(message):
        return f"{name} failed: {found[1]}: {found[2]}"
    return " ".join(message.split())


def describe_dangling(name: str, key_path: KeyPath, data: Mapping[str, Any]) -> str:
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
            return f"${{{_cut(name)}}} refers to nothing: there is no '{_cut(part)}'{where}{hint}"
        node, above = valid[part], [*above, part]
    return f"${{{_cut(name)}}} refers to nothing"


def _cut(name: str) -> str:
    return name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."


def _describe_conflict(data: Mapping[str, Any]) -> str:
    """Which mapping keeps OmegaConf from reading the config at all, because two of its keys look the same."""
    key_path, key = next(_conflicts(data, ()), ((), ""))
    where = f"'{'.'.join(key_path)}'" if key_path else "the top level"
    return (
        f"in {where}, '{key}' is a key twice, as a text and as a number; rename one, so that ${{...}} can be resolved"
    )


def _conflicts(node: Any, key_path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(node, Mapping):
        seen: set[str] = set()
        for key in map(str, node):
            if key in seen:
                yield key_path, key
            seen.add(key)
    for key, value in _items(node):
        yield from _conflicts(value, (*key_path, str(key)))


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
    parts = _NAME_PARTS.findall(name)
    for key_path, text in _texts(_at(data, parts), tuple(parts)):
        for target in _REFERENCE.findall(text):
            num_dots = len(target) - len(target.lstrip("."))
            if num_dots:
                target = ".".join((*key_path[: len(key_path) - num_dots], target.lstrip(".")))
            if circle := _way_back(target, [*way, name], data, visited):
                return circle
    return None


def _texts(node: Any, key_path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text in a node, with its key path."""
    if isinstance(node, str):
        yield key_path, node
    for key, value in _items(node):
        yield from _texts(value, (*key_path, str(key)))


def through(text: str, reason: str) -> str:
    """A reason found elsewhere, with the reference that leads there; a circle or a longer way is told already."""
    return reason if reason.endswith("})") or " circle" in reason else f"{reason} (through {text})"


def _led_by(text: str, reason: str) -> str:
    """A reason, with the first reference of the text unless the text asks a resolver itself."""
    reference = _REFERENCE.search(text)
    return through(reference[0], reason) if reference and not _RESOLVER.search(text) else reason


def _without_quotes(reason: str, env_reads: Set[str]) -> str:
    """A parser's message without what follows its name, which may be any piece of a variable's value."""
    found = _PARSER.search(reason)
    return f"{reason[: found.end()]} (of the value of {', '.join(sorted(env_reads))})" if found else reason


def _chain(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    seen: set[int] = set()
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__
