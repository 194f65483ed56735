"""YAML text -> a tree of nodes that know their origin. Runs no code of the file's, and expands no alias bomb."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple, Protocol

import yaml

from modalities_pipeline.config.origins import Origin
from modalities_pipeline.config.yaml_files.yaml_scalars import (
    note_of_plain_scalar,
    read_plain_scalar,
    read_tagged_scalar,
)
from modalities_pipeline.config.yaml_files.yaml_syntax import describe_syntax_error
from modalities_pipeline.config.yaml_files.yaml_tags import CORE_TAG, PATH_TAGS, REMOVE_TAG, refusal_of_tag, shown_tag
from modalities_pipeline.exceptions import ConfigError

_MAX_NODES = 250_000
_MAX_DEPTH = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A value with its origin: that of its key in a mapping, else its own.

    Attributes:
        value: scalar, dict of key -> `Node`, or list of `Node`.
        origin: where it stands.
        is_removal: it was written as `!remove`.
        note: what is worth knowing of how it is written, if anything.
    """

    value: Any
    origin: Origin
    is_removal: bool = False
    note: str | None = None

    def at(self, origin: Origin) -> "Node":
        """The same value in another place."""
        return Node(self.value, origin, self.is_removal, self.note)


class _Anchored(NamedTuple):
    """A node that aliases may repeat; its size (aliases expanded) and height are known, so that bombs are refused."""

    node: Node
    num_nodes: int
    height: int


class _Events(Protocol):
    """What PyYAML's parsers have in common."""

    def get_event(self) -> yaml.Event: ...
    def peek_event(self) -> yaml.Event: ...
    def dispose(self) -> None: ...


