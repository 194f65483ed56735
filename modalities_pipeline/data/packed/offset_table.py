"""Tables of (byte offset, byte length), the content of `.idx` files and of the index of `.pbin` files.

On disk a table is a pickled list of 2-tuples of ints, so that Modalities reads what is written here and the other way
round. Small tables have exactly the bytes that Modalities writes. Larger ones are pickled with a constant number of
bytes per entry, behind a tag that unpickling drops:

| bytes                  | content                                                                                    |
|------------------------|--------------------------------------------------------------------------------------------|
| 80 04                  | protocol 4                                                                                 |
| 8c n tag 30            | a string with the layout and the number of entries, dropped again                          |
| 5d 28                  | a list, to be filled from here                                                             |
| per entry              | offset, length, 86 (tuple of two); a number is 4a + i32 or 8a 08 + i64, little-endian      |
| 65 2e                  | fill the list, end                                                                         |

Such a table is used where it lies in the file, without unpickling: opening it takes no memory, whatever its length.
"""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from modalities_pipeline.data.packed.pickled_pairs import unpickle_pairs
from modalities_pipeline.exceptions import DatasetFormatError

_PICKLE_PROTOCOL = 4
_MAX_PLAIN_ENTRIES = 65_536
_BLOCK_IN_ENTRIES = 65_536

_HEAD = re.compile(rb"\x80\x04\x8c.modalities_pipeline\.offset_table:(i[48]i[48]):([0-9a-f]{16})0\]\(", re.DOTALL)
_MAX_HEAD_IN_BYTES = 100
_TAIL = b"e."
_INT32 = np.iinfo(np.int32)
_BININT, _LONG1_OF_8_BYTES, _TUPLE2 = 0x4A, 0x088A, 0x86


@dataclasses.dataclass(frozen=True)
class _Layout:
    """One way to pickle an entry: which numbers take four bytes and which eight."""

    name: str
    entry_dtype: np.dtype[Any]
    opcodes: tuple[tuple[str, int], ...]  # (field, constant value)


def _layout(name: str) -> _Layout:
    four, eight = (_BININT, "u1", "<i4"), (_LONG1_OF_8_BYTES, "<u2", "<i8")
    (offset_op, offset_op_type, offset_type), (length_op, length_op_type, length_type) = (
        four if size == "4" else eight for size in (name[1], name[3])
    )
    entry_dtype = np.dtype(
        [
            ("offset_op", offset_op_type),
            ("offset", offset_type),
            ("length_op", length_op_type),
            ("length", length_type),
            ("pair_op", "u1"),
        ]
    )
    return _Layout(name, entry_dtype, (("offset_op", offset_op), ("length_op", length_op), ("pair_op", _TUPLE2)))


_LAYOUTS = {name: _layout(name) for name in ("i4i4", "i8i4", "i4i8", "i8i8")}


class OffsetTable:
    """A read-only table of (byte offset, byte length).

    Of a table that lies in a file only what is used is checked, when it is used; all that gives entries can therefore
    raise `DatasetFormatError`.
    """

    def __init__(
        self,
        offsets: NDArray[np.signedinteger[Any]],
        lengths: NDArray[np.signedinteger[Any]],
        check: Callable[[int, int], None] | None = None,
    ) -> None:
        """A table of two columns, shape (n,), int32 or int64; `check(start, end)` raises if an entry is damaged."""
        self._offsets = offsets
        self._lengths = lengths
        self._check = check

    @classmethod
    def from_arrays(cls, offsets: ArrayLike, lengths: ArrayLike) -> OffsetTable:
        """A table of two sequences of integers (lists, `array.array`, numpy arrays; the latter two are not copied).

        Raises:
            ValueError: they are not one-dimensional and equally long.
        """
        starts, sizes = np.asarray(offsets, dtype=np.int64), np.asarray(lengths, dtype=np.int64)
        if starts.ndim != 1 or starts.shape != sizes.shape:
            raise ValueError(f"Offsets of shape {starts.shape} and lengths of shape {sizes.shape} do not fit.")
        return cls(starts, sizes)

    @property
    def offsets(self) -> NDArray[np.signedinteger[Any]]:
        """All offsets, shape (n,), int32 or int64, maybe a strided view; sums of int32 overflow, see `blocks`."""
        self._check_all()
        return self._offsets

    @property
    def lengths(self) -> NDArray[np.signedinteger[Any]]:
        """All lengths, as `offsets`."""
        self._check_all()
        return self._lengths

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, position: int) -> tuple[int, int]:
        """(offset, length) of one entry; negative positions count from the end."""
        if self._check is not None:
            position = range(len(self))[position]
            self._check(position, position + 1)
        return int(self._offsets[position]), int(self._lengths[position])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for offsets, lengths in self.blocks():
            yield from zip(offsets.tolist(), lengths.tolist(), strict=True)

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Offsets and lengths, int64, block by block."""
        for start in range(0, len(self), _BLOCK_IN_ENTRIES):
            end = min(start + _BLOCK_IN_ENTRIES, len(self))
            if self._check is not None:
                self._check(start, end)
            yield self._offsets[start:end].astype(np.int64), self._lengths[start:end].astype(np.int64)

    def _check_all(self) -> None:
        if self._check is not None:
            for start in range(0, len(self), _BLOCK_IN_ENTRIES):
                self._check(start, min(start + _BLOCK_IN_ENTRIES, len(self)))
            self._check = None


class TableSource(Protocol):
    """What can be written as a table."""

    def __len__(self) -> int:
        """Number of entries."""

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Offsets and lengths, int64, block by block; a second call gives them again."""


