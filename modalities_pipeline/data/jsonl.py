"""JSON-lines files with random access: line i is found through the `.idx` file beside them."""

import mmap
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from modalities_pipeline.data.offset_table import OffsetTable, decode_offset_table, encode_offset_table
from modalities_pipeline.data.raw_index import default_index_path
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError

_COUNT_BLOCK_IN_BYTES = 16 << 20


def read_index(index_path: Path) -> OffsetTable:
    """(offset, length) of every line in bytes, int64 of shape (n, 2); lengths exclude the LF.

    Raises:
        DatasetNotFoundError: there is no such file.
        DatasetFormatError: it is not an index.
    """
    if not index_path.is_file():
        raise DatasetNotFoundError(f"{index_path} does not exist. Create the raw index first.")
    return decode_offset_table(index_path.read_bytes(), index_path)


def write_index(index_path: Path, index: OffsetTable) -> None:
    """Write an index, int64 of shape (n, 2)."""
    index_path.write_bytes(encode_offset_table(index))


class LargeFileLinesReader:
    """The lines of a file of any size, by position, through a memory map.

    Text keeps the CR of a CRLF line end and the U+FEFF of a byte order mark.
    """

    def __init__(
        self,
        raw_data_path: Path,
        index_path: Path | None = None,
        encoding: str | None = "utf-8",
        use_sample_length_from_index: bool = True,
    ) -> None:
        """Open a raw file.

        Args:
            raw_data_path: the file.
            index_path: its index; default: beside it, with suffix `.idx`.
            encoding: of the text; None gives bytes.
            use_sample_length_from_index: if False, a sample reaches to the start of the next one (the last: to the end
                of the file), so it includes the line end and any lines that the index leaves out.

        Raises:
            DatasetNotFoundError: the file or its index does not exist.
            DatasetFormatError: the file is empty, or the index points beyond its end.
        """
        self.raw_data_path = Path(raw_data_path)
        self.index_path = default_index_path(self.raw_data_path, index_path)
        self._encoding = encoding
        if not self.raw_data_path.is_file():
            raise DatasetNotFoundError(f"{self.raw_data_path} does not exist or is not a file.")
        self.index = read_index(self.index_path)
        size = self.raw_data_path.stat().st_size
        if not size:
            raise DatasetFormatError(f"{self.raw_data_path} is empty.")
        if len(self.index) and int(self.index.sum(axis=1).max()) > size:
            raise DatasetFormatError(
                f"{self.index_path} points beyond the end of {self.raw_data_path} ({size} bytes): the file changed "
                "after it was indexed. Create the raw index again."
            )
        if not use_sample_length_from_index:
            starts = self.index[:, 0]
            self.index[:-1, 1] = starts[1:] - starts[:-1]
            self.index[-1:, 1] = size - starts[-1:]
        with open(self.raw_data_path, "rb") as file:
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @staticmethod
    def default_index_path(raw_data_path: Path, index_path: Path | None = None) -> Path:
        """See the function of the same name."""
        return default_index_path(raw_data_path, index_path)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, position: int) -> str | bytes:
        """Line `position`, as text or (encoding None) bytes; negative positions count from the end."""
        content = self.line_bytes(operator.index(position))
        return content if self._encoding is None else content.decode(self._encoding)

    def __iter__(self) -> Iterator[str | bytes]:
        return (self[position] for position in range(len(self)))

    def line_bytes(self, position: int) -> bytes:
        """The bytes of line `position`."""
        offset, length = self.index[position].tolist()
        return self._content[offset : offset + length]

    def line_number(self, position: int) -> int:
        """Number of the physical line in the file, from 1; blank lines, which the index leaves out, count."""
        offset = int(self.index[position, 0])
        blocks = range(0, offset, _COUNT_BLOCK_IN_BYTES)
        return 1 + sum(
            self._content[start : min(start + _COUNT_BLOCK_IN_BYTES, offset)].count(b"\n") for start in blocks
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._content.close()
