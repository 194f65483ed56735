"""Reads a pickled list of pairs of ints opcode by opcode: slow, for unusual forms and for saying what is wrong.

It knows the opcodes that such a list needs and nothing else. Nothing is built but two arrays of numbers, so no file can
run code, and memory is at most a few times the size of the pickle.
"""

import array
import pickletools

import numpy as np
from numpy.typing import NDArray

_LENGTHS = {"K": 1, "M": 2, "J": 4, "q": 1, "r": 4, "h": 1, "j": 4, "\x80": 1, "\x95": 8}  # opcode -> argument
_LONG1, _FRAME = "\x8a", "\x95"
_PROTOCOLS = range(2, 6)
_NAMES = {opcode.code: opcode.name for opcode in pickletools.opcodes}


class _PairsReader:
    """The state of a run over a pickle: at most two numbers wait to be paired, pairs wait to be appended."""

    def __init__(self) -> None:
        self.firsts, self.seconds = array.array("q"), array.array("q")
        self._remembered = array.array("q")  # key of the memo -> number of the pair, -1 for the list
        self._numbers: list[int] = []
        self._num_waiting = 0
        self._has_list = self._is_open = False

    def step(self, opcode: str, argument: bytes) -> bool:
        """Obey one opcode; False if it has no place here."""
        match opcode:
            case "\x80":
                return argument[0] in _PROTOCOLS and not self._has_list
            case "\x95":  # the start of a frame
                return True
            case "]":
                good, self._has_list = not self._has_list, True
                return good
            case "K" | "M":
                return self._add_number(int.from_bytes(argument, "little"))
            case "J" | "\x8a":
                return self._add_number(int.from_bytes(argument, "little", signed=True))
            case "\x86":
                return self._add_pair()
            case "\x94":
                return self._remember(len(self._remembered))
            case "q" | "r":
                return self._remember(int.from_bytes(argument, "little"))
            case "h" | "j":
                return self._repeat(int.from_bytes(argument, "little"))
            case _:
                return self._append(opcode)

    def is_complete(self) -> bool:
        """Whether the list is all that there is."""
        return self._has_list and not (self._is_open or self._num_waiting or self._numbers)

    def _add_number(self, number: int) -> bool:
        self._numbers.append(number)
        return self._has_list and len(self._numbers) <= 2

    def _add_pair(self) -> bool:
        if len(self._numbers) != 2:
            return False
        self.firsts.append(self._numbers[0])
        self.seconds.append(self._numbers[1])
        self._numbers.clear()
        self._num_waiting += 1
        return True

    def _remember(self, key: int) -> bool:
        """What was built last, a pair or else the list, is remembered under the next key."""
        good = key == len(self._remembered) and self._has_list and not self._numbers
        self._remembered.append(len(self.firsts) - 1 if self._num_waiting else -1)
        return good and (self._num_waiting > 0 or not self._is_open)

    def _repeat(self, key: int) -> bool:
        if key >= len(self._remembered) or self._remembered[key] < 0 or self._numbers:
            return False
        pair = self._remembered[key]
        self.firsts.append(self.firsts[pair])
        self.seconds.append(self.seconds[pair])
        self._num_waiting += 1
        return True

    def _append(self, opcode: str) -> bool:
        if self._numbers or not self._has_list:
            return False
        if opcode == "(":
            good, self._is_open = not self._is_open and not self._num_waiting, True
            return good
        good = self._is_open if opcode == "e" else opcode == "a" and not self._is_open and self._num_waiting == 1
        self._is_open, self._num_waiting = False, 0
        return good


def read_stepwise(content: memoryview) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and second numbers of all pairs.

    Raises:
        ValueError: the content is anything else than a pickled list of pairs of ints below 2^63; the text says where.
    """
    reader = _PairsReader()
    position = 0
    while position < len(content):
        opcode = chr(content[position])
        if opcode == "." and reader.is_complete():
            return np.asarray(reader.firsts, dtype=np.int64), np.asarray(reader.seconds, dtype=np.int64)
        start, position = position, position + 1
        length = _LENGTHS.get(opcode, 0)
        if opcode == _LONG1 and position < len(content):
            position, length = position + 1, content[position]
            if length > 8:
                raise ValueError(f"at byte {start} of it is a number of {length} bytes, so above 2^63")
        argument = bytes(content[position : position + length])
        position += length
        frame_length = int.from_bytes(argument, "little") if opcode == _FRAME else 0
        if position + frame_length > len(content):
            break
        if not reader.step(opcode, argument):
            name = _NAMES.get(opcode, f"opcode {opcode!r}")
            raise ValueError(f"it is not a list of (offset, length) pairs ({name} at byte {start} of it)")
    raise ValueError("it ends too early")