def write_offset_table(file: BinaryIO, table: TableSource, max_plain_entries: int = _MAX_PLAIN_ENTRIES) -> None:
    """Append a table to a file, in memory that does not depend on its length.

    Args:
        file: where to.
        table: the entries.
        max_plain_entries: up to this number the bytes are those of Modalities.
    """
    if len(table) <= max_plain_entries:
        pairs = [
            pair for offsets, lengths in table.blocks() for pair in zip(offsets.tolist(), lengths.tolist(), strict=True)
        ]
        file.write(pickle.dumps(pairs, protocol=_PICKLE_PROTOCOL))
        return
    layout = _narrowest_layout(table)
    file.write(_head(layout.name, len(table)))
    entries = np.empty(0, dtype=layout.entry_dtype)
    for offsets, lengths in table.blocks():
        if len(offsets) > len(entries):
            entries = np.empty(len(offsets), dtype=layout.entry_dtype)
            for field, value in layout.opcodes:
                entries[field] = value
        part = entries[: len(offsets)]
        part["offset"], part["length"] = offsets, lengths
        file.write(part.view(np.uint8).data)
    file.write(_TAIL)


def decode_offset_table(content: NDArray[np.uint8], path: Path) -> OffsetTable:
    """Read a table from the bytes of a file; `path` is named in errors.

    Entries may be negative. Bytes behind the table are ignored. A table of this package's own layout is not copied: its
    arrays are views of `content`, whose entries are checked when they are used.

    Raises:
        DatasetFormatError: the content is not a pickled list of pairs of ints.
    """
    head = _HEAD.match(content[:_MAX_HEAD_IN_BYTES].tobytes())
    if head is None or head[0] != _head(head[1].decode(), int(head[2], 16)):
        return OffsetTable.from_arrays(*unpickle_pairs(content, path))
    layout, num_entries = _LAYOUTS[head[1].decode()], int(head[2], 16)
    end = head.end() + num_entries * layout.entry_dtype.itemsize
    if content[end : end + len(_TAIL)].tobytes() != _TAIL:
        raise DatasetFormatError(
            f"{path}: the index says that it has {num_entries} entries, but does not end behind them. It was cut off "
            "or changed: build the file again."
        )
    entries = content[head.end() : end].view(layout.entry_dtype)

    def check(start: int, end: int) -> None:
        for field, value in layout.opcodes:
            wrong = entries[start:end][field] != value
            if wrong.any():
                raise DatasetFormatError(
                    f"{path}: entry {start + int(np.argmax(wrong))} of the index is not a pair of numbers. The file is "
                    "damaged: build it again."
                )

    return OffsetTable(entries["offset"], entries["length"], check)


def _head(layout_name: str, num_entries: int) -> bytes:
    tag = f"modalities_pipeline.offset_table:{layout_name}:{num_entries:016x}".encode()
    return b"\x80\x04\x8c" + bytes([len(tag)]) + tag + b"0]("


def _narrowest_layout(table: TableSource) -> _Layout:
    offset_width = length_width = 4
    for offsets, lengths in table.blocks():
        offset_width = max(offset_width, _width(offsets))
        length_width = max(length_width, _width(lengths))
    return _LAYOUTS[f"i{offset_width}i{length_width}"]


def _width(numbers: NDArray[np.int64]) -> int:
    """Bytes that all of the numbers fit: 4 or 8."""
    return 4 if _INT32.min <= int(numbers.min()) and int(numbers.max()) <= _INT32.max else 8
