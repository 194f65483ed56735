"""The index of packed files: 64-bit sums, and checks of whole indices."""

from pathlib import Path

import numpy as np
import pytest

from modalities_pipeline.data.packed import document_index
from modalities_pipeline.data.packed.document_index import DocumentIndexBuilder, check_documents, is_shifted_by_merge
from modalities_pipeline.data.packed.offset_table import OffsetTable
from modalities_pipeline.exceptions import DatasetFormatError

Pairs = list[tuple[int, int]]


class _File:
    """A file whose index is known."""

    def __init__(self, table: OffsetTable) -> None:
        self.index = table
        self.num_closed = 0

    def close(self) -> None:
        self.num_closed += 1


def _table(pairs: Pairs) -> OffsetTable:
    return OffsetTable.from_arrays([offset for offset, _ in pairs], [length for _, length in pairs])


def _entries(builder: DocumentIndexBuilder) -> Pairs:
    return [
        pair for offsets, lengths in builder.blocks() for pair in zip(offsets.tolist(), lengths.tolist(), strict=True)
    ]


def test_offsets_beyond_32_bits_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """B024: lengths of 32 bits whose sum has more."""
    monkeypatch.setattr(document_index, "_BLOCK_IN_DOCUMENTS", 3)
    length = 2**31 - 2
    builder = DocumentIndexBuilder()
    builder.extend(np.full(5, length, dtype=np.int32))
    builder.extend([length] * 3)
    file = _File(OffsetTable(np.array([0, length], dtype=np.int32), np.array([length, 4], dtype=np.int32)))
    builder.append_file(file, length + 4)
    builder.extend([2])
    expected = [(position * length, length) for position in range(9)]
    assert _entries(builder) == [*expected, (9 * length, 4), (9 * length + 4, 2)]
    assert (len(builder), builder.num_bytes) == (11, 9 * length + 6)
    assert file.num_closed == 2


def test_a_second_pass_gives_the_same_entries() -> None:
    builder = DocumentIndexBuilder()
    builder.extend([3, 0])
    builder.append_file(_File(_table([(4, 1), (0, 2)])), 5)
    assert _entries(builder) == _entries(builder) == [(0, 3), (3, 0), (7, 1), (3, 2)]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_documents_at_the_very_end_are_sound_and_one_token_further_they_are_not(dtype: type) -> None:
    """B024: also where offset and length of 32 bits have a sum of more."""
    size = 2**32 - 4
    table = OffsetTable(np.array([2**31 - 2], dtype=dtype), np.array([2**31 - 2], dtype=dtype))
    check_documents(Path("x.pbin"), table, size, 2)
    with pytest.raises(DatasetFormatError, match=r"document 0.*beyond"):
        check_documents(Path("x.pbin"), table, size - 2, 2)


@pytest.mark.parametrize(
    ("entry", "fault"),
    [((-2, 2), "negative"), ((0, -2), "negative"), ((0, 300_002), "beyond"), ((3, 2), "cuts"), ((2, 3), "cuts")],
)
@pytest.mark.parametrize("position", [0, 65_535, 65_536, 140_000])
def test_a_faulty_document_is_found_wherever_it_is(entry: tuple[int, int], fault: str, position: int) -> None:
    offsets = np.arange(140_001, dtype=np.int64) * 2
    lengths = np.full(140_001, 2, dtype=np.int64)
    offsets[position], lengths[position] = entry
    with pytest.raises(DatasetFormatError, match=rf"x\.pbin: .*document {position},.*{fault}"):
        check_documents(Path("x.pbin"), OffsetTable(offsets, lengths), 300_000, 2)


def _merged_by_modalities(groups: list[list[int]]) -> tuple[OffsetTable, int]:
    """The index that Modalities writes when it merges files of documents with these lengths, and the data's length."""
    pairs: Pairs = []
    shift = size = 0
    for lengths in groups:
        start = 0
        for length in lengths:
            pairs.append((start + shift, length))
            start += length
        shift += start - 12
        size += start
    return _table(pairs), size


@pytest.mark.parametrize(
    ("groups", "is_shifted"),
    [
        ([[4, 6, 2]], False),
        ([[4, 6, 2], [4]], True),
        ([[4], [4]], True),
        ([[], [4]], True),
        ([[4], [], [2, 0]], True),
        ([[0], [0]], True),
        ([[4], []], False),
        ([[40, 40], [40, 40], [40]], True),
        ([], False),
    ],
)
def test_the_index_of_modalities_merge_is_recognised(groups: list[list[int]], is_shifted: bool) -> None:
    """B023."""
    table, size = _merged_by_modalities(groups)
    assert is_shifted_by_merge(table, size) is is_shifted
    assert not is_shifted_by_merge(table, size + 2)


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 12), (12, 12)],
        [(12, 12), (0, 12)],
        [(0, 12), (24, 12), (12, 12)],
        [(0, 24), (11, 13)],
        [(0, 24), (0, 0)],
        [(0, 36), (12, 24)],
    ],
    ids=["in order", "swapped", "other order", "another shift", "an empty document anywhere", "overlap, too long"],
)
def test_other_indices_are_not_taken_for_that_of_modalities_merge(pairs: Pairs) -> None:
    assert not is_shifted_by_merge(_table(pairs), max(offset + length for offset, length in pairs))


def test_a_shift_is_recognised_across_blocks() -> None:
    table, size = _merged_by_modalities([[20] * 70_000, [20] * 70_000])
    assert table[70_000] == (70_000 * 20 - 12, 20)
    assert is_shifted_by_merge(table, size)
