"""Tables of (offset, length): Modalities' bytes when small, a mapped layout when large, equal to both sides."""

import io
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from modalities_pipeline.data.packed import offset_table
from modalities_pipeline.data.packed.offset_table import OffsetTable, decode_offset_table, write_offset_table
from modalities_pipeline.exceptions import DatasetFormatError

_TABLES = {
    "i4i4": [(0, 5), (5, 0), (2**31 - 1, 2**31 - 1), (-(2**31), -1)],
    "i8i4": [(0, 5), (2**31, 5), (2**40, 7), (-(2**62), 1)],
    "i4i8": [(0, 2**31), (5, 3)],
    "i8i8": [(2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)), (0, 0)],
}


def _encoded(pairs: list[tuple[int, int]], max_plain_entries: int = 0) -> bytes:
    file = io.BytesIO()
    table = OffsetTable.from_arrays([offset for offset, _ in pairs], [length for _, length in pairs])
    write_offset_table(file, table, max_plain_entries)
    return file.getvalue()


def _decoded(content: bytes) -> list[tuple[int, int]]:
    return list(decode_offset_table(np.frombuffer(content, dtype=np.uint8), Path("x.idx")))


@pytest.mark.parametrize("number", [0, 1, 2, 1000, 1001, 2001])
def test_small_tables_have_exactly_the_bytes_of_modalities(number: int) -> None:
    pairs = [(position * 300, 300) for position in range(number)]
    content = _encoded(pairs, max_plain_entries=2001)
    assert content == pickle.dumps(pairs, protocol=4)
    assert _decoded(content) == pairs


def test_tables_of_up_to_65536_entries_are_small() -> None:
    pairs = [(position, 1) for position in range(65_537)]
    for number, is_plain in ((65_536, True), (65_537, False)):
        file = io.BytesIO()
        write_offset_table(file, OffsetTable.from_arrays(*zip(*pairs[:number], strict=True)))
        assert (file.getvalue() == pickle.dumps(pairs[:number], protocol=4)) is is_plain
        assert pickle.loads(file.getvalue()) == pairs[:number]


@pytest.mark.parametrize("layout", _TABLES)
def test_large_tables_unpickle_to_the_same_list_and_are_read_without_a_copy(layout: str) -> None:
    """B024: no entry is cut to 32 bits, and 32 bits are used only where all entries fit."""
    content = _encoded(_TABLES[layout])
    assert layout.encode() in content
    assert pickle.loads(content) == _TABLES[layout]
    array = np.frombuffer(content, dtype=np.uint8)
    table = decode_offset_table(array, Path("x.idx"))
    assert list(table) == _TABLES[layout]
    assert np.shares_memory(table.offsets, array)
    assert np.shares_memory(table.lengths, array)
    assert [table.offsets.dtype.itemsize, table.lengths.dtype.itemsize] == [int(layout[1]), int(layout[3])]


def test_large_tables_take_11_bytes_per_entry_below_2_gib() -> None:
    pairs = [(position, 1) for position in range(1000)]
    assert len(_encoded(pairs)) - len(_encoded(pairs[:900])) == 100 * 11


def test_tables_are_written_in_blocks_that_join_seamlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_table, "_BLOCK_IN_ENTRIES", 7)
    for number in (1, 6, 7, 8, 20, 21):
        pairs = [(position * 3, 3) for position in range(number)]
        assert pickle.loads(_encoded(pairs)) == pairs
        assert _decoded(_encoded(pairs)) == pairs


def test_entries_are_python_ints_and_positions_count_from_the_end_too() -> None:
    table = decode_offset_table(np.frombuffer(_encoded([(1, 2), (3, 4)]), dtype=np.uint8), Path("x.idx"))
    assert table[-1] == (3, 4)
    assert all(type(number) is int for number in table[0])
    with pytest.raises(IndexError):
        _ = table[2]


def test_what_follows_the_table_is_ignored_as_by_modalities() -> None:
    pairs = _TABLES["i4i4"]
    for max_plain_entries in (0, 100):
        assert _decoded(_encoded(pairs, max_plain_entries) + b"anything") == pairs


@pytest.mark.parametrize("layout", _TABLES)
def test_every_damage_to_the_frame_of_a_large_table_is_noticed(layout: str) -> None:
    content = _encoded(_TABLES[layout])
    for end in range(len(content)):
        with pytest.raises(DatasetFormatError, match=r"x\.idx"):
            _decoded(content[:end])
    for position in range(len(content)):
        damaged = content[:position] + bytes([content[position] ^ 0x41]) + content[position + 1 :]
        try:
            table = _decoded(damaged)
        except DatasetFormatError:
            continue
        assert table == pickle.loads(damaged)


def test_a_table_that_claims_to_be_huge_is_refused_at_once() -> None:
    content = _encoded(_TABLES["i4i4"])
    tag = f"{len(_TABLES['i4i4']):016x}".encode()
    with pytest.raises(DatasetFormatError, match="cut off"):
        _decoded(content.replace(tag, b"f" * 16))


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        OffsetTable.from_arrays([1, 2], [1])


def test_two_million_documents_are_written_and_read_under_a_memory_limit(tmp_path: Path) -> None:
    """B009."""
    code = """
import resource, sys
from pathlib import Path
from modalities_pipeline.data.pbin import PackedFile, PackedFileWriter
import numpy as np

def anonymous_bytes():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("RssAnon"))) << 10

resource.setrlimit(resource.RLIMIT_AS, (500 << 20, 500 << 20))
path = Path(sys.argv[1])
before = anonymous_bytes()
with PackedFileWriter(path, 1) as writer:
    for _ in range(100):
        writer.write_flat(np.zeros(20_000, np.uint8), np.ones(20_000, np.int64))
with PackedFile(path) as file:
    file.check_index()
    assert (file.num_documents, file.document(-1).tolist()) == (2_000_000, [0])
assert anonymous_bytes() - before < 64 << 20
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.pbin")], check=True, timeout=60)
