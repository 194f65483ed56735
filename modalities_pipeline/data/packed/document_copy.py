"""Copies documents of packed files into a new one, in any order, in memory that does not depend on their size."""

from __future__ import annotations

import itertools
import logging
import resource
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.manifest import BuildResult
from modalities_pipeline.data.packed.packed_file_writer import PackedFileWriter
from modalities_pipeline.data.packed.packed_inputs import packed_details
from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.data.progress_log import ProgressLog

logger = logging.getLogger(__name__)

_Numbers = NDArray[np.signedinteger[Any]]
_Positions = NDArray[np.integer[Any]]

_BATCH_IN_DOCUMENTS = 1000
_MAX_BATCH_IN_BYTES = 256 << 10  # what is joined, hashed and written stays within a core's own cache
_BATCH_OF_MANY_FILES_IN_DOCUMENTS = 20_000  # so that one opening of a file serves several documents
_MAX_BATCH_OF_MANY_FILES_IN_BYTES = 16 << 20
_SUM_BLOCK_IN_DOCUMENTS = 65_536
_MAX_MAPPED_FILES = 10_000


class Share(NamedTuple):
    """Documents `start` to `end` of a file."""

    file: PackedFile
    start: int
    end: int

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return self.end - self.start


def whole(file: PackedFile) -> Share:
    """All documents of a file."""
    return Share(file, 0, file.num_documents)


def write_documents(shares: Sequence[Share], order: _Positions, title: str, output_path: Path) -> BuildResult:
    """Write documents of packed files into a new one, as they are.

    Args:
        shares: where the documents come from.
        order: positions in the sequence of the documents of all shares, shape (n,).
        title: of the progress shown.
        output_path: the new file.

    Raises:
        DatasetFormatError: an index is damaged, or a file was cut off while it was read.
        UserError: token sizes or tokenizers differ.
    """
    details = packed_details([share.file for share in shares])
    copier = _DocumentCopier(shares)
    with (
        PackedFileWriter(output_path, details["token_size_in_bytes"], copier.size_in_bytes(order)) as writer,
        ProgressLog(logger, title, len(order), "documents") as progress,
    ):
        for batch in copier.batches(order):
            writer.write_bytes(copier.documents(batch))
            progress.update(writer.num_documents)
    counts = {"num_documents": writer.num_documents, "num_tokens": writer.num_tokens}
    return BuildResult(dict(counts), details, output_digest=writer.digest)


class _DocumentCopier:
    """Gives documents by their position in the sequence of the documents of all shares.

    Files are mapped into memory all at once if the limit of open files allows it (a mapped file counts as open), else
    one after the other in every batch.
    """

    def __init__(self, shares: Sequence[Share]) -> None:
        self._files = [share.file for share in shares]
        self._ends = np.cumsum([share.num_documents for share in shares])
        self._maps_all = len(shares) <= _max_mapped_files()
        extents = [_extents(share, is_alone=len(shares) == 1) for share in shares]
        self._offsets = _joined([offsets for offsets, _ in extents])
        self._lengths = _joined([lengths for _, lengths in extents])
        self._contents = [file.data for file in self._files] if self._maps_all else []

    def size_in_bytes(self, order: _Positions) -> int:
        """Of all documents at these positions together."""
        self._check_lengths([0])
        blocks = range(0, len(order), _SUM_BLOCK_IN_DOCUMENTS)
        return sum(
            int(self._lengths[order[start : start + _SUM_BLOCK_IN_DOCUMENTS]].sum(dtype=np.int64)) for start in blocks
        )

    def batches(self, order: _Positions) -> Iterator[_Positions]:
        """Parts of the order, bounded in documents and (but for a single huge document) in bytes."""
        max_documents, max_bytes = (
            (_BATCH_IN_DOCUMENTS, _MAX_BATCH_IN_BYTES)
            if self._maps_all
            else (_BATCH_OF_MANY_FILES_IN_DOCUMENTS, _MAX_BATCH_OF_MANY_FILES_IN_BYTES)
        )
        start = 0
        while start < len(order):
            self._check_lengths([0])
            part = order[start : start + max_documents]
            ends = np.cumsum(self._lengths[part], dtype=np.int64)
            part = part[: max(1, int(np.searchsorted(ends, max_bytes, side="right")))]
            yield part
            start += len(part)

    def documents(self, batch: _Positions) -> list[memoryview] | list[bytes]:
        """The documents of a batch, in its order."""
        numbers = np.searchsorted(self._ends, batch, side="right")
        self._check_lengths([0] if len(self._files) == 1 else set(numbers.tolist()))
        offsets, lengths = self._offsets[batch].tolist(), self._lengths[batch].tolist()
        if self._maps_all:
            places = zip(numbers.tolist(), offsets, lengths, strict=True)
            return [self._contents[number][offset : offset + length] for number, offset, length in places]
        documents = [b""] * len(batch)
        by_file = np.argsort(numbers, kind="stable")
        for number, positions in itertools.groupby(by_file.tolist(), key=numbers.tolist().__getitem__):
            with self._files[number] as file:
                for position in positions:
                    offset = offsets[position]
                    documents[position] = bytes(file.data[offset : offset + lengths[position]])
        return documents

    def _check_lengths(self, numbers: Iterable[int]) -> None:
        """Check files of which documents or, where there is only one file, its index is read next."""
        if self._maps_all:
            for number in numbers:
                self._files[number].check_length()


def _max_mapped_files() -> int:
    """Half of the files that this process may have open; the rest is for others."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_MAPPED_FILES if limit == resource.RLIM_INFINITY else min(limit // 2, _MAX_MAPPED_FILES)


def _extents(share: Share, is_alone: bool) -> tuple[_Numbers, _Numbers]:
    """Offsets and lengths of the documents of a share, shape (n,); where there are more shares, they are small copies.

    The index of thousands of files must not stay in memory for the sake of a share of each.
    """
    share.file.check_index()
    index = share.file.index
    part = slice(share.start, share.end)
    if is_alone:
        return index.offsets[part], index.lengths[part]
    is_small = share.file.data_length_in_bytes <= np.iinfo(np.int32).max
    dtype: np.dtype[np.signedinteger[Any]] = np.dtype(np.int32 if is_small else np.int64)
    extents = index.offsets[part].astype(dtype), index.lengths[part].astype(dtype)
    share.file.close()
    return extents


def _joined(parts: list[_Numbers]) -> _Numbers:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
