"""Faults of values that are used in several places: each is told once, where it has to be mended."""

from collections.abc import Iterable, Mapping

from modalities_pipeline.config.checking.faults import Fault, fault_at
from modalities_pipeline.config.checking.wording import NO_COMPONENT
from modalities_pipeline.config.interpolation.value_sources import source_of
from modalities_pipeline.config.nodes import REFERENCE_KEYS
from modalities_pipeline.config.origins import ConfigDocument, KeyPath


def fold_copies(
    faults: Iterable[Fault], document: ConfigDocument, references: Mapping[KeyPath, str] | None = None
) -> list[Fault]:
    """The faults without those that are there only because a faulty value is used in several places.

    What is wrong with a copy (by `${a.b}`) as with the original is told at the original alone. What is wrong only with
    copies is told at the original if there are several, naming one, and at the copy, naming the original, if there is
    one. What is wrong with a value that is referred to is told where it stands; so is what a YAML alias repeats.

    Args:
        faults: with the key path of each use.
        document: where the values stand.
        references: key path of a reference -> top-level key of the data (not a component) that it leads to.
    """
    references = references or {}
    groups: dict[tuple[KeyPath, str, bool], list[Fault]] = {}
    for fault in _without_aliases(faults, document):
        source = _source(fault.key_path, document, references)
        message = NO_COMPONENT if fault.message.startswith(NO_COMPONENT) else fault.message
        groups.setdefault((source, message, fault.is_note), []).append(fault)
    result: list[Fault] = []
    for (source, _, _), group in groups.items():
        originals = [fault for fault in group if fault.key_path == source]
        result += originals or [_told_once(source, group, document, references)]
    return result


def _source(key_path: KeyPath, document: ConfigDocument, references: Mapping[KeyPath, str]) -> KeyPath:
    """Where the value at a key path is written down."""
    for _ in range(len(references) + 1):
        copied = source_of(document.data, key_path)
        end = _reference_at(copied, document, references)
        if end is None:
            return copied
        key_path = (references[copied[:end]], *copied[end:])
    return key_path


def _reference_at(key_path: KeyPath, document: ConfigDocument, references: Mapping[KeyPath, str]) -> int | None:
    """How many keys lead to a reference on the way to a value, None if there is none; its own keys lead nowhere."""
    end = next((end for end in range(1, len(key_path) + 1) if key_path[:end] in references), None)
    if end is None or end == len(key_path):
        return end
    is_own_key = key_path[end] in REFERENCE_KEYS or document.origin(key_path) != document.origin(key_path[:end])
    return None if is_own_key else end


def _told_once(
    source: KeyPath, copies: list[Fault], document: ConfigDocument, references: Mapping[KeyPath, str]
) -> Fault:
    first, num_others = copies[0], len({fault.key_path for fault in copies}) - 1
    is_referred = _reference_at(first.key_path, document, references) is not None
    if num_others == 0 and not is_referred:
        hint = f"; the value comes from {_place(source, document)}"
        return Fault(first.key_path, first.message + hint, first.origin, first.is_note)
    more = f" and {num_others} more" if num_others else ""
    used_by = f"; used by {_place(first.key_path, document)}{more}"
    return fault_at(source, first.message + used_by, document, first.is_note)


def _place(key_path: KeyPath, document: ConfigDocument) -> str:
    return f"{'.'.join(map(str, key_path))} ({document.origin(key_path)})"


def _without_aliases(faults: Iterable[Fault], document: ConfigDocument) -> list[Fault]:
    """Each fault once that stands in one place of a file, although YAML aliases (`*a`, `<<: *a`) repeat the place."""
    result: list[Fault] = []
    in_place: dict[tuple[str, str, str, bool], list[Fault]] = {}
    for fault in faults:
        if not fault.key_path or fault.origin is None or fault.origin.line is None:
            result.append(fault)
            continue
        place = (str(fault.origin), str(fault.key_path[-1]), fault.message, fault.is_note)
        earlier = in_place.setdefault(place, [])
        if not any(_are_aliases(fault.key_path, other.key_path, document) for other in earlier):
            earlier.append(fault)
            result.append(fault)
    return result


def _are_aliases(one: KeyPath, other: KeyPath, document: ConfigDocument) -> bool:
    """Whether two key paths with one origin began in different places of the file."""
    for depth in range(1, min(len(one), len(other)) + 1):
        if one[:depth] != other[:depth]:
            return document.origin(one[:depth]) != document.origin(other[:depth])
    return False