class _PureParser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """PyYAML's own parser, for installations without libyaml."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


def parse_yaml(text: str, source: str) -> Node | None:
    """The tree of a YAML text, None if it holds nothing; `source` is what origins and messages name.

    Raises:
        ConfigError: no valid YAML, a key twice, an ambiguous number, an unknown tag, too many or too deep nodes.
    """
    events = _parser(text)
    try:
        return _TreeBuilder(events, source).build()
    except yaml.MarkedYAMLError as error:
        raise ConfigError(describe_syntax_error(error, text, source)) from None
    finally:
        events.dispose()


def _parser(text: str) -> _Events:
    parser: Any = _PureParser
    if yaml.__with_libyaml__:
        parser = yaml.cyaml.CParser  # type: ignore[attr-defined]  # far faster, with the same events
    return parser(text)


class _TreeBuilder:
    def __init__(self, events: _Events, source: str) -> None:
        self._events = events
        self._source = source
        self._anchors: dict[str, _Anchored] = {}
        self._open_anchors: set[str] = set()
        self._num_nodes = 0
        self._depth = 0
        self._deepest = 0  # since the innermost open anchor

    def build(self) -> Node | None:
        self._events.get_event()  # start of the stream
        if isinstance(self._events.get_event(), yaml.StreamEndEvent):
            return None
        node = self._node()
        self._events.get_event()  # end of the document
        following = self._events.get_event()
        if not isinstance(following, yaml.StreamEndEvent):
            raise self._error(following, "a second document ('---') begins here; a config is one document")
        return node

    def _node(self) -> Node:
        event = self._events.get_event()
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        anchor = getattr(event, "anchor", None)
        return self._value(event) if anchor is None else self._anchored(event, anchor)

    def _value(self, event: yaml.Event) -> Node:
        self._count(event, 1, 0)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        self._depth += 1
        node = self._mapping(event) if isinstance(event, yaml.MappingStartEvent) else self._sequence(event)
        self._depth -= 1
        return node

    def _anchored(self, event: yaml.Event, name: str) -> Node:
        num_nodes_before, deepest_before = self._num_nodes, self._deepest
        self._open_anchors.add(name)
        self._deepest = self._depth
        node = self._value(event)
        self._open_anchors.discard(name)
        self._anchors[name] = _Anchored(node, self._num_nodes - num_nodes_before, self._deepest - self._depth)
        self._deepest = max(self._deepest, deepest_before)
        return node

    def _alias(self, event: yaml.AliasEvent) -> Node:
        name = event.anchor
        if name in self._open_anchors:
            raise self._error(event, f"the anchor &{name} contains the alias *{name} of itself")
        if name not in self._anchors:
            raise self._error(event, f"the alias *{name} has no anchor &{name} above it")
        anchored = self._anchors[name]
        self._count(event, anchored.num_nodes, anchored.height)
        return anchored.node.at(self._origin(event))

    def _count(self, event: yaml.Event, num_nodes: int, height: int) -> None:
        self._num_nodes += num_nodes
        self._deepest = max(self._deepest, self._depth + height)
        if self._num_nodes > _MAX_NODES:
            by_aliases = " once its aliases (*) are expanded" if num_nodes > 1 else ""
            raise self._error(event, f"the file has more than {_MAX_NODES} values{by_aliases}; a config is far smaller")
        if self._depth + height > _MAX_DEPTH:
            raise self._error(event, f"lists and mappings are nested too deeply (more than {_MAX_DEPTH} levels)")

    def _sequence(self, event: yaml.Event) -> Node:
        items = []
        while not isinstance(self._events.peek_event(), yaml.SequenceEndEvent):
            items.append(self._node())
        self._events.get_event()
        origin, tag = self._origin(event), getattr(event, "tag", None)
        if tag in PATH_TAGS:
            return self._path(event, items)
        if tag not in (None, "!", f"{CORE_TAG}seq"):
            raise self._tag_error(event, tag, "a list")
        return Node(items, origin)

    def _path(self, event: yaml.Event, items: list[Node]) -> Node:
        parts = [item.value for item in items]
        if not all(isinstance(part, str | PurePath) for part in parts):
            raise self._error(event, "the parts of a path have to be texts")
        return Node(Path(*parts), self._origin(event))

    def _mapping(self, event: yaml.Event) -> Node:
        entries: dict[Any, Node] = {}
        merged: dict[Any, Node] = {}
        while not isinstance(self._events.peek_event(), yaml.MappingEndEvent):
            key_event = self._events.get_event()
            if isinstance(key_event, yaml.ScalarEvent) and key_event.value == "<<" and key_event.implicit[0]:
                merged.update(self._merged_entries(key_event))
                continue
            key = self._key(key_event)
            if key in entries:
                first = entries[key].origin
                raise self._error(
                    key_event, f"the key '{key}' is there twice; it first stands in line {first.line}; remove one"
                )
            entries[key] = self._node().at(self._origin(key_event))
        self._events.get_event()
        tag = getattr(event, "tag", None)
        if tag not in (None, "!", f"{CORE_TAG}map"):
            raise self._tag_error(event, tag, "a mapping")
        return Node({**merged, **entries}, self._origin(event))

    def _key(self, event: yaml.Event) -> Any:
        if isinstance(event, yaml.AliasEvent):
            key = self._alias(event).value
        elif isinstance(event, yaml.ScalarEvent):
            key = self._scalar(event).value
        else:
            key = {}
        if isinstance(key, dict | list):
            raise self._error(event, "a key has to be a text, not a list or a mapping")
        if key is None:
            raise self._error(event, "there is no key before the colon; put it in quotes if it is meant as text")
        return key

    def _merged_entries(self, key_event: yaml.Event) -> Mapping[Any, Node]:
        """The entries that `<<: *anchor` or `<<: [*a, *b]` adds; of the latter the first wins."""
        node = self._node()
        sources = node.value if isinstance(node.value, list) else [node]
        entries: dict[Any, Node] = {}
        for source in reversed(sources):
            if not isinstance(source.value, dict):
                raise self._error(key_event, "<< wants the alias of a mapping, or a list of such")
            entries.update(source.value)
        return entries

    def _scalar(self, event: yaml.ScalarEvent) -> Node:
        origin, tag, text = self._origin(event), event.tag, event.value
        if tag == "!" or (tag is None and not event.implicit[0]):
            return Node(text, origin)
        try:
            if tag is None:
                return Node(read_plain_scalar(text), origin, note=note_of_plain_scalar(text))
            if tag == REMOVE_TAG:
                if text:
                    raise self._error(event, f"{REMOVE_TAG} takes no value (given: {text!r})")
                return Node(None, origin, is_removal=True)
            return Node(read_tagged_scalar(tag.removeprefix(CORE_TAG), text), origin)
        except KeyError:
            raise self._tag_error(event, str(tag), "a value") from None
        except ConfigError:
            raise
        except ValueError as error:
            does_not_fit = "" if tag is None else f"the value does not fit its tag {shown_tag(tag)}: "
            raise self._error(event, f"{does_not_fit}{error}") from None

    def _origin(self, event: yaml.Event) -> Origin:
        mark: Any = event.start_mark
        return Origin(self._source, mark.line + 1, mark.column + 1)

    def _error(self, event: yaml.Event, message: str) -> ConfigError:
        return ConfigError(f"{self._origin(event)}: {message}.")

    def _tag_error(self, event: yaml.Event, tag: str, what: str) -> ConfigError:
        return self._error(event, refusal_of_tag(tag, what))
