"""Reads pickled lists of pairs of ints without unpickling, so nothing else can ever be built from a file.

Python's own form (protocol 4 and 5, what Modalities writes) is read in bulk:

    80 04 | 5d 94 | 28, entries, 65 | 28, entries, 65 | ... | 2e        a single last entry stands alone, followed by 61

An entry is two ints, 86 (pair them) and 94 (remember the pair); an int is 4b + u8, 4d + u16, 4a + i32 or 8a + size +
little-endian. Frames (95 + u64 size) may begin anywhere. What has another form goes to `pickled_pairs_steps`.
"""

from __future__ import annotations

import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modalities_pipeline.data.packed.pickled_pairs_steps import read_stepwise
from modalities_pipeline.exceptions import DatasetFormatError

_Numbers = NDArray[np.int64]
_Bytes = NDArray[np.uint8]

_BLOCK_IN_BYTES = 1 << 20
_MAX_ENTRY_IN_BYTES = 2 + 10 + 10 + 2  # new group, two ints, pair
_PADDING = np.zeros(2 * _MAX_ENTRY_IN_BYTES, dtype=np.uint8)
_FRAME, _FRAME_HEADER_IN_BYTES = 0x95, 9
_APPENDS, _MARK = 0x65, 0x28
_LONG1 = 0x8A
_PAYLOADS = np.zeros(256, dtype=np.int64)  # opcode -> bytes of its number
_PAYLOADS[[0x4B, 0x4D, 0x4A]] = 1, 2, 4
_UNSIGNED = np.isin(np.arange(256), [0x4B, 0x4D])


class _OtherFormError(Exception):
    """The content is not in Python's own form; it may still be a list of pairs."""


def unpickle_pairs(content: _Bytes, path: Path) -> tuple[_Numbers, _Numbers]:
    """First and second numbers of all pairs; what follows the pickle is ignored. `path` is named in errors.

    Raises:
        DatasetFormatError: the content is not a pickled list of pairs of ints below 2^63.
    """
    try:
        return _read_in_bulk(content)
    except _OtherFormError:
        pass
    try:
        return read_stepwise(content.data)
    except ValueError as error:
        raise DatasetFormatError(f"{path}: the index cannot be read: {error}. Build the file again.") from error


def _read_in_bulk(content: _Bytes) -> tuple[_Numbers, _Numbers]:
    if content[:2].tobytes() not in (b"\x80\x04", b"\x80\x05"):
        raise _OtherFormError
    reader = _BulkReader()
    rest = content[:0]
    for block in _blocks(content):
        rest = reader.read(np.concatenate([rest, block]))
        if reader.is_ended_by(rest[:2].tobytes()):
            return reader.columns()
        if len(rest) > _MAX_ENTRY_IN_BYTES:
            break
    raise _OtherFormError


class _BulkReader:
    """The entries read so far, and whether the last one stands alone."""

    def __init__(self) -> None:
        self._firsts, self._seconds = array.array("q"), array.array("q")
        self._first_lone_entry: int | None = None
        self._is_started = False

    def read(self, block: _Bytes) -> _Bytes:
        """Take all complete entries; returns what follows them."""
        buffer = np.concatenate([block, _PADDING])
        starts, end = _entries(buffer, self._start(buffer), len(block))
        is_lone = (buffer[starts] == _APPENDS) & (buffer[starts + 1] != _MARK)
        if is_lone.any() and self._first_lone_entry is None:
            self._first_lone_entry = len(self._firsts) + int(np.argmax(is_lone))
        firsts, seconds = _numbers(buffer, starts)
        self._firsts.frombytes(firsts.tobytes())
        self._seconds.frombytes(seconds.tobytes())
        return block[end:]

    def is_ended_by(self, following: bytes) -> bool:
        """Whether these bytes, which follow the last entry, are the end of the pickle."""
        if not len(self._firsts):
            return self._first_lone_entry is not None and following[:1] == b"."
        if self._first_lone_entry is None:
            return following == b"e."
        return self._first_lone_entry == len(self._firsts) - 1 and following == b"a."

    def columns(self) -> tuple[_Numbers, _Numbers]:
        """First and second numbers."""
        return np.asarray(self._firsts, dtype=np.int64), np.asarray(self._seconds, dtype=np.int64)

    def _start(self, buffer: _Bytes) -> int:
        """Where the entries begin: at the first block behind the list and the mark of a group, later at once."""
        if self._is_started:
            return 0
        self._is_started = True
        if buffer[:2].tobytes() != b"]\x94":
            raise _OtherFormError
        if buffer[2] == _MARK:
            return 3
        self._first_lone_entry = 0
        return 2


