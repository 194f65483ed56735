"""The `.pbin` format: tokenized documents and an index of them at the end. Sole owner of its layout.

| bytes      | content                                                                                        |
|------------|------------------------------------------------------------------------------------------------|
| 0..7       | u64, length L of the data section in bytes                                                     |
| 8..11      | u32, token size in bytes: 1, 2 or 4                                                            |
| 12..12+L-1 | tokens of all documents, unsigned little-endian                                                |
| 12+L..     | offset table: (offset, length) per document in bytes, offsets relative to the data section     |
"""

import array
import functools
import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.offset_table import (
    OffsetTable,
    decode_offset_table,
    encode_offset_table,
)
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError, UserError

_HEADER = struct.Struct("<QI")
_TOKEN_DTYPES: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
_WRITE_BUFFER_IN_BYTES = 1 << 20
_COPY_BLOCK_IN_BYTES = 16 << 20


def token_size_for_vocab(vocab_size: int) -> int:
    """Bytes per token that hold all ids below `vocab_size`: 1, 2 or 4 (and 4 for a vocabulary of one, as Modalities).

    Raises:
        UserError: the vocabulary is empty or has more than 2^32 tokens.
    """
    if vocab_size < 1:
        raise UserError(f"A vocabulary needs at least one token, this one has {vocab_size}.")
    if vocab_size == 1:
        return 4
    for size in _TOKEN_DTYPES:
        if vocab_size <= 1 << (8 * size):
            return size
    raise UserError(f"A vocabulary of {vocab_size} tokens does not fit 4 bytes per token, the largest size of a .pbin.")


