"""Datasets of packed files: by document, in blocks of equal length, and in blocks that begin with a document."""

import array
import bisect
import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.pbin import PackedFile
from modalities_pipeline.dataloading.datasets import Dataset, Sample, checked_position
from modalities_pipeline.exceptions import DatasetFormatError, UserError

# torch has no unsigned 16 and 32 bit integers worth the name: tokens get the next signed type. Bytes stay bytes, as in
# Modalities; collators turn them into what embeddings take.
_SAMPLE_DTYPES: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.int32), 4: np.dtype(np.int64)}


class PackedMemMapDatasetBase(Dataset):
    """The documents of a packed file, each a sample of its own length.

    Arrays are copies, uint8, int32 or int64 for tokens of 1, 2 or 4 bytes. Subclasses give other samples by
    overriding `__len__`, `_read` and `_read_batch`.
    """

    def __init__(self, raw_data_path: Path, sample_key: str, load_index: bool = True) -> None:
        """Open the file.

        Args:
            raw_data_path: the `.pbin` file.
            sample_key: name of the tokens in a sample.
            load_index: whether to read the index of documents, without which there is no document to be had.

        Raises:
            DatasetNotFoundError: there is no such file.
            DatasetFormatError: it is no packed file, or its index is damaged.
        """
        super().__init__(Path(raw_data_path), sample_key)
        self._arguments: tuple[Any, ...] = (raw_data_path, sample_key, load_index)
        self._file = PackedFile(self.raw_data_path)
        self._dtype = _SAMPLE_DTYPES[self._file.token_size_in_bytes]
        self._num_documents = self._file.num_documents if load_index else None

    def __reduce__(self) -> tuple[type["PackedMemMapDatasetBase"], tuple[Any, ...]]:
        """Data loader workers that are spawned open the file themselves instead of receiving its content."""
        return type(self), self._arguments

    def __len__(self) -> int:
        """Number of documents.

        Raises:
            UserError: the index was not loaded.
        """
        if self._num_documents is None:
            raise UserError(f"{self.raw_data_path} was opened without its index (load_index is False).")
        return self._num_documents

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> dict[str, list[np.ndarray]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        """One sample {sample_key: tokens of shape (length,)}, or for a slice {sample_key: list of such arrays}.

        Negative indices count from the end; a slice that reaches too far ends where the samples do.

        Raises:
            IndexError: there is no such sample.
            ValueError: the slice has a step other than 1.
        """
        if not isinstance(index, slice):
            return {self.sample_key: self._read(operator.index(index))}
        if index.step not in (None, 1):
            raise ValueError(f"Slices of step {index.step} are not supported, only of step 1.")
        positions = range(*index.indices(len(self)))
        return {self.sample_key: list(self._read_batch(positions)) if positions else []}

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """The samples of a batch, read at once; torch's data loader prefers it to one call per sample."""
        return [{self.sample_key: tokens} for tokens in self._read_batch(indices)]

    def _read(self, position: int) -> np.ndarray:
        return self._file.document(checked_position(position, len(self))).astype(self._dtype)

    def _read_batch(self, positions: Sequence[int]) -> Sequence[np.ndarray] | np.ndarray:
        return [self._read(position) for position in positions]

    def _windows(self, block_size_in_tokens: int) -> NDArray[np.unsignedinteger[Any]]:
        """View of all stretches of this many tokens, shape (their number, block size), one per token to begin with."""
        num_tokens = self._file.num_tokens
        if num_tokens < block_size_in_tokens:
            raise DatasetFormatError(
                f"{self.raw_data_path} has {num_tokens} tokens, but one sample needs {block_size_in_tokens}. Use more "
                "data, or a smaller sequence_length."
            )
        return np.lib.stride_tricks.sliding_window_view(self._file.tokens, block_size_in_tokens)


class PackedMemMapDatasetContinuous(PackedMemMapDatasetBase):
    """The tokens of a packed file cut into blocks of equal length, regardless of documents; the tail is dropped.

    With `reuse_last_target` a block has sequence_length + 1 tokens and begins with the last token of the block before,
    so that every token but the first is a target once. Without it blocks have sequence_length tokens and do not
    overlap.
    """

    def __init__(
        self, raw_data_path: Path, sequence_length: int, sample_key: str, reuse_last_target: bool = True
    ) -> None:
        """Open the file; its index of documents is not read.

        Raises:
            UserError: the sequence length is smaller than 2.
            DatasetNotFoundError: there is no such file.
            DatasetFormatError: it is no packed file, or has fewer tokens than one block.
        """
        _refuse_short_sequences(sequence_length)
        super().__init__(raw_data_path, sample_key, load_index=False)
        self._arguments = (raw_data_path, sequence_length, sample_key, reuse_last_target)
        self.sequence_length = sequence_length
        self.reuse_last_target = reuse_last_target
        self._blocks = self._windows(sequence_length + reuse_last_target)[::sequence_length]

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._blocks)

    def _read(self, position: int) -> np.ndarray:
        return self._blocks[position].astype(self._dtype)

    def _read_batch(self, positions: Sequence[int]) -> np.ndarray:
        return self._blocks[np.asarray(positions, dtype=np.int64)].astype(self._dtype)


