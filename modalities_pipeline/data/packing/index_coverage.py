"""Whether an index lists every line of a raw file: one that does not would lose documents without a word.

An index that this pipeline made knows its source's digest. Others know nothing, and the file may have got more lines,
or other ones, after it was indexed. What the entries say is compared with the file's own line ends while it is read.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.exceptions import DatasetFormatError

_GAP_BLOCK_IN_BYTES = 1 << 20
_LF = 0x0A


class IndexCoverage:
    """Follows the entries of an index through the file, in order.

    Every entry has to start where a line starts and end where it ends, and between entries only blank lines may lie.
    """

    def __init__(
        self, source_path: Path, index_path: Path, size_in_bytes: int, read: Callable[[int, int], bytes]
    ) -> None:
        """Begin at the start of a file of this size; `read(offset, length)` gives its bytes."""
        self._source_path = source_path
        self._index_path = index_path
        self._size_in_bytes = size_in_bytes
        self._read = read
        self._covered_in_bytes = 0

    def add(self, offsets: NDArray[np.int64], lengths: NDArray[np.int64], block: bytes) -> None:
        """Check the next entries; `block` reaches from the first one's start to the last one's line end.

        Raises:
            DatasetFormatError: an entry is no line, or lines that are not blank lie between them.
        """
        ends = offsets + lengths
        expected = np.concatenate(([self._covered_in_bytes], ends[:-1] + 1))
        gaps = offsets - expected
        if (gaps < 0).any():
            raise self._wrong(int(offsets[int(np.argmax(gaps < 0))]), "the entries are not in order")
        num_line_ends_in_gaps = 0
        for position in np.flatnonzero(gaps).tolist():
            number = self._check_gap(int(expected[position]), int(offsets[position]))
            num_line_ends_in_gaps += number if position else 0  # the first gap lies before the block
        self._check_ends(ends, block, int(offsets[0]))
        num_line_ends = block.count(b"\n") - num_line_ends_in_gaps
        if num_line_ends != len(ends) - (int(ends[-1]) == self._size_in_bytes):
            raise self._wrong(int(offsets[0]), "an entry holds more than one line")
        self._covered_in_bytes = int(ends[-1]) + 1

    def finish(self) -> None:
        """Check what lies behind the last entry.

        Raises:
            DatasetFormatError: lines that are not blank.
        """
        if self._covered_in_bytes < self._size_in_bytes:
            self._check_gap(self._covered_in_bytes, self._size_in_bytes)

    def _check_ends(self, ends: NDArray[np.int64], block: bytes, start: int) -> None:
        inner = ends[ends < self._size_in_bytes]
        is_line_end = np.frombuffer(block, dtype=np.uint8)[inner - start] == _LF
        if not is_line_end.all():
            raise self._wrong(int(inner[int(np.argmin(is_line_end))]), "an entry ends there, but no line")

    def _check_gap(self, start: int, end: int) -> int:
        """The number of line ends between two entries, where only whole blank lines may lie."""
        num_line_ends, last = 0, b"\n"
        for offset in range(start, end, _GAP_BLOCK_IN_BYTES):
            last = self._read(offset, min(_GAP_BLOCK_IN_BYTES, end - offset))
            if not last.isspace():
                raise self._wrong(start, "a line begins there that it does not list")
            num_line_ends += last.count(b"\n")
        if not last.endswith(b"\n") and end != self._size_in_bytes:
            raise self._wrong(end, "an entry starts within a line")
        return num_line_ends

    def _wrong(self, offset: int, what: str) -> DatasetFormatError:
        return DatasetFormatError(
            f"{self._index_path} does not fit {self._source_path} (byte {offset}: {what}): the file changed after it "
            "was indexed, or faulty lines were left out. Create the raw index again with the file existence policy "
            "'override' (and with on_bad_sample: skip, if the file has faulty lines)."
        )
