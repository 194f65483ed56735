"""JSON-lines files with random access: line i is found through the `.idx` file beside them."""

import mmap
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from modalities_pipeline.data.manifest import read_manifest
from modalities_pipeline.data.packed.offset_table import OffsetTable, decode_offset_table, write_offset_table
from modalities_pipeline.data.raw_index import default_index_path
from modalities_pipeline.exceptions import DatasetFormatError, DatasetNotFoundError

_COUNT_BLOCK_IN_BYTES = 16 << 20
_LF = 0x0A


def read_index(index_path: Path) -> OffsetTable:
    """(offset, length) of every line in bytes; lengths exclude the LF.

    Raises:
        DatasetNotFoundError: there is no such file.
        DatasetFormatError: it is not an index.
    """
    if not index_path.is_file():
        raise DatasetNotFoundError(f"{index_path} does not exist. Create the raw index first.")
    if not index_path.stat().st_size:
        raise DatasetFormatError(f"{index_path} is empty. Create the raw index again.")
    with open(index_path, "rb") as file:
        content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=np.uint8)
    return decode_offset_table(content, index_path)


def write_index(index_path: Path, index: OffsetTable) -> None:
    """Write an index."""
    with open(index_path, "wb") as file:
        write_offset_table(file, index)


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
            DatasetFormatError: the file is empty; or the index is damaged, points beyond the file's end, does not reach
                to it, or was made of a file of another size.
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
        self._check_index(size)
        self._has_line_lengths = use_sample_length_from_index
        if not use_sample_length_from_index:
            self.index = self._up_to_the_next_line(size)
        with open(self.raw_data_path, "rb") as file:
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._size_in_bytes = len(self._content)
        self._refuse_more_lines()

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
        """The bytes of line `position`.

        Raises:
            DatasetFormatError: what the index points to is not a line.
        """
        offset, length = self.index[position]
        end = offset + length
        starts = not offset or self._content[offset - 1] == _LF
        ends = end >= self._size_in_bytes or not self._has_line_lengths or self._content[end] == _LF
        if not (starts and ends):
            raise self._out_of_date(f"entry {position} is not a line of it")
        return self._content[offset:end]

    def line_number(self, position: int) -> int:
        """Number of the physical line in the file, from 1; blank lines, which the index leaves out, count."""
        offset, _ = self.index[position]
        blocks = range(0, offset, _COUNT_BLOCK_IN_BYTES)
        return 1 + sum(
            self._content[start : min(start + _COUNT_BLOCK_IN_BYTES, offset)].count(b"\n") for start in blocks
        )

    def _up_to_the_next_line(self, size: int) -> OffsetTable:
        starts = self.index.offsets.astype(np.int64)
        lengths = np.diff(starts, append=size)
        if (lengths < 0).any():
            raise DatasetFormatError(
                f"{self.index_path} does not list the lines in their order, so that none can reach to the next one. "
                "Create the raw index again, or use the lengths of the index."
            )
        return OffsetTable.from_arrays(starts, lengths)

    def _refuse_more_lines(self) -> None:
        """Lines behind the last that the index lists were appended later; with a manifest the size tells."""
        manifest = read_manifest(self.index_path)
        size_then = manifest.counts.get("source_size_in_bytes") if manifest is not None else None
        if size_then is not None:
            if size_then != self._size_in_bytes:
                raise self._out_of_date(f"it has {self._size_in_bytes} bytes and had {size_then}")
            return
        if not self._has_line_lengths:
            return
        end = max((int((offsets + lengths).max()) for offsets, lengths in self.index.blocks()), default=0)
        with open(self.raw_data_path, "rb") as file:  # not through the map: see `packing.document_batches`
            file.seek(end)
            while block := file.read(_COUNT_BLOCK_IN_BYTES):
                if block.strip():
                    raise self._out_of_date(f"it has lines from byte {end} on that the index does not list")

    def _out_of_date(self, what: str) -> DatasetFormatError:
        return DatasetFormatError(
            f"{self.index_path} does not fit {self.raw_data_path}: {what}. The file changed after it was indexed. "
            "Create the raw index again, with the file existence policy 'override'."
        )

    def _check_index(self, size: int) -> None:
        for offsets, lengths in self.index.blocks():
            if int(offsets.min()) < 0 or int(lengths.min()) < 0:
                raise DatasetFormatError(
                    f"{self.index_path} holds negative numbers; it is damaged. Create the raw index again."
                )
            if (lengths > size - offsets).any():
                raise DatasetFormatError(
                    f"{self.index_path} points beyond the end of {self.raw_data_path} ({size} bytes): the file changed "
                    "after it was indexed. Create the raw index again."
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._content.close()
