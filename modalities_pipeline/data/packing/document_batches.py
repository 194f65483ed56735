"""The documents of an indexed raw file in batches: bounded in bytes and in number, read without mapping the file.

A file that is cut while it is mapped kills the process that reads it; a file that is read gives an error.
"""

import dataclasses
import operator
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.jsonl import LargeFileLinesReader
from modalities_pipeline.data.packed.offset_table import OffsetTable
from modalities_pipeline.data.packing.index_coverage import IndexCoverage
from modalities_pipeline.data.packing.text_extraction import BadDocumentError, TextExtractor
from modalities_pipeline.exceptions import DatasetFormatError

_COUNT_BLOCK_IN_BYTES = 1 << 20
_MAX_GAP_IN_BYTES = 64 << 10  # blank or dropped lines within a batch; more is not worth reading over

_NUM_FIRST_IN_SAMPLE = 8
_NUM_SPREAD_IN_SAMPLE = 248
_MAX_SAMPLE_IN_CHARACTERS = 256 << 10
_MIN_SAMPLE_IN_CHARACTERS = 4 << 10
_SAMPLED_SHARE = 1 / 32  # of a small file
_MAX_SAMPLED_LINE_IN_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True)
class DocumentBatch:
    """Documents `start` to `end` of a file.

    Attributes:
        start: position of the first document in the index.
        end: position behind the last.
        texts: of the good documents, in order.
        faults: position in the index and error of each bad one, in order.
    """

    start: int
    end: int
    texts: list[str]
    faults: list[tuple[int, BadDocumentError]]

    def text_positions(self) -> Sequence[int]:
        """The position in the index of each text."""
        if not self.faults:
            return range(self.start, self.end)
        bad = {position for position, _ in self.faults}
        return [position for position in range(self.start, self.end) if position not in bad]


