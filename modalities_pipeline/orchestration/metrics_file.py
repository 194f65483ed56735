"""Reads metrics.jsonl, which a training run appends to, and writes anew when it is resumed."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from modalities_pipeline.orchestration.training_result import nan_if_none

MetricsLine = dict[str, Any]

_GROUPS = ("losses", "metrics", "throughput_metrics")


class NewLines:
    """Reads the complete lines that are added to a metrics file from now on, numbers that are not finite as NaN.

    A run that continues from an older step replaces the file by one without the lines of later steps, and appends
    these anew. The new file is read from its start; what it has in common with the old one is not given again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: int | None = None
        self._offset = 0
        self._is_replacement = False
        self._seen: set[int] = set()  # hashes of lines, which hold the time and so are never alike
        for _ in self._new_lines():
            pass

    def read(self) -> Iterator[MetricsLine]:
        """The lines that were completed since the last call."""
        for line in self._new_lines():
            with contextlib.suppress(json.JSONDecodeError):
                yield _parse(line)

    def _new_lines(self) -> Iterator[bytes]:
        for line in self._complete_lines():
            is_old = self._is_replacement and hash(line) in self._seen
            self._seen.add(hash(line))
            if not is_old:
                yield line

    def _complete_lines(self) -> list[bytes]:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            status = os.fstat(file.fileno())
            if self._inode is not None and (status.st_ino != self._inode or status.st_size < self._offset):
                self._offset, self._is_replacement = 0, True
            self._inode = status.st_ino
            file.seek(self._offset)
            content = file.read()
        complete = content[: content.rfind(b"\n") + 1]
        self._offset += len(complete)
        return complete.splitlines()


def read_metrics(path: Path) -> list[MetricsLine]:
    """All lines of a metrics file, numbers that are not finite as NaN; of two for one step the last one counts."""
    if not path.exists():
        return []
    newest: dict[tuple[str, int], MetricsLine] = {}
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            entry = _parse(line)
            newest[entry["dataloader_tag"], entry["num_train_steps_done"]] = entry
    return sorted(newest.values(), key=lambda entry: entry["num_train_steps_done"])


def _parse(line: bytes) -> MetricsLine:
    entry: MetricsLine = json.loads(line)
    numbers = {group: {name: nan_if_none(value) for name, value in entry[group].items()} for group in _GROUPS}
    return {**entry, **numbers}
