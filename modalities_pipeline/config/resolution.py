"""Resolving the `${...}` of a config value by value, so that one without an answer spoils nothing else.

`${a.b}` refers to another value of the config (`${.b}` to a neighbour); to a mapping, it copies it. `${name:argument}`
asks a resolver: ours (`resolvers.py`), OmegaConf's (`oc.env`, `oc.select`, ...), or given ones. A value that is nothing
but one `${...}` keeps the type of the answer, inside a longer text it becomes text. `\\${` stands for `${` itself.
"""

import contextlib
import dataclasses
import functools
import re
from typing import Any, NamedTuple

from modalities_pipeline.config.interpolation.interpolation_faults import (
    describe_circle,
    describe_dangling,
    describe_failure,
    through,
)
from modalities_pipeline.config.interpolation.omega import LONG_REFERENCE, is_interpolated, omegaconf_container
from modalities_pipeline.config.interpolation.resolved_config import ResolvedConfig, Unresolved, with_reasons
from modalities_pipeline.config.interpolation.resolvers import (
    RANK_VARIABLES,
    NotResolvableError,
    ResolverContext,
    Resolvers,
)
from modalities_pipeline.config.interpolation.value_sources import target_of, value_at
from modalities_pipeline.config.origins import ConfigDocument, KeyPath

__all__ = ["ResolvedConfig", "ResolverContext", "Unresolved", "resolve"]

_MAX_NODES = 250_000  # copies of mappings included
_MAX_DEPTH = 120  # of mappings in mappings and of references to references
_MAX_CHARACTERS = 10_000_000  # of all texts that `${...}` make
_TOO_MUCH = "references to references, or copies of mappings, make the config far too large; write it flatter"
_PLAIN_REFERENCE = re.compile(r"\$\{(\.*[A-Za-z_]\w*(?:\.\w+)*)\}", re.ASCII)
# a plain reference, or a resolver with one word as argument; OmegaConf is asked for all else
_SIMPLE = re.compile(
    _PLAIN_REFERENCE.pattern + r"|\$\{([a-z_.]+):(?!(?:null|true|false|inf|nan)\})([A-Za-z_]\w*)\}", re.ASCII
)
_NOT_SIMPLE = object()


def resolve(document: ConfigDocument, context: ResolverContext | None = None) -> ResolvedConfig:
    """Resolve every `${...}` of a config; what cannot be resolved becomes an `Unresolved` in its place."""
    environment = document.environment
    resolution = _Resolution(document, Resolvers(document.path, context or ResolverContext(), environment))
    data = resolution.run()
    for key_path, names in resolution.env_reads.items():
        if secret_names := names - RANK_VARIABLES.keys():
            environment.add_read(key_path, secret_names, value_at(data, key_path))
    return ResolvedConfig(document, with_reasons(data, environment.masked), resolution.env_reads)


class _Place(NamedTuple):
    """A mapping or list that is walked: where it stands in the document, or the OmegaConf container that it is."""

    source: KeyPath | None
    container: Any = None