class DocumentBatches:
    """Reads the documents of a raw file through its index, once, in the index' order."""

    def __init__(self, source_path: Path, index_path: Path, extractor: TextExtractor, is_complete: bool = True) -> None:
        """Open the file.

        `is_complete` tells that the index has to list every line that is not blank, which is checked; one that is known
        to leave lines out, or to have them in another order, is followed as it is.

        Raises:
            DatasetNotFoundError: the file or its index does not exist.
            DatasetFormatError: the file is empty, or the index is damaged or points beyond the file's end.
        """
        self.source_path = source_path
        self._index_path = index_path
        self._is_complete = is_complete
        self._extractor = extractor
        with LargeFileLinesReader(source_path, index_path, encoding=None) as reader:
            self._index: OffsetTable = reader.index
        self._file = open(source_path, "rb", buffering=0)  # noqa: SIM115 (closed in close)
        self._num_lines_before = (0, 0)  # (byte offset, line feeds before it)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        """Number of documents."""
        return len(self._index)

    def batches(self, max_documents: int, max_bytes: int) -> Iterator[DocumentBatch]:
        """All documents; a batch holds more than `max_bytes` only if it is a single document.

        Raises:
            DatasetFormatError: the file has become shorter, or the index should be complete and is not.
        """
        size = os.fstat(self._file.fileno()).st_size
        coverage = IndexCoverage(self.source_path, self._index_path, size, self._bytes_at)
        start = 0
        for offsets, lengths in self._index.blocks():
            ends = np.cumsum(lengths)
            first = 0
            while first < len(lengths):
                limit = max_bytes + (int(ends[first - 1]) if first else 0)
                end = min(first + max_documents, max(first + 1, int(np.searchsorted(ends, limit, side="right"))))
                part = slice(first, end)
                if self._is_complete:
                    lines = self._read_whole(offsets[part], lengths[part], coverage, size)
                else:
                    lines = self._read(offsets[part].tolist(), lengths[part].tolist())
                texts, faults = self._extractor.extract_all(lines)
                del lines  # the consumer should not have to hold them beside the texts
                faults = [(start + first + number, error) for number, error in faults]
                yield DocumentBatch(start + first, start + end, texts, faults)
                first = end
            start += len(lengths)
        if self._is_complete:
            coverage.finish()

    def sample(self) -> list[str]:
        """Some of the texts, long ones cut: the first ones, and others spread evenly over the file.

        Their size is bounded, and small beside the file's; bad documents are left out.
        """
        num_documents = len(self)
        size = os.fstat(self._file.fileno()).st_size
        budget = int(min(_MAX_SAMPLE_IN_CHARACTERS, max(_MIN_SAMPLE_IN_CHARACTERS, size * _SAMPLED_SHARE)))
        first = range(min(_NUM_FIRST_IN_SAMPLE, num_documents))
        spread = np.linspace(0, max(num_documents - 1, 0), _NUM_SPREAD_IN_SAMPLE, dtype=np.int64)
        # Not in ascending order, or a budget that is soon used up would never reach the end of the file.
        mixed = np.random.default_rng(0).permutation(np.unique(spread)).tolist() if num_documents else []
        texts: list[str] = []
        for position in dict.fromkeys([*first, *mixed]):
            offset, length = self._index[position]
            if length > _MAX_SAMPLED_LINE_IN_BYTES and texts:
                continue
            found, _ = self._extractor.extract_all(self._read([offset], [length]))
            texts.extend(text[: min(budget, _MAX_SAMPLE_IN_CHARACTERS // 8)] for text in found)
            budget -= len(texts[-1]) if found else 0
            if budget <= 0:
                break
        return texts

    def place_of(self, position: int) -> tuple[int, int]:
        """(physical line number from 1, byte offset) of a document; cheap for ascending positions."""
        offset, _ = self._index[position]
        seen, number = self._num_lines_before if self._num_lines_before[0] <= offset else (0, 0)
        for start in range(seen, offset, _COUNT_BLOCK_IN_BYTES):
            number += self._bytes_at(start, min(_COUNT_BLOCK_IN_BYTES, offset - start)).count(b"\n")
        self._num_lines_before = (offset, number)
        return number + 1, offset

    def _read(self, offsets: list[int], lengths: list[int]) -> list[bytes]:
        """The bytes of lines; those that lie close together are read at once."""
        start, end = min(offsets), max(map(operator.add, offsets, lengths))
        if end - start > sum(lengths) + len(lengths) + _MAX_GAP_IN_BYTES:
            return [self._bytes_at(offset, length) for offset, length in zip(offsets, lengths, strict=True)]
        block = self._bytes_at(start, end - start)
        places = [offset - start for offset in offsets]
        return [block[place : place + length] for place, length in zip(places, lengths, strict=True)]

    def _read_whole(
        self, offsets: NDArray[np.int64], lengths: NDArray[np.int64], coverage: IndexCoverage, size: int
    ) -> list[bytes]:
        """The bytes of lines that follow each other, and check that they do."""
        start, end = int(offsets[0]), min(int(offsets[-1] + lengths[-1]) + 1, size)
        if len(offsets) > 1 and end - start > int(lengths.sum()) + len(lengths) + _MAX_GAP_IN_BYTES:
            ones = (slice(position, position + 1) for position in range(len(offsets)))
            return [self._read_whole(offsets[one], lengths[one], coverage, size)[0] for one in ones]
        block = self._bytes_at(start, max(end - start, 0))
        coverage.add(offsets, lengths, block)
        places = (offsets - start).tolist()
        return [block[place : place + length] for place, length in zip(places, lengths.tolist(), strict=True)]

    def _bytes_at(self, offset: int, length: int) -> bytes:
        """A part of the file; the system may give it in pieces."""
        parts = []
        while length:
            part = os.pread(self._file.fileno(), length, offset)
            if not part:
                raise DatasetFormatError(
                    f"{self.source_path} became shorter while it was read. Run again when nothing writes to it."
                )
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
