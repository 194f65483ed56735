"""What `config check` tells: text for people, JSON for editors and continuous integration."""

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modalities_pipeline.config.check import CheckReport, check_config
from modalities_pipeline.config.checking.faults import ConfigFaultsError, Fault
from modalities_pipeline.config.origins import Origin
from modalities_pipeline.exceptions import ConfigError

if TYPE_CHECKING:
    from modalities_pipeline.config.overlays import Override

_SUFFIXES = (".yaml", ".yml")


@dataclasses.dataclass(frozen=True)
class CheckedFile:
    """One file and what was found.

    Attributes:
        path: the file.
        faults: what is wrong.
        report: all that was found; None if the file could not be read at all.
    """

    path: Path
    faults: tuple[Fault, ...]
    report: CheckReport | None

    @classmethod
    def check(
        cls,
        path: Path,
        kind: str | None,
        world_size: int | None,
        last_checkpoint_info_file_path: Path | None,
        overrides: "Sequence[Override]",
    ) -> "CheckedFile":
        """Check one file; a file that cannot be read is one with a fault."""
        try:
            report = check_config(
                path,
                kind=kind,
                world_size=world_size,
                last_checkpoint_info_file_path=last_checkpoint_info_file_path,
                overrides=overrides,
            )
        except ConfigFaultsError as error:
            return cls(path, error.faults, None)
        except ConfigError as error:
            return cls(path, (_fault_of_message(str(error), path),), None)
        return cls(path, tuple(report.faults), report)

    @property
    def is_ok(self) -> bool:
        """Whether there is no fault."""
        return not self.faults

    @property
    def notes(self) -> tuple[Fault, ...]:
        """What is worth knowing."""
        return tuple(self.report.notes) if self.report is not None else ()


def yaml_files(paths: Iterable[Path]) -> list[Path]:
    """The files, and in the place of a folder the YAML files in it and below, in order of their paths.

    Raises:
        ConfigError: there is no YAML file in a folder.
    """
    files: list[Path] = []
    for path in paths:
        found = sorted(_in_folder(path)) if path.is_dir() else [path]
        if not found:
            raise ConfigError(f"{path}: there is no YAML file ({', '.join(_SUFFIXES)}) in this folder.")
        files += found
    return list(dict.fromkeys(files))


def as_text(file: CheckedFile, is_one_of_many: bool) -> tuple[str, str]:
    """(faults, one a line; notes, training report unless it is one of many, and a line that sums up)."""
    lines = [f"note: {note}" for note in file.notes]
    if file.report is not None and file.report.training_report and not is_one_of_many:
        lines.append(str(file.report.training_report))
    num_faults = len(file.faults)
    unread = f"{file.path}: {num_faults} fault{'s' if num_faults > 1 else ''}"
    summary = file.report.summary if file.report is not None else unread
    return "\n".join(map(str, file.faults)), "\n".join([*lines, summary])


def as_json(files: Iterable[CheckedFile]) -> str:
    """A list with a mapping for each fault and note."""
    found = [_as_mapping(fault, file) for file in files for fault in (*file.faults, *file.notes)]
    return json.dumps(found, indent=2, ensure_ascii=False)


def _in_folder(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix in _SUFFIXES and not is_hidden and path.is_file():
            yield path


def _as_mapping(fault: Fault, file: CheckedFile) -> dict[str, Any]:
    origin = fault.origin or Origin(str(file.path))
    return {
        "file": origin.source,
        "line": origin.line,
        "column": origin.column,
        "key": ".".join(map(str, fault.key_path)),
        "message": fault.message,
        "severity": "note" if fault.is_note or fault not in file.faults else "error",
    }


def _fault_of_message(text: str, path: Path) -> Fault:
    """A fault made of "file:line:column: message", as far as the text is of this form."""
    match = re.match(r"(?P<source>[^:\n]+)(?::(?P<line>\d+))?(?::(?P<column>\d+))?: (?P<message>[\s\S]+)", text)
    if match is None or not Path(match["source"]).exists():
        return Fault((), text, Origin(str(path)))
    line, column = (int(match[name]) if match[name] else None for name in ("line", "column"))
    return Fault((), match["message"], Origin(match["source"], line, column))