class PackedFile:
    """A `.pbin` file opened for reading through a memory map; its structure is checked on opening.

    Attributes:
        path: the file.
        token_size_in_bytes: 1, 2 or 4.
        data_length_in_bytes: length of the data section.
        tokens: all tokens, shape (num_tokens,), dtype `<u1`, `<u2` or `<u4`; a read-only view of the file.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            DatasetNotFoundError: there is no such file.
            DatasetFormatError: it is not a complete `.pbin` file.
        """
        self.path = Path(path)
        if not self.path.is_file():
            raise DatasetNotFoundError(f"{self.path} does not exist or is not a file.")
        size = self.path.stat().st_size
        if size < _HEADER.size:
            raise DatasetFormatError(f"{self.path} has {size} bytes, fewer than a .pbin header. Build it again.")
        content = np.memmap(self.path, dtype=np.uint8, mode="r").view(np.ndarray)
        self.data_length_in_bytes, self.token_size_in_bytes = _HEADER.unpack(content[: _HEADER.size].tobytes())
        self._check_header(size)
        data_end = _HEADER.size + self.data_length_in_bytes
        self._data: NDArray[np.uint8] = content[_HEADER.size : data_end]
        self._index_content: NDArray[np.uint8] = content[data_end:]
        self.tokens: NDArray[np.unsignedinteger[Any]] = self._data.view(_TOKEN_DTYPES[self.token_size_in_bytes])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type["PackedFile"], tuple[Path]]:
        """Data loader workers that are spawned open the file themselves instead of receiving its content."""
        return type(self), (self.path,)

    def close(self) -> None:
        """Let go of the file; views handed out keep their part of the mapping alive."""
        empty = np.empty(0, dtype=np.uint8)
        self._data, self._index_content = empty, empty
        self.tokens = empty.view(_TOKEN_DTYPES[self.token_size_in_bytes])

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the data section."""
        return self.data_length_in_bytes // self.token_size_in_bytes

    @property
    def num_documents(self) -> int:
        """Number of documents in the index."""
        return len(self.index)

    @functools.cached_property
    def index(self) -> OffsetTable:
        """(offset, length) of every document in bytes within the data section, int64 of shape (num_documents, 2).

        Raises:
            DatasetFormatError: the index is damaged, or its entries do not lie within the data section.
        """
        index = decode_offset_table(self._index_content.data, self.path)
        self._check_index(index)
        return index

    def document(self, position: int) -> NDArray[np.unsignedinteger[Any]]:
        """The tokens of one document, shape (length,), as a read-only view; negative positions count from the end."""
        offset, length = self.index[position].tolist()
        start = offset // self.token_size_in_bytes
        return self.tokens[start : start + length // self.token_size_in_bytes]

    def document_bytes(self, position: int) -> memoryview:
        """The tokens of one document as they are in the file."""
        offset, length = self.index[position].tolist()
        return self.data[offset : offset + length]

    @property
    def data(self) -> memoryview:
        """The whole data section as bytes."""
        return self._data.data

    def _check_header(self, size: int) -> None:
        if self.token_size_in_bytes not in _TOKEN_DTYPES:
            raise DatasetFormatError(
                f"{self.path}: the header says {self.token_size_in_bytes} bytes per token; only 1, 2 and 4 exist. "
                "It is not a .pbin file, or damaged: build it again."
            )
        if _HEADER.size + self.data_length_in_bytes >= size:
            raise DatasetFormatError(
                f"{self.path}: the header promises {self.data_length_in_bytes} bytes of tokens and an index, but the "
                f"file has only {size} bytes. It was cut off: build it again."
            )
        if self.data_length_in_bytes % self.token_size_in_bytes:
            raise DatasetFormatError(
                f"{self.path}: {self.data_length_in_bytes} bytes of data are no multiple of the token size "
                f"{self.token_size_in_bytes}. The file is damaged: build it again."
            )

    def _check_index(self, index: OffsetTable) -> None:
        if not len(index):
            return
        ends = index.sum(axis=1)
        if index[0, 0] == _HEADER.size and ends[-1] == self.data_length_in_bytes + _HEADER.size:
            raise DatasetFormatError(
                f"{self.path}: its document offsets count from the start of the file, as very old versions of "
                "Modalities wrote them. Pack the source again."
            )
        for wrong, reason in (
            (ends > self.data_length_in_bytes, "lies beyond the data section"),
            ((index % self.token_size_in_bytes).any(axis=1), "cuts a token in two"),
        ):
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise DatasetFormatError(
                    f"{self.path}: document {row} at {tuple(index[row].tolist())} {reason}. If Modalities merged this "
                    "file, merge its inputs again; otherwise build it again."
                )


class PackedFileWriter:
    """Writes a `.pbin` document by document; memory holds 16 bytes per document.

    The header is written on `close`, so a file that was not finished is not readable. Leaving the `with` block through
    an exception does not finish the file.
    """

    def __init__(self, path: Path, token_size_in_bytes: int) -> None:
        """Start a file, replacing an existing one.

        Raises:
            UserError: the token size is not 1, 2 or 4.
        """
        if token_size_in_bytes not in _TOKEN_DTYPES:
            raise UserError(f"{path}: a token takes 1, 2 or 4 bytes in a .pbin file, not {token_size_in_bytes}.")
        self.token_size_in_bytes = token_size_in_bytes
        self._path = path
        self._dtype = _TOKEN_DTYPES[token_size_in_bytes]
        self._largest_id = int(np.iinfo(self._dtype).max)
        self._offsets = array.array("q")
        self._lengths = array.array("q")
        self._data_length_in_bytes = 0
        self._file = open(path, "wb", buffering=_WRITE_BUFFER_IN_BYTES)  # noqa: SIM115 (closed in close)
        self._file.write(bytes(_HEADER.size))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()

    @property
    def num_documents(self) -> int:
        """Documents written so far."""
        return len(self._lengths)

    @property
    def num_tokens(self) -> int:
        """Tokens written so far."""
        return self._data_length_in_bytes // self.token_size_in_bytes

    def write_document(self, token_ids: Sequence[int] | NDArray[np.integer[Any]]) -> None:
        """Append one document.

        Raises:
            DatasetFormatError: an id is negative or does not fit the token size.
        """
        ids = np.asarray(token_ids, dtype=None if len(token_ids) else self._dtype)
        if not np.issubdtype(ids.dtype, np.integer):
            raise DatasetFormatError(
                f"{self._path}: token ids must be integers, document {self.num_documents} has {ids.dtype}."
            )
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) <= self._largest_id:
            raise DatasetFormatError(
                f"{self._path}: document {self.num_documents} has token ids from {ids.min()} to {ids.max()}, but "
                f"{self.token_size_in_bytes} bytes per token hold 0 to {self._largest_id}."
            )
        self.write_bytes([ids.astype(self._dtype).data])

    def write_bytes(self, documents: Sequence[bytes | memoryview]) -> None:
        """Append documents that are already encoded with this file's token size.

        Raises:
            DatasetFormatError: a document is no whole number of tokens.
        """
        for document in documents:
            num_bytes = len(document) if isinstance(document, bytes) else document.nbytes
            if num_bytes % self.token_size_in_bytes:
                raise DatasetFormatError(
                    f"{self._path}: document {self.num_documents} has {num_bytes} bytes, no whole number of tokens of "
                    f"{self.token_size_in_bytes} bytes."
                )
            self._offsets.append(self._data_length_in_bytes)
            self._lengths.append(num_bytes)
            self._data_length_in_bytes += num_bytes
        self._file.write(b"".join(documents))

    def write_file(self, file: PackedFile) -> None:
        """Append all documents of a file of the same token size; its data section is copied as it is.

        Raises:
            DatasetFormatError: the file's token size is another one.
        """
        if file.token_size_in_bytes != self.token_size_in_bytes:
            raise DatasetFormatError(
                f"{file.path} has {file.token_size_in_bytes} bytes per token, {self._path} has "
                f"{self.token_size_in_bytes}."
            )
        self._offsets.extend((file.index[:, 0] + self._data_length_in_bytes).tolist())
        self._lengths.extend(file.index[:, 1].tolist())
        for start in range(0, file.data_length_in_bytes, _COPY_BLOCK_IN_BYTES):
            self._file.write(file.data[start : start + _COPY_BLOCK_IN_BYTES])
        self._data_length_in_bytes += file.data_length_in_bytes

    def close(self) -> None:
        """Write the index and the header."""
        self._file.write(encode_offset_table(np.array([self._offsets, self._lengths], dtype=np.int64).T))
        self._file.seek(0)
        self._file.write(_HEADER.pack(self._data_length_in_bytes, self.token_size_in_bytes))
        self._file.close()
