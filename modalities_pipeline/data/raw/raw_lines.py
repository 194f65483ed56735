"""Lines of raw files in any order: found by one pass over each file, then copied one by one.

The lines are read, not mapped into memory, because a file that another process cuts off while it is mapped kills the
process that looks at it.
"""

from __future__ import annotations

import array
import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from modalities_pipeline.data.raw.raw_source import RawSource

_MAX_OPEN_FILES = 256
_WRITE_BUFFER_IN_BYTES = 1 << 20
_REPORT_INTERVAL_IN_LINES = 1000


def find_line_bounds(source: RawSource, on_progress: Callable[[int], None]) -> array.array[int]:
    """Read a file once; line i reaches from byte bounds[i] to bounds[i + 1]. `on_progress`: see `RawSource.lines`."""
    with source.lines(on_progress) as lines:
        return array.array("q", itertools.accumulate(map(len, lines), initial=0))


def write_lines(
    sources: Sequence[RawSource],
    places: Iterable[tuple[int, int, int]],
    output_path: Path,
    on_progress: Callable[[int], None],
) -> int:
    """Write lines one after the other into a new file; a line without LF, the last of its file, gets one.

    Args:
        sources: the files.
        places: of each line (number of the file, first byte, end).
        output_path: the new file.
        on_progress: told the number of lines written so far.

    Returns the number of lines.

    Raises:
        DatasetFormatError: a file has become shorter, or has its lines elsewhere now.
    """
    num_lines = 0
    pread = os.pread
    with open(output_path, "wb", buffering=_WRITE_BUFFER_IN_BYTES) as output, _open_when_needed(sources) as descriptors:
        for num_lines, (number, start, end) in enumerate(places, start=1):
            line = pread(descriptors[number], end - start, start)
            if not line.endswith(b"\n") or len(line) != end - start:
                line = _terminated(line, sources[number], start, end)
            output.write(line)
            if not num_lines % _REPORT_INTERVAL_IN_LINES:
                on_progress(num_lines)
    return num_lines


def _terminated(line: bytes, source: RawSource, start: int, end: int) -> bytes:
    """The last line of a file with an LF; any other line that lacks it or some bytes means that the file changed."""
    if len(line) != end - start or end != source.size_in_bytes:
        raise source.changed()
    return line + b"\n"


class _Descriptors(dict[int, int]):
    """Number of a file -> its descriptor; opens it when asked for, and closes another one if too many are open."""

    def __init__(self, sources: Sequence[RawSource]) -> None:
        super().__init__()
        self._sources = sources

    def __missing__(self, number: int) -> int:
        if len(self) == _MAX_OPEN_FILES:
            os.close(self.pop(next(iter(self))))
        try:
            self[number] = os.open(self._sources[number].path, os.O_RDONLY)
        except FileNotFoundError:
            raise self._sources[number].changed() from None
        return self[number]


@contextlib.contextmanager
def _open_when_needed(sources: Sequence[RawSource]) -> Iterator[_Descriptors]:
    descriptors = _Descriptors(sources)
    try:
        yield descriptors
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)
