"""Values that a `${...}` does not have: each cause is told once, however many values it keeps from being known."""

import re

from modalities_pipeline.config.checking.faults import Fault, fault_at
from modalities_pipeline.config.origins import ConfigDocument
from modalities_pipeline.config.resolution import Unresolved

_THROUGH = " (through "  # begins the way by which a value is copied, at the end of an `Unresolved`'s reason
_NO_SECTION = re.compile(r"\$\{[^{}]*\} refers to nothing: there is no '([^']+)'(; did you mean '.*'\?)?(; known: .*)?")


class MissingValues:
    """Collects the faults of values that could not be resolved."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._copied: dict[str, Fault] = {}  # cause -> first fault of a `${...}` that copies what has no value

    def add(self, value: Unresolved, fault: Fault) -> None:
        """Take the fault of a value; not again where the value is copied to."""
        cause, _, way = value.reason.partition(_THROUGH)
        if way:
            self._copied.setdefault(cause, fault)
        else:
            self._faults.append(fault)

    def told(self, document: ConfigDocument | None) -> list[Fault]:
        """The faults; all values that miss the same top-level section are one."""
        causes = {fault.message for fault in self._faults}
        faults = [*self._faults, *(fault for cause, fault in self._copied.items() if cause not in causes)]
        by_section: dict[tuple[str, bool], list[Fault]] = {}
        result = []
        for fault in faults:
            if found := _NO_SECTION.fullmatch(fault.message):
                by_section.setdefault((found[1], fault.is_note), []).append(fault)
            else:
                result.append(fault)
        for (name, is_note), group in by_section.items():
            result += group if len(group) == 1 else [_of_section(name, group, is_note, document)]
        return result


def _of_section(name: str, faults: list[Fault], is_note: bool, document: ConfigDocument | None) -> Fault:
    first = faults[0]
    hint = (_NO_SECTION.fullmatch(first.message) or [""] * 3)[2] or ""
    place = f"{'.'.join(map(str, first.key_path))} ({first.origin})"
    message = f"there is no '{name}'{hint}; used by {len(faults)} values, the first being {place}"
    return fault_at((name,), message, document, is_note)
