"""Writes `.pbin` files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.packed.document_index import DocumentIndexBuilder
from modalities_pipeline.data.packed.hashed_file import HashedFile
from modalities_pipeline.data.packed.offset_table import write_offset_table
from modalities_pipeline.data.packed.pbin_layout import HEADER, TOKEN_DTYPES
from modalities_pipeline.exceptions import DatasetFormatError, UserError

if TYPE_CHECKING:
    from modalities_pipeline.data.pbin import PackedFile

_WRITE_BUFFER_IN_BYTES = 128 << 10
_MAX_JOIN_IN_BYTES = 8 << 20


class PackedFileWriter:
    """Writes a `.pbin` file; memory holds 8 bytes per document.

    Leaving the `with` block through an exception does not finish the file, so it is not readable.

    Attributes:
        token_size_in_bytes: 1, 2 or 4.
        dtype: of the tokens, `<u1`, `<u2` or `<u4`.
        digest: of the finished file, if the length of its data was known beforehand; else None.
    """

    def __init__(self, path: Path, token_size_in_bytes: int, data_length_in_bytes: int | None = None) -> None:
        """Start a file, replacing an existing one.

        Args:
            path: the file.
            token_size_in_bytes: 1, 2 or 4.
            data_length_in_bytes: length of all documents together. If it is given, the file is written from beginning
                to end and hashed on the way; otherwise the header is written last.

        Raises:
            UserError: the token size is not 1, 2 or 4.
        """
        if token_size_in_bytes not in TOKEN_DTYPES:
            raise UserError(f"{path}: a token takes 1, 2 or 4 bytes in a .pbin file, not {token_size_in_bytes}.")
        self.token_size_in_bytes = token_size_in_bytes
        self.dtype = TOKEN_DTYPES[token_size_in_bytes]
        self._path = path
        self._index = DocumentIndexBuilder()
        self.digest: str | None = None
        self._data_length_in_bytes = data_length_in_bytes
        self._file: BinaryIO
        if data_length_in_bytes is None:
            self._file = open(path, "wb", buffering=_WRITE_BUFFER_IN_BYTES)  # noqa: SIM115 (closed in close)
            self._file.write(bytes(HEADER.size))
        else:
            self._file = HashedFile(path, _WRITE_BUFFER_IN_BYTES)
            self._file.write(HEADER.pack(data_length_in_bytes, token_size_in_bytes))

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
        return len(self._index)

    @property
    def num_tokens(self) -> int:
        """Tokens written so far."""
        return self._index.num_bytes // self.token_size_in_bytes

    def write_document(self, token_ids: Sequence[int] | NDArray[np.integer[Any]]) -> None:
        """Append one document.

        Raises:
            DatasetFormatError: an id is negative or does not fit the token size.
        """
        self.write_flat(*flatten_documents([token_ids], self.dtype, f"{self._path}: ", self.num_documents))

    def write_flat(self, tokens: NDArray[np.unsignedinteger[Any]], lengths_in_tokens: NDArray[np.integer[Any]]) -> None:
        """Append many documents that lie one after the other in an array.

        Args:
            tokens: their ids, shape (num_tokens,), contiguous, of this file's `dtype`.
            lengths_in_tokens: length of each, shape (num_documents,), int64.

        Raises:
            DatasetFormatError: the array has another dtype, a length is negative, or they do not add up to the tokens.
        """
        lengths = lengths_in_tokens.astype(np.int64)
        if tokens.dtype != self.dtype:
            raise DatasetFormatError(f"{self._path}: tokens are {tokens.dtype}, the file holds {self.dtype}.")
        if (lengths < 0).any() or int(lengths.sum()) != len(tokens):
            raise DatasetFormatError(
                f"{self._path}: {len(lengths)} documents of {lengths.sum()} tokens in all do not make up {len(tokens)} "
                "tokens."
            )
        self._file.write(tokens.view(np.uint8).data)
        self._index.extend(lengths * self.token_size_in_bytes)

    def write_bytes(self, documents: Sequence[bytes | memoryview]) -> None:
        """Append documents that are already encoded with this file's token size, bytes or views of single bytes.

        Raises:
            DatasetFormatError: a document is no whole number of tokens.
        """
        lengths = np.fromiter(map(len, documents), dtype=np.int64, count=len(documents))
        if (lengths % self.token_size_in_bytes).any():
            raise DatasetFormatError(
                f"{self._path}: a document behind document {self.num_documents} is no whole number of tokens of "
                f"{self.token_size_in_bytes} bytes."
            )
        if int(lengths.sum()) <= _MAX_JOIN_IN_BYTES:
            num_written = self._file.write(b"".join(documents))
        else:
            num_written = sum(self._file.write(document) for document in documents)
        if num_written != lengths.sum():
            raise DatasetFormatError(f"{self._path}: a document is a view of items that are no single bytes.")
        self._index.extend(lengths)

    def write_file(self, file: "PackedFile", on_progress: Callable[[int], None] = lambda _: None) -> None:
        """Append all documents of a file of the same token size; its data section is copied as it is.

        Args:
            file: the file.
            on_progress: is told the number of bytes of data written so far, again and again.

        Raises:
            DatasetFormatError: the file's token size is another one, its index is damaged, or it changed meanwhile.
        """
        file.check_index()
        self._append_data(file, on_progress)
        self._index.append_file(file, file.data_length_in_bytes)

    def write_file_back_to_back(self, file: "PackedFile") -> None:
        """Append all documents of a file by their lengths alone, for a file whose offsets are wrong.

        Raises:
            DatasetFormatError: the file's token size is another one, the lengths do not add up to its data, or it
                changed meanwhile.
        """
        num_bytes = self._index.num_bytes
        self._append_data(file, lambda _: None)
        for _, lengths in file.index.blocks():
            self._index.extend(lengths)
        if self._index.num_bytes - num_bytes != file.data_length_in_bytes:
            raise DatasetFormatError(f"{file.path}: the lengths of its documents do not add up to its data.")

    def _append_data(self, file: "PackedFile", on_progress: Callable[[int], None]) -> None:
        if file.token_size_in_bytes != self.token_size_in_bytes:
            raise DatasetFormatError(
                f"{file.path} has {file.token_size_in_bytes} bytes per token, {self._path} has "
                f"{self.token_size_in_bytes}."
            )
        num_written = self._index.num_bytes

        def write(block: memoryview) -> None:
            nonlocal num_written
            num_written += self._file.write(block)
            on_progress(num_written)

        file.copy_data(write)

    def close(self) -> None:
        """Write the index and what is left of the header.

        Raises:
            DatasetFormatError: the documents are not as long as it was said beforehand.
        """
        with self._file as file:
            if self._data_length_in_bytes not in (None, self._index.num_bytes):
                raise DatasetFormatError(
                    f"{self._path}: the documents have {self._index.num_bytes} bytes, not {self._data_length_in_bytes}."
                )
            write_offset_table(file, self._index)
            if isinstance(file, HashedFile):
                self.digest = file.digest
            else:
                file.seek(0)
                file.write(HEADER.pack(self._index.num_bytes, self.token_size_in_bytes))


def flatten_documents(
    documents: Sequence[Sequence[int] | NDArray[np.integer[Any]]],
    dtype: np.dtype[Any],
    place: str,
    first_number: int = 0,
) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int64]]:
    """Documents as one flat array of `dtype`, shape (num_tokens,), and their lengths, shape (num_documents,).

    Args:
        documents: token ids, each of shape (length,).
        dtype: unsigned, as the file holds them.
        place: start of error messages.
        first_number: number of the first document in these messages.

    Raises:
        DatasetFormatError: ids are no integers, or one does not fit the dtype.
    """
    arrays = [np.asarray(document, dtype=None if len(document) else dtype) for document in documents]
    for number, ids in enumerate(arrays, first_number):
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise DatasetFormatError(
                f"{place}token ids must be integers in one dimension, document {number} has {ids.dtype} of shape "
                f"{ids.shape}."
            )
    lengths = np.array([len(ids) for ids in arrays], dtype=np.int64)
    flat = np.concatenate([ids.astype(np.int64, copy=False) for ids in arrays]) if arrays else np.empty(0, np.int64)
    largest_id = int(np.iinfo(dtype).max)
    if flat.size and not 0 <= int(flat.min()) <= int(flat.max()) <= largest_id:
        number = next(i for i, ids in enumerate(arrays) if ids.size and (ids.min() < 0 or ids.max() > largest_id))
        raise DatasetFormatError(
            f"{place}document {first_number + number} has token ids from {arrays[number].min()} to "
            f"{arrays[number].max()}, but {dtype.itemsize} bytes per token hold 0 to {largest_id}."
        )
    return flat.astype(dtype), lengths
