"""Faults of values that `${...}` copies: each is told once, with the place that has to be changed."""

from modalities_pipeline.config.checking.faults import Fault
from modalities_pipeline.config.interpolation.value_sources import source_of
from modalities_pipeline.config.origins import ConfigDocument, KeyPath


def fold_copies(faults: list[Fault], document: ConfigDocument) -> list[Fault]:
    """The faults without those that are there only because a faulty value is copied.

    What is wrong with the original is told there and nowhere else. What is wrong only with copies is told at the
    original if there are several, naming one, and at the copy, naming the original, if there is one.
    """
    groups: dict[tuple[KeyPath, bool], list[Fault]] = {}
    for fault in faults:
        groups.setdefault((source_of(document.data, fault.key_path), fault.is_note), []).append(fault)
    result: list[Fault] = []
    for (source, _), group in groups.items():
        originals = [fault for fault in group if fault.key_path == source]
        result += originals or _told_once(source, group, document)
    return result


def _told_once(source: KeyPath, copies: list[Fault], document: ConfigDocument) -> list[Fault]:
    by_message: dict[str, list[Fault]] = {}
    for fault in copies:
        by_message.setdefault(fault.message, []).append(fault)
    result = []
    for message, group in by_message.items():
        first, num_others = group[0], len({fault.key_path for fault in group}) - 1
        if num_others == 0:
            hint = f"; the value comes from {_place(source, document)}"
            result.append(Fault(first.key_path, message + hint, first.origin, first.is_note))
        else:
            used_by = f"; used by {_place(first.key_path, document)} and {num_others} more"
            result.append(Fault(source, message + used_by, document.origin(source), first.is_note))
    return result


def _place(key_path: KeyPath, document: ConfigDocument) -> str:
    return f"{'.'.join(map(str, key_path))} ({document.origin(key_path)})"
