"""The index of a packed file: gathered while documents are written, and checked when it is read."""

from __future__ import annotations

import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.packed.offset_table import OffsetTable
from modalities_pipeline.data.packed.pbin_layout import HEADER
from modalities_pipeline.exceptions import DatasetFormatError

_BLOCK_IN_DOCUMENTS = 65_536


class IndexedFile(Protocol):
    """What has an index that is there again after it was closed."""

    @property
    def index(self) -> OffsetTable:
        """(offset, length) of every document."""

    def close(self) -> None:
        """Let go of what is held in memory until it is asked for again."""


class DocumentIndexBuilder:
    """(Offset, length) of documents that follow one another in a data section; offsets are 64-bit.

    Holds 8 bytes per document added by its length, and nothing per document of a file that is added as a whole.
    """

    def __init__(self) -> None:
        self.num_bytes = 0
        self._num_documents = 0
        self._parts: list[tuple[int, IndexedFile | array.array[int]]] = []  # (start in the data section, content)
        self._run: array.array[int] | None = None  # the last part, where that is a run of lengths

    def __len__(self) -> int:
        return self._num_documents

    def extend(self, lengths: Sequence[int] | NDArray[np.int64]) -> None:
        """Add documents by their lengths in bytes."""
        if self._run is None:
            self._run = array.array("q")
            self._parts.append((self.num_bytes, self._run))
        if isinstance(lengths, np.ndarray):
            self._run.frombytes(lengths.astype(np.int64).tobytes())
            self.num_bytes += int(lengths.sum(dtype=np.int64))
        else:
            self._run.extend(lengths)
            self.num_bytes += sum(lengths)
        self._num_documents += len(lengths)

    def append_file(self, file: IndexedFile, num_bytes: int) -> None:
        """Add the documents of a whole data section of `num_bytes` bytes, whose index counts from its start."""
        self._run = None
        self._parts.append((self.num_bytes, file))
        self._num_documents += len(file.index)
        self.num_bytes += num_bytes
        file.close()

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Offsets and lengths, int64, block by block."""
        for start, part in self._parts:
            if isinstance(part, array.array):
                yield from _running_sums(part, start)
                continue
            for offsets, lengths in part.index.blocks():
                yield offsets + start, lengths
            part.close()


def _running_sums(lengths: array.array[int], start: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    for first in range(0, len(lengths), _BLOCK_IN_DOCUMENTS):
        block = np.array(lengths[first : first + _BLOCK_IN_DOCUMENTS], dtype=np.int64)
        ends = start + np.cumsum(block)
        yield ends - block, block
        start = int(ends[-1])


def check_extent(
    path: Path, position: int, extent: tuple[int, int], data_length_in_bytes: int, token_size_in_bytes: int
) -> None:
    """Raise `DatasetFormatError` if a document's (offset, length) leaves the data section or cuts a token in two."""
    offset, length = extent
    if offset < 0 or length < 0:
        fault = "is negative"
    elif offset + length > data_length_in_bytes:
        fault = f"lies beyond the {data_length_in_bytes} bytes of the data section"
    elif offset % token_size_in_bytes or length % token_size_in_bytes:
        fault = f"cuts a token of {token_size_in_bytes} bytes in two"
    else:
        return
    raise DatasetFormatError(
        f"{path}: the index entry of document {position}, (offset {offset}, length {length}), {fault}. If Modalities "
        "merged this file, repair it or merge its inputs again; otherwise build it again."
    )


def check_documents(path: Path, table: OffsetTable, data_length_in_bytes: int, token_size_in_bytes: int) -> None:
    """Check the whole index of a file, in bounded memory.

    Raises:
        DatasetFormatError: `check_extent` refuses a document, or Modalities' merge made the file and its offsets are
            too low, although they lie within the data.
    """
    start = 0
    for offsets, lengths in table.blocks():
        wrong = (offsets < 0) | (lengths < 0)
        wrong |= (offsets > data_length_in_bytes) | (lengths > data_length_in_bytes - offsets)
        wrong |= ((offsets | lengths) & (token_size_in_bytes - 1)) != 0  # token sizes are powers of two
        if wrong.any():
            row = int(np.argmax(wrong))
            extent = int(offsets[row]), int(lengths[row])
            check_extent(path, start + row, extent, data_length_in_bytes, token_size_in_bytes)
        start += len(offsets)
    if is_shifted_by_merge(table, data_length_in_bytes):
        raise DatasetFormatError(
            f"{path} was merged by Modalities, which writes the offsets of the second and later inputs too low: its "
            "documents would be cut at wrong places. Repair it, or merge its inputs again."
        )


def is_shifted_by_merge(table: OffsetTable, data_length_in_bytes: int) -> bool:
    """Whether offsets are too low in the way of Modalities' merge: by 12 bytes, the header, per preceding input.

    Documents lie back to back and fill the data section in truth, so their offsets are the running sums of their
    lengths. Merging merged files again adds such shifts up.
    """
    start, is_shifted = 0, False
    for offsets, lengths in table.blocks():
        if (lengths < 0).any():
            return False
        ends = start + np.cumsum(lengths)
        shifts = (ends - lengths - offsets)[(lengths > 0) | (offsets < 0)]  # an empty document may lie anywhere
        if (shifts < 0).any() or (shifts % HEADER.size).any():
            return False
        is_shifted |= bool(shifts.any())
        start = int(ends[-1])
    return is_shifted and start == data_length_in_bytes


def relative_to_data(path: Path, table: OffsetTable, data_length_in_bytes: int) -> OffsetTable:
    """A table whose offsets count from the data section, also if they count from the start of the file.

    Very old versions of Modalities wrote the latter: the first document follows the header, the last one ends with the
    data section.

    Raises:
        DatasetFormatError: first and last entry say so, but others do not fit.
    """
    if not len(table) or table[0][0] != HEADER.size or sum(table[-1]) != data_length_in_bytes + HEADER.size:
        return table
    shifted = OffsetTable.from_arrays(table.offsets.astype(np.int64) - HEADER.size, table.lengths)
    try:
        check_documents(path, shifted, data_length_in_bytes, 1)
    except DatasetFormatError as error:
        raise DatasetFormatError(
            f"{path}: first and last document are counted from the start of the file, as very old versions of "
            f"Modalities did, but not all are ({error}). Pack the source again."
        ) from error
    return shifted
