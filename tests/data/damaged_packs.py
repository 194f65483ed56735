"""Packed files and line indices, sound in the beginning, then damaged in ways that a reader may stumble over."""

import io
import pickle
import random
import struct

from modalities_pipeline.data.packed.offset_table import OffsetTable, write_offset_table

Pairs = list[tuple[int, int]]

LINES = b"".join(b'{"text": "%d"}\n' % number for number in range(40))

# Opcodes and arguments that make an unpickler look up, call, remember, copy or reserve.
_SNIPPETS = [
    *(bytes([opcode]) for opcode in b"(ea.012"),
    *(b"]\x94", b"\x86\x94", b"e(", b"e.", b"a.", b"K\x01", b"J\x86\x94", b"2" * 500, b"]" * 500, b")" * 500),
    *(b"r\xff\xff\xff\x7f", b"q\x05", b"j\0\0\0\0", b"h\x01" * 300, b"g1\n", b"p1\n", b"I01\n", b"L9999999999L\n"),
    *(b"\x8a\xff", b"\x8a\x09" + b"\xff" * 9, b"\x8b\xff\xff\xff\x7f", b"\x96" + b"\xff" * 6 + b"\0\0"),
    *(b"\x8d" + b"\xff" * 8, b"\x95" + b"\xff" * 8, b"\x95" + bytes(8), b"\x97\x98", b"P1\n", b"\x80\x05", b"\x80\xff"),
    *(
        b"cos\nmkdir\nX\x04\0\0\0made\x85R",
        b"\x8c\x02os\x8c\x05mkdir\x93\x8c\x04made\x85R",
        b"(ios\nmkdir\n",
        b"\x82\x01",
    ),
    *(bytes(8), b"\xff" * 8, (2**31).to_bytes(8, "little"), (2**63 - 1).to_bytes(8, "little")),
]


class DamagedFiles:
    """The bytes of one damaged file after the other; some are sound."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pack(self) -> bytes:
        """The bytes of the next `.pbin` case."""
        token_size = self._random.choice([1, 2, 4])
        lengths = [
            self._random.choice([0, 1, 2, 3, 100]) * token_size for _ in range(self._random.choice([0, 1, 3, 40]))
        ]
        data = self._random.randbytes(sum(lengths))
        header = struct.pack("<QI", len(data), token_size)
        index = self._pickled(self._extents(lengths))
        match self._random.randrange(8):
            case 0:
                index = self._damaged(index)
            case 1:
                header = self._damaged(header)
            case 2:
                return self._damaged(header + data + index)
            case 3:
                data = self._damaged(data)
            case _:
                index = self._damaged(index)
        return header + data + index

    def line_index(self) -> bytes:
        """The bytes of the next `.idx` case."""
        offsets = [offset for offset in range(len(LINES)) if offset == 0 or LINES[offset - 1] == 10]
        pairs = [(offset, LINES.index(b"\n", offset) - offset) for offset in offsets]
        return self._damaged(self._pickled(pairs))

    def _extents(self, lengths: list[int]) -> Pairs:
        """A sound index mostly, else one of the layouts that old versions or Modalities' merge write."""
        start = self._random.choice([0, 0, 0, 0, 12, -12])
        pairs = []
        for length in lengths:
            pairs.append((start, length))
            start += length
        if self._random.random() < 0.2:
            self._random.shuffle(pairs)
        return pairs

    def _pickled(self, pairs: Pairs) -> bytes:
        if self._random.random() < 0.5:
            return pickle.dumps(pairs, protocol=self._random.choice([2, 4, 4, 4, 5]))
        file = io.BytesIO()
        wide = self._random.choice([[], [(2**40, 1)], [(0, 2**35)]])
        table = (
            OffsetTable.from_arrays(*zip(*pairs, *wide, strict=True))
            if pairs or wide
            else OffsetTable.from_arrays([], [])
        )
        write_offset_table(file, table, max_plain_entries=0)
        return file.getvalue()

    def _damaged(self, sound: bytes) -> bytes:
        content = bytearray(sound)
        for _ in range(int(self._random.expovariate(0.7))):
            start = self._random.randint(0, len(content))
            end = min(len(content), start + self._random.randint(0, 12))
            match self._random.randrange(7):
                case 0:
                    content[start:start] = self._random.choice(_SNIPPETS)
                case 1:
                    snippet = self._random.choice(_SNIPPETS)
                    content[start : start + len(snippet)] = snippet
                case 2:
                    content[start:end] = self._random.randbytes(end - start)
                case 3:
                    del content[start:end]
                case 4:
                    content[start:start] = content[start:end]
                case 5:
                    del content[start:]
                case 6 if start < len(content):
                    content[start] ^= 1 << self._random.randrange(8)
        return bytes(content)