class _Resolution:
    def __init__(self, document: ConfigDocument, resolvers: Resolvers) -> None:
        self.env_reads: dict[KeyPath, frozenset[str]] = {}
        self._document = document
        self._resolvers = resolvers
        self._num_nodes = 0
        self._num_characters = 0
        self._known: dict[KeyPath, tuple[Any, frozenset[str]]] = {}  # scalars by their place in the document
        self._around: list[Any] = []  # places that are being resolved, to find circles
        self._registration = contextlib.ExitStack()

    def run(self) -> dict[str, Any]:
        with self._registration:
            return self._value(self._document.data, _Place(()), (), frozenset())

    @functools.cached_property
    def _root(self) -> Any:
        """The config as OmegaConf has it; made only for what is not simple, because even its import takes long."""
        self._registration.enter_context(self._resolvers.registered())
        return omegaconf_container(self._document.data)

    def _value(self, plain: Any, place: _Place, key_path: KeyPath, inherited: frozenset[str]) -> Any:
        """The resolved copy of `plain`; `inherited` are the variables that were read to get at it."""
        self._num_nodes += 1
        if isinstance(plain, dict):
            return {key: self._child(item, place, key, (*key_path, key), inherited) for key, item in plain.items()}
        if isinstance(plain, list):
            return [self._child(item, place, index, (*key_path, index), inherited) for index, item in enumerate(plain)]
        if inherited:
            self.env_reads[key_path] = inherited
        return plain

    def _child(self, plain: Any, place: _Place, key: Any, key_path: KeyPath, inherited: frozenset[str]) -> Any:
        source = None if place.source is None else (*place.source, key)
        if is_interpolated(plain):
            return self._interpolated(plain, place, key, key_path, inherited)
        if not isinstance(plain, dict | list):
            return self._value(plain, place, key_path, inherited)
        child = _Place(source) if source is not None else _Place(None, place.container._get_node(key))
        return self._within(plain, child, key_path, inherited)

    def _within(self, plain: Any, place: _Place, key_path: KeyPath, inherited: frozenset[str]) -> Any:
        self._around.append(place.source if place.source is not None else id(place.container))
        try:
            return self._value(plain, place, key_path, inherited)
        finally:
            self._around.pop()

    def _interpolated(self, text: str, place: _Place, key: Any, key_path: KeyPath, inherited: frozenset[str]) -> Any:
        source = None if place.source is None else (*place.source, key)
        if source in self._known:
            value, reads = self._known[source]
            return self._answer(value, key_path, inherited | reads)
        reference = _PLAIN_REFERENCE.fullmatch(text)
        if source is not None and reference and (target := self._target(reference[1], source)) is not None:
            return self._referred(text, source, target, key_path, inherited)
        if long_reference := LONG_REFERENCE.search(text):
            return Unresolved(describe_dangling(long_reference[1], source or key_path, self._document.data))
        with self._resolvers.recorded() as variables:
            value = _NOT_SIMPLE if source is None else self._joined(text, source, key_path, variables)
            if value is _NOT_SIMPLE:
                value = self._asked(text, place, key, key_path, variables)
        if isinstance(value, str):
            self._num_characters += len(value)
        reads = frozenset(variables)
        if isinstance(value, _Place):
            return self._copied(text, value, key_path, inherited | reads)
        if source is not None:
            self._known[source] = value, reads
        return self._answer(value, key_path, inherited | reads)

    def _answer(self, value: Any, key_path: KeyPath, reads: frozenset[str]) -> Any:
        """A copy of what a resolver answered, in which `${` is plain text."""
        if isinstance(value, dict):
            return {key: self._answer(item, (*key_path, key), reads) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._answer(item, (*key_path, index), reads) for index, item in enumerate(value)]
        if reads:
            self.env_reads[key_path] = reads
        return value

    def _target(self, dotted_key: str, source: KeyPath) -> KeyPath | None:
        """The place in the document where `${dotted_key}` at `source` leads without any other `${...}` on the way."""
        target = target_of(dotted_key, self._document.data, source)
        is_empty = target is not None and value_at(self._document.data, target) == "???"
        return None if is_empty else target

    def _referred(
        self, text: str, source: KeyPath, target: KeyPath, key_path: KeyPath, inherited: frozenset[str]
    ) -> Any:
        plain = value_at(self._document.data, target)
        if target in (source, *self._around):
            return Unresolved(describe_circle(text, source, plain, self._document.data))
        if self._is_too_much():
            return Unresolved(_TOO_MUCH)
        if isinstance(plain, dict | list):
            return self._within(plain, _Place(target), key_path, inherited)
        self._around.append(source)
        value = self._child(plain, _Place(target[:-1]), target[-1], key_path, inherited)
        self._around.pop()
        if isinstance(value, Unresolved):
            value = dataclasses.replace(value, reason=through(text, value.reason))
        return value

    def _joined(self, text: str, source: KeyPath, key_path: KeyPath, reads: set[str]) -> Any:
        """The value of a text that holds nothing but simple `${...}`, else `_NOT_SIMPLE`."""
        if "\\" in text or "${" in _SIMPLE.sub("", text):
            return _NOT_SIMPLE
        pieces: list[Any] = []
        end = 0
        for match in _SIMPLE.finditer(text):
            piece = self._simple(match, source, key_path, reads)
            if piece is _NOT_SIMPLE or isinstance(piece, Unresolved | dict | list):
                return piece if isinstance(piece, Unresolved) else _NOT_SIMPLE
            pieces += [text[end : match.start()], piece]
            end = match.end()
        pieces.append(text[end:])
        is_alone = len(pieces) == 3 and not pieces[0] and not pieces[2]
        if is_alone:
            return pieces[1]
        texts = [str(piece) for piece in pieces]
        num_characters = self._num_characters + sum(map(len, texts))
        return Unresolved(_TOO_MUCH) if num_characters > _MAX_CHARACTERS else "".join(texts)

    def _simple(self, match: re.Match[str], source: KeyPath, key_path: KeyPath, reads: set[str]) -> Any:
        dotted_key, resolver, argument = match.groups()
        if resolver:
            function = self._resolvers.own(resolver)
            try:
                return _NOT_SIMPLE if function is None else function(argument)
            except NotResolvableError as error:
                return Unresolved(error.reason, error.is_fault)
        target = self._target(dotted_key, source)
        if target is None or isinstance(value_at(self._document.data, target), dict | list):
            return _NOT_SIMPLE
        value = self._referred(match[0], source, target, key_path, frozenset())
        reads |= self.env_reads.pop(key_path, frozenset())
        return value

    def _asked(self, text: str, place: _Place, key: Any, key_path: KeyPath, reads: set[str]) -> Any:
        """What OmegaConf makes of a text: a plain value, an `Unresolved`, or a `_Place` of OmegaConf's."""
        from omegaconf import OmegaConf

        if self._is_too_much():
            return Unresolved(_TOO_MUCH)
        try:
            container = place.container if place.source is None else self._container(place.source)
            value = container[key]
        except Exception as error:  # a resolver may raise anything
            return Unresolved(*describe_failure(error, text, key_path, self._document.data, reads))
        return _Place(None, value) if OmegaConf.is_config(value) else value

    def _copied(self, text: str, place: _Place, key_path: KeyPath, inherited: frozenset[str]) -> Any:
        from omegaconf import OmegaConf

        if id(place.container) in self._around:
            return Unresolved(f"{text} refers to a mapping or list that contains it")
        if self._is_too_much():
            return Unresolved(_TOO_MUCH)
        return self._within(OmegaConf.to_container(place.container, resolve=False), place, key_path, inherited)

    def _container(self, source: KeyPath) -> Any:
        node = self._root
        for key in source:
            node = node._get_node(key)
        return node

    def _is_too_much(self) -> bool:
        is_long = self._num_characters > _MAX_CHARACTERS
        return is_long or self._num_nodes > _MAX_NODES or len(self._around) > _MAX_DEPTH