def _blocks(content: _Bytes) -> Iterator[_Bytes]:
    """The opcodes without frame headers, in blocks of bounded size; a tail of a few bytes has no frame."""
    position, pending, num_pending = 2, [], 0
    while position < len(content):
        start, end = position, len(content)
        if content[position] == _FRAME:
            start = position + _FRAME_HEADER_IN_BYTES
            end = start + int.from_bytes(content[position + 1 : start].tobytes(), "little")
            if end > len(content):
                raise _OtherFormError
        for first in range(start, end, _BLOCK_IN_BYTES):
            pending.append(content[first : min(first + _BLOCK_IN_BYTES, end)])
            num_pending += len(pending[-1])
            if num_pending >= _BLOCK_IN_BYTES:
                yield np.concatenate(pending)
                pending, num_pending = [], 0
        position = end
    if pending:
        yield np.concatenate(pending)


def _entries(buffer: _Bytes, start: int, size: int) -> tuple[_Numbers, int]:
    """Starts of the entries that lie in the buffer completely, and the end of the last one.

    Entries end with 86 94, but numbers may hold these bytes too: only ends that follow from their start count.
    """
    marks = (buffer[start : size - 1] == 0x86) & (buffer[start + 1 : size] == 0x94)
    bounds = np.concatenate([[start], np.flatnonzero(marks) + start + 2])
    ends = _ends(buffer, bounds)
    wrong = np.flatnonzero(ends[:-1] != bounds[1:])
    keep = np.ones(len(bounds), dtype=bool)
    last, next_wrong = len(bounds) - 1, 0
    while next_wrong < len(wrong):
        current = int(wrong[next_wrong])
        following = int(np.searchsorted(bounds, ends[current]))
        if ends[current] < 0 or following == len(bounds) or bounds[following] != ends[current]:
            last = current
            break
        keep[current + 1 : following] = False
        next_wrong = int(np.searchsorted(wrong, following))
    return bounds[:last][keep[:last]], int(bounds[last])


def _ends(buffer: _Bytes, starts: _Numbers) -> _Numbers:
    """Where an entry that begins at each start ends; -1 where there is none."""
    _, first_payload, second, second_payload = _number_positions(buffer, starts)
    ends = second + second_payload
    good = (first_payload > 0) & (second_payload > 0) & (buffer[ends] == 0x86) & (buffer[ends + 1] == 0x94)
    return np.where(good, ends + 2, -1)


def _number_positions(buffer: _Bytes, starts: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers, _Numbers]:
    """Position and size of the payload of both ints; size 0 stands for no int of 1 to 8 bytes."""
    new_group = buffer[starts] == _APPENDS
    opcode = starts + new_group + (new_group & (buffer[starts + 1] == _MARK))
    positions: list[Any] = []
    for _ in range(2):
        is_long = buffer[opcode] == _LONG1
        payload = np.where(is_long, buffer[opcode + 1], _PAYLOADS[buffer[opcode]])
        payload[payload > 8] = 0
        positions += [opcode + 1 + is_long, payload]
        opcode = positions[-2] + payload
    first, first_payload, second, second_payload = positions
    return first, first_payload, second, second_payload


def _numbers(buffer: _Bytes, starts: _Numbers) -> tuple[_Numbers, _Numbers]:
    first, first_payload, second, second_payload = _number_positions(buffer, starts)
    return _integers(buffer, first, first_payload), _integers(buffer, second, second_payload)


def _integers(buffer: _Bytes, positions: _Numbers, payloads: _Numbers) -> _Numbers:
    """The little-endian numbers of 1 to 8 bytes at the positions, signed but for those of u8 and u16 opcodes."""
    words = np.lib.stride_tricks.sliding_window_view(buffer, 8)[positions]
    shifts = 64 - 8 * payloads
    signed = words.view("<i8").ravel() << shifts
    unsigned = _UNSIGNED[buffer[positions - 1]] & (payloads < 3)
    return np.where(unsigned, (signed.view(np.uint64) >> shifts.astype(np.uint64)).view(np.int64), signed >> shifts)
