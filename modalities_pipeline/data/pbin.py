"""Reads `.pbin` files. `pbin_layout` describes their bytes, `PackedFileWriter` writes them."""

import functools
import io
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.packed.document_index import check_documents, check_extent, relative_to_data
from modalities_pipeline.data.packed.offset_table import OffsetTable, decode_offset_table
from modalities_pipeline.data.packed.packed_file_writer import PackedFileWriter
from modalities_pipeline.data.packed.pbin_header import read_header, version_of
from modalities_pipeline.data.packed.pbin_layout import HEADER, TOKEN_DTYPES, token_size_for_vocab
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError

__all__ = ["PackedFile", "PackedFileWriter", "token_size_for_vocab"]

# a block that is read, hashed and written stays within a core's own cache
_COPY_BLOCK_IN_BYTES = 256 << 10


class PackedFile:
    """A `.pbin` file opened for reading; opening reads the header, the rest is mapped into memory when it is used.

    Attributes:
        path: the file.
        token_size_in_bytes: 1, 2 or 4.
        data_length_in_bytes: length of the data section.
        num_tokens: number of tokens in it.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            DatasetNotFoundError: there is no such file.
            DatasetFormatError: it is not a complete `.pbin` file.
        """
        self.path = Path(path)
        header = read_header(self.path)
        self._version = header.version
        self.data_length_in_bytes, self.token_size_in_bytes = header.data_length_in_bytes, header.token_size_in_bytes
        self.num_tokens = header.num_tokens

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type["PackedFile"], tuple[Path]]:
        """Data loader workers that are spawned open the file themselves instead of receiving its content."""
        return type(self), (self.path,)

    def close(self) -> None:
        """Let go of the mapping and the index; they come back when they are used again.

        Views handed out keep the mapping alive.
        """
        for name in ("_mapping", "_content", "tokens", "index"):
            self.__dict__.pop(name, None)

    @functools.cached_property
    def _mapping(self) -> mmap.mmap:
        with self._reopened() as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @functools.cached_property
    def _content(self) -> NDArray[np.uint8]:
        """The bytes of the file, shape (size,), read-only."""
        return np.frombuffer(self._mapping, dtype=np.uint8)

    def check_length(self) -> None:
        """Check that the mapped file was not cut off meanwhile; to be called shortly before much of it is read.

        The system kills a process that reads what a mapped file has lost. A file that was replaced is no danger: the
        mapping keeps the old one.

        Raises:
            DatasetFormatError: the file is shorter than when it was mapped.
        """
        if self._mapping.size() < len(self._mapping):
            raise self._changed()

    @functools.cached_property
    def tokens(self) -> NDArray[np.unsignedinteger[Any]]:
        """All tokens, shape (num_tokens,), dtype `<u1`, `<u2` or `<u4`; a read-only view of the file."""
        return self._content[HEADER.size : self._data_end].view(TOKEN_DTYPES[self.token_size_in_bytes])

    @property
    def num_documents(self) -> int:
        """Number of documents in the index."""
        return len(self.index)

    @functools.cached_property
    def index(self) -> OffsetTable:
        """(offset, length) of every document in bytes within the data section, as the file says; see `check_index`.

        Raises:
            DatasetFormatError: the index is no table of offsets, or the file changed since it was opened.
        """
        table = decode_offset_table(self._content[self._data_end :], self.path)
        return relative_to_data(self.path, table, self.data_length_in_bytes)

    def check_index(self) -> None:
        """Check all documents; what reads them all calls it first.

        Raises:
            DatasetFormatError: a document does not consist of whole tokens within the data section, or the offsets are
                those of Modalities' faulty merge. Or the file was cut off.
        """
        self.check_length()
        check_documents(self.path, self.index, self.data_length_in_bytes, self.token_size_in_bytes)

    def document(self, position: int) -> NDArray[np.unsignedinteger[Any]]:
        """The tokens of one document, shape (length,), as a read-only view; negative positions count from the end.

        Raises:
            IndexError: there is no such document.
            DatasetFormatError: its index entry is impossible.
        """
        offset, length = self._extent(position)
        start = offset // self.token_size_in_bytes
        return self.tokens[start : start + length // self.token_size_in_bytes]

    def document_bytes(self, position: int) -> memoryview:
        """The tokens of one document as they are in the file; raises as `document` does."""
        offset, length = self._extent(position)
        return self.data[offset : offset + length]

    @property
    def data(self) -> memoryview:
        """The whole data section as bytes."""
        return self._content[HEADER.size : self._data_end].data

    def copy_data(self, write: Callable[[memoryview], object]) -> None:
        """Pass the data section on, block by block; a block is valid only during the call.

        Raises:
            DatasetFormatError: the file is another one than when it was opened, or became shorter.
        """
        block = memoryview(bytearray(_COPY_BLOCK_IN_BYTES))
        with self._reopened() as file:
            file.seek(HEADER.size)
            for start in range(0, self.data_length_in_bytes, len(block)):
                part = block[: min(len(block), self.data_length_in_bytes - start)]
                if file.readinto(part) != len(part):
                    raise self._changed()
                write(part)

    @property
    def _data_end(self) -> int:
        return HEADER.size + self.data_length_in_bytes

    def _reopened(self) -> io.BufferedReader:
        try:
            file = open(self.path, "rb")  # noqa: SIM115 (closed by the caller)
        except FileNotFoundError:
            raise DatasetNotFoundError(f"{self.path} was deleted while it was read.") from None
        if version_of(file.fileno()) != self._version:
            file.close()
            raise self._changed()
        return file

    def _changed(self) -> DatasetFormatError:
        return DatasetFormatError(f"{self.path} changed while it was read. Run again when it is complete.")

    def _extent(self, position: int) -> tuple[int, int]:
        extent = self.index[position]
        check_extent(self.path, position, extent, self.data_length_in_bytes, self.token_size_in_bytes)
        return extent