class PackedMemMapDatasetMegatron(PackedMemMapDatasetBase):
    """Blocks of equal length that all begin with the start of a document.

    With B = sequence_length + 1, of which the collator makes sequence_length inputs and as many targets:

    * A block is the B tokens from the start of a document on, so it may hold several documents, and the last of them
      may be cut by the block's end.
    * The next block begins with the document that was cut, or that would have followed: what a block has seen of a
      cut document is seen again, from its start.
    * A document longer than B tokens is cut: its first B tokens are a block, the rest is never seen.
    * Blocks share no token on purpose: a document's first token has nothing before it to be predicted from. Documents
      at the end that do not fill a block are dropped. Empty documents are passed over.

    For example documents `a a a . | b b . | c .` and B = 5 give the blocks `a a a . b` and `b b . c .`.

    Modalities has this dataset, too, but it cannot be built there from a config, and reads at wrong offsets.
    """

    def __init__(self, raw_data_path: Path, sequence_length: int, sample_key: str) -> None:
        """Open the file and find the blocks; 8 bytes of memory per block.

        Raises:
            UserError: the sequence length is smaller than 2.
            DatasetNotFoundError: there is no such file.
            DatasetFormatError: it is no packed file, its documents are not back to back, or they do not fill one block.
        """
        _refuse_short_sequences(sequence_length)
        super().__init__(raw_data_path, sample_key)
        self._arguments = (raw_data_path, sequence_length, sample_key)
        self.sequence_length = sequence_length
        block_size = sequence_length + 1
        self._all_windows = self._windows(block_size)
        self._starts = _block_starts(self._file, block_size)
        if not len(self._starts):
            raise DatasetFormatError(
                f"{raw_data_path}: no document is followed by the {block_size} tokens that one sample needs. Use more "
                "data, or a smaller sequence_length."
            )

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._starts)

    def _read(self, position: int) -> np.ndarray:
        return self._all_windows[self._starts[position]].astype(self._dtype)

    def _read_batch(self, positions: Sequence[int]) -> np.ndarray:
        return self._all_windows[self._starts[np.asarray(positions, dtype=np.int64)]].astype(self._dtype)


def _refuse_short_sequences(sequence_length: int) -> None:
    if sequence_length < 2:
        raise UserError(f"sequence_length has to be at least 2, not {sequence_length}.")


def _block_starts(file: PackedFile, block_size_in_tokens: int) -> NDArray[np.int64]:
    """Positions, in tokens, of the blocks described at `PackedMemMapDatasetMegatron`; int64 of shape (blocks,)."""
    file.check_index()
    starts = array.array("q")
    searched = 0  # the next block begins with the document that holds this token
    for document_starts, document_ends in _documents_in_tokens(file):
        while (number := bisect.bisect_right(document_ends, searched)) < len(document_ends):
            if starts and document_starts[number] == starts[-1]:
                searched = document_ends[number]  # the document was longer than the block
                continue
            start = document_starts[number]
            searched = start + block_size_in_tokens
            if searched > file.num_tokens:
                break
            starts.append(start)
    return np.frombuffer(starts, dtype=np.int64)


def _documents_in_tokens(file: PackedFile) -> Iterator[tuple[list[int], list[int]]]:
    """Starts and ends, in tokens, of all documents that are not empty, in blocks of the index."""
    last_end = None
    for offsets, lengths in file.index.blocks():
        offsets, lengths = offsets[lengths > 0], lengths[lengths > 0]
        if not len(offsets):
            continue
        ends = offsets + lengths
        befores = np.append(offsets[0] if last_end is None else last_end, ends[:-1])
        if (befores != offsets).any():
            number = int(np.flatnonzero(befores != offsets)[0])
            raise DatasetFormatError(
                f"{file.path}: the documents are not back to back (one ends at byte {befores[number]} of the data, "
                f"the next starts at {offsets[number]}), so blocks of several documents cannot be read. Pack or merge "
                "the file again."
            )
        last_end = int(ends[-1])
        yield (offsets // file.token_size_in_bytes).tolist(), (ends // file.token_size_in_bytes).tolist()
